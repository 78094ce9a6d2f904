"""Reads the rows of a table, fills in the prompt of each row, and makes a DataFrame of the answers.

The module recognises tables of pandas and polars without importing these packages: the code that made the table has imported
its package already. Only `Table.make_frame` imports pandas, when a person asks for a DataFrame.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel
from typing_extensions import is_typeddict

from ..conversation import NameCode, Named, tell_text
from ..events import ArgumentInvalid, ArgumentTypeInvalid, Row
from ..text import IN_BRACES, list_some

TEXT = "row"
"""The name of the only column in a table of texts."""


class Table:
    """A table of rows. Each row is read only when it is needed. A row is a dict: column -> cell."""

    total: int | None = None
    """The number of rows; None if the table has no length."""
    columns: tuple[str, ...] | None = None
    """The names of the columns if all rows have the same columns; None if the rows may have different columns."""

    def __init__(self, rows: object = (), fields: Sequence[str] = ()) -> None:
        """`fields`: the names of an answer's fields; () if it has none. Raises ArgumentTypeInvalid if `rows` is not a table."""
        self._fields = tuple(fields)
        given: Any = rows
        self._kind: Literal["pandas", "polars", ""] = ""
        pandas: Any = sys.modules.get("pandas")
        polars: Any = sys.modules.get("polars")
        if pandas is not None and isinstance(given, pandas.Series):
            given = given.to_frame(TEXT)
        if pandas is not None and isinstance(given, pandas.DataFrame):
            self._kind, self.columns = "pandas", tuple(map(str, given.columns))
            self._index = given.index  # the table may be sorted or cut before `make_frame` is called
        elif polars is not None and isinstance(given, polars.DataFrame):
            self._kind, self.columns = "polars", tuple(given.columns)
        elif isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise ArgumentTypeInvalid(
                f"rows must be a DataFrame, or dicts or texts in a list, got {type(given).__name__}"
            )
        self._rows = given
        if hasattr(given, "__len__"):
            self.total = len(given)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows. Raises ArgumentTypeInvalid for a row that is neither a dict nor a text."""
        if self._kind == "pandas":
            for cells in self._rows.itertuples(index=False, name=None):
                yield dict(zip(self.columns or (), cells, strict=True))
        elif self._kind == "polars":
            yield from self._rows.iter_rows(named=True)
        else:
            for number, row in enumerate(self._rows):
                if not isinstance(row, (str, Mapping)):
                    raise ArgumentTypeInvalid(
                        f"row {number} is a value of type {type(row).__name__}; rows are dicts or texts"
                    )
                yield {TEXT: row} if isinstance(row, str) else {str(key): row[key] for key in row}

    def read_ahead(self) -> Iterator[dict[str, Any]]:
        """Return the rows that are checked before the run: only the first row if all rows have the same columns; else all rows.

        If the table has no length, only the first row is read: the table may be a generator, which can be read only once.
        """
        if self._kind or self.total is not None:
            return iter(self) if self.columns is None else itertools.islice(self, 1)
        first = list(itertools.islice(self._rows, 1))
        self._rows = itertools.chain(first, self._rows) if iter(self._rows) is self._rows else self._rows
        return iter(Table(first))

    def make_frame(self, rows: Sequence[Row]) -> Any:
        """Return a DataFrame of the rows' answers. `Rows.frame` states when pandas is used, and when polars is used."""
        columns = self._list_columns(rows)
        if self._kind == "polars" or (
            self._kind == "" and "polars" in sys.modules and "pandas" not in sys.modules
        ):
            plain = {name: list(map(_make_plain, column)) for name, column in columns.items()}
            return sys.modules["polars"].DataFrame(plain, strict=False)
        import pandas as pd

        numbers = [row.number for row in rows]
        return pd.DataFrame(columns, index=self._index.take(numbers) if self._kind == "pandas" else numbers)

    def _list_columns(self, rows: Sequence[Row]) -> dict[str, list[object]]:
        """Return column -> cells. The first columns are the fields of the answers; without fields, one column `answer`."""
        answers = [row.answer for row in rows]
        fields_of_answers = (
            list_fields(type(one)) or (one if isinstance(one, Mapping) else ()) for one in answers
        )
        names = list(dict.fromkeys(self._fields or itertools.chain(*fields_of_answers))) or ["answer"]

        def read(answer: object, name: str) -> object:
            if isinstance(answer, Mapping):
                return answer.get(name)
            return getattr(answer, name, answer if names == ["answer"] else None)

        columns = {name: [read(one, name) for one in answers] for name in names}
        for beside in ("stop_reason", "error", "cost", "tokens", "seconds"):
            name = beside
            while name in names:
                name = f"row_{name}"
            columns[name] = [getattr(row, beside) for row in rows]
        return columns


def list_fields(kind: object) -> tuple[str, ...]:
    """List the fields of an answer's type: a pydantic model, a dataclass or a TypedDict; () for any other type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(kind.__annotations__) if is_typeddict(kind) else ()


def _make_plain(value: Any) -> object:
    """Convert a value to a type that a polars column can hold."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value.value if isinstance(value, enum.Enum) else value


# --- the prompt -----------------------------------------------------------------------------------------------


class RowPrompt:
    """A prompt with names in double braces. For each row, the names are replaced by texts."""

    def __init__(
        self,
        text: str,
        table: Table,
        variables: Mapping[str, object],
        name_code: NameCode = lambda code: code,
    ) -> None:
        """Check the prompt against the rows that can be read before the run.

        A name in double braces stands for a column, else for one of `variables`. Raises ArgumentInvalid for a name that is
        neither, for a name that two columns have, for a variable that cannot be written as text, and for a prompt that names
        no column, because the prompt would be the same for all rows.
        """
        self._text, self._name_code = text, name_code
        self._named = {match[1]: _read_names(match[1]) for match in IN_BRACES.finditer(text)}
        """Text in double braces -> the names (of columns or variables) that this text may mean."""
        named = {*itertools.chain(*self._named.values())}
        self._texts = {name: self._tell(name, value) for name, value in variables.items() if name in named}
        self.first: dict[str, Any] | None = None
        """The first row; None if there are no rows."""
        for number, row in enumerate(table.read_ahead()):
            self.first = row if number == 0 else self.first
            if missing := self._find_missing(row):
                where = "" if number == 0 else f" in row {number}"
                raise ArgumentInvalid(f"{_explain(missing, row, variables)}{where}")
            if doubled := [name for name in row if (table.columns or ()).count(name) > 1 and name in named]:
                raise ArgumentInvalid(
                    f"{{{{{doubled[0]}}}}} is the name of more than one column: rename them"
                )
            if number == 0 and named.isdisjoint(row):
                columns = list_some([f"{{{{{name}}}}}" for name in row], 8)
                raise ArgumentInvalid(
                    "the prompt names no column, so it would be the same for all rows; "
                    f"put at least one of these into it: {columns}"
                )

    def _find_missing(self, row: Mapping[str, Any]) -> str:
        """Find the first name that is neither a column of the row nor a variable; "" if there is none."""
        for names in self._named.values():
            if not any(name in row or name in self._texts for name in names) and names[-1].isidentifier():
                return names[-1]
        return ""

    def fill(self, row: Mapping[str, Any]) -> str:
        """Return the prompt of one row. Names in double braces in a cell are not replaced.

        Raises ArgumentInvalid if the row lacks a column of the prompt, or if a cell cannot be written as text.
        """
        if missing := self._find_missing(row):
            raise ArgumentInvalid(f"the row has no {missing!r}")

        def find_text(match: re.Match[str]) -> str:
            for name in self._named[match[1]]:
                if name in row:
                    return self._tell(name, row[name])
                if name in self._texts:
                    return self._texts[name]
            return match[0]

        return IN_BRACES.sub(find_text, self._text)

    def _tell(self, name: str, value: object) -> str:
        return tell_text(Named(name, value), self._name_code)


def _read_names(typed: str) -> tuple[str, ...]:
    """Return the names that a text in double braces may mean: the text; the text without blanks around it; the same in NFKC
    form, because Python changes the names of variables to NFKC form.
    """
    bare = typed.strip()
    return typed, bare, unicodedata.normalize("NFKC", bare)


def _explain(missing: str, row: Mapping[str, Any], variables: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(missing, [*row, *variables], n=1)
    hint = f"did you mean {{{{{near[0]}}}}}?" if near else f"the columns are {list_some(list(row), 12)}"
    return f"{{{{{missing}}}}} is neither a column nor a variable; {hint}"
