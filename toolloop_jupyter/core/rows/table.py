"""Rows in, and the table of their answers out. pandas and polars are known by their objects and never imported for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Table:
    """Rows as they were given, read as they are needed."""

    def frame(self, answers: Mapping[int, tuple[Any, Mapping[str, object]]]) -> Any:
        """A DataFrame of (the answer, cells beside it) by the rows' numbers."""
        raise NotImplementedError
