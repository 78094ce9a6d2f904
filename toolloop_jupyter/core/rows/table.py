"""Rows in, the prompt of each, and the table of their answers out.

pandas and polars are known by objects of theirs, which cannot be there before they are imported; only `Table.frame`, which a
person asks for, may import pandas.
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

from ..conversation import NameCode, Named, tell_text
from ..events import ArgumentInvalid, ArgumentTypeInvalid
from ..text import list_some

TEXT = "row"
"""The name of a row that is a text."""
Answers = Mapping[int, "tuple[Any, Mapping[str, object]]"]
"""By the rows' numbers: (the answer, cells beside it)."""


class Table:
    """Rows as they were given, read as they are needed, each as a dict by column."""

    total: int | None = None
    """How many there are; None where nobody knows."""
    columns: tuple[str, ...] | None = None
    """The names that each row has; None where they differ, or are not known."""

    def __init__(self, rows: object = (), fields: Sequence[str] = ()) -> None:
        """`fields`: the columns of an answer, where its type tells them. Raises ArgumentTypeInvalid for what are no rows."""
        self._fields = tuple(fields)
        given: Any = rows
        self._kind: Literal["pandas", "polars", ""] = ""
        pandas: Any = sys.modules.get("pandas")
        polars: Any = sys.modules.get("polars")
        if pandas is not None and isinstance(given, pandas.Series):
            given = given.to_frame(TEXT)
        if pandas is not None and isinstance(given, pandas.DataFrame):
            self._kind, self.columns = "pandas", tuple(map(str, given.columns))
            self._index = given.index  # now: a table can be sorted or cut before the frame is asked for
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
        """The rows. Those of a generator can be read once. Raises ArgumentTypeInvalid for one that is none."""
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
        """Rows to look at before the run: all that are there already, of a generator the first one."""
        if self._kind or self.total is not None:
            return iter(self) if self.columns is None else itertools.islice(self, 1)
        first = list(itertools.islice(self._rows, 1))
        self._rows = itertools.chain(first, self._rows) if iter(self._rows) is self._rows else self._rows
        return iter(Table(first))

    def frame(self, answers: Answers) -> Any:
        """A DataFrame of the answers: of polars where the rows are, else of pandas, with the rows' index."""
        columns = self._list_columns(answers)
        if self._kind == "polars" or (
            self._kind == "" and "polars" in sys.modules and "pandas" not in sys.modules
        ):
            plain = {name: list(map(_make_plain, column)) for name, column in columns.items()}
            return sys.modules["polars"].DataFrame(plain, strict=False)
        import pandas as pd

        index = self._index.take(list(answers)) if self._kind == "pandas" else list(answers)
        return pd.DataFrame(columns, index=index)

    def _list_columns(self, answers: Answers) -> dict[str, list[object]]:
        found = [
            list_fields(type(answer)) or (answer if isinstance(answer, Mapping) else ())
            for answer, _ in answers.values()
        ]
        names = list(dict.fromkeys(self._fields or itertools.chain(*found))) or ["answer"]
        columns: dict[str, list[object]] = {name: [] for name in names}
        for answer, beside in answers.values():
            for name in names:
                columns[name].append(_read_field(answer, name, is_one=names == ["answer"]))
            for name, cell in beside.items():
                while name in names:
                    name = f"row_{name}"  # noqa: PLW2901
                columns.setdefault(name, []).append(cell)
        return columns


def list_fields(kind: object) -> tuple[str, ...]:
    """The fields of an answer's type: a pydantic model, a dataclass, a TypedDict; () for any other."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    is_typed_dict = isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__total__")
    return tuple(kind.__annotations__) if is_typed_dict else ()


def _read_field(answer: object, name: str, *, is_one: bool) -> object:
    if isinstance(answer, Mapping):
        return answer.get(name)
    if is_one and not hasattr(answer, name):
        return answer
    return getattr(answer, name, None)


def _make_plain(value: Any) -> object:
    """A value as polars can keep it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value.value if isinstance(value, enum.Enum) else value


# --- the prompt -----------------------------------------------------------------------------------------------

_FILLED_IN = re.compile(r"\{\{([^{}\n]+)\}\}")


class RowPrompt:
    """A prompt with names in double braces, to be filled in for each row."""

    def __init__(
        self,
        text: str,
        table: Table,
        variables: Mapping[str, object],
        name_code: NameCode = lambda code: code,
    ) -> None:
        """Look at all that is known before the run.

        A name is a column, else one of `variables`. Cells and variables are told as in any prompt (`tell_text`). Raises
        ArgumentInvalid for a name that is neither, for a value without a text, and for a prompt that names no column: all
        rows would be asked the same.
        """
        self.text, self._name_code = text, name_code
        self._named = {match[1]: _read_names(match[1]) for match in _FILLED_IN.finditer(text)}
        """What may be meant, by the text in double braces."""
        self._texts = {
            name: self._tell(name, value) for name, value in variables.items() if self._names(name)
        }
        self.first: dict[str, Any] | None = None
        """The first row; None where there is none."""
        for number, row in enumerate(table.read_ahead()):
            self.first = row if number == 0 else self.first
            if missing := self._find_missing(row):
                where = "" if number == 0 else f" in row {number}"
                raise ArgumentInvalid(f"{_explain(missing, row, variables)}{where}")
            if doubled := [
                name for name in row if (table.columns or ()).count(name) > 1 and self._names(name)
            ]:
                raise ArgumentInvalid(
                    f"{{{{{doubled[0]}}}}} is the name of more than one column: rename them"
                )
            if number == 0 and not any(self._names(name) for name in row):
                columns = list_some([f"{{{{{name}}}}}" for name in row], 8)
                raise ArgumentInvalid(
                    f"the prompt names no column, so that all rows would be asked the same: write {columns}"
                )

    def _names(self, name: str) -> bool:
        return any(name in names for names in self._named.values())

    def _find_missing(self, row: Mapping[str, Any]) -> str:
        """The first name that stands for nothing, or ""."""
        for names in self._named.values():
            if not any(name in row or name in self._texts for name in names) and names[-1].isidentifier():
                return names[-1]
        return ""

    def fill(self, row: Mapping[str, Any]) -> str:
        """The prompt of one row; what a cell contains is not looked at again.

        Raises ArgumentInvalid for a row without a column, and for a cell without a text.
        """
        if missing := self._find_missing(row):
            raise ArgumentInvalid(f"the row has no {missing!r}")

        def text_of(match: re.Match[str]) -> str:
            for name in self._named[match[1]]:
                if name in row:
                    return self._tell(name, row[name])
                if name in self._texts:
                    return self._texts[name]
            return match[0]

        return _FILLED_IN.sub(text_of, self.text)

    def _tell(self, name: str, value: object) -> str:
        return tell_text(Named(name, value), self._name_code)


def _read_names(typed: str) -> tuple[str, ...]:
    """What may be meant by the text in double braces: as typed, without blanks around it, as Python reads it."""
    bare = typed.strip()
    return typed, bare, unicodedata.normalize("NFKC", bare)


def _explain(missing: str, row: Mapping[str, Any], variables: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(missing, [*row, *variables], n=1)
    hint = f"did you mean {{{{{near[0]}}}}}?" if near else f"the columns are {list_some(list(row), 12)}"
    return f"{{{{{missing}}}}} is neither a column nor a variable; {hint}"
