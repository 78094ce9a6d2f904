"""A disk that is full, for tests of code that writes files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Inside this context, no file can be longer than `size` bytes. Code that writes more gets an OSError, as on a full disk."""
    resource = pytest.importorskip("resource", reason="limits of a process are POSIX")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
