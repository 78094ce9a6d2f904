"""NumPy, pandas and Polars values in words and numbers. None of them is imported: a value of theirs brings it along."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

NO_SCALAR = object()
_ROWS = 10  # first rows of a table that does not fit
_ALL_ROWS = 50  # a table with no more rows is shown whole if it fits
_COLUMNS = 40
_SMALL_ARRAY = 1_000  # values of an array that are given whole
_HOW = "To see other rows or columns, ask for them: by row numbers, column names, a filter or a summary."


def scalar(value: Any) -> Any:
    """Plain data for a NumPy or pandas scalar, or NO_SCALAR."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if pandas is not None and (value is pandas.NaT or value is pandas.NA):
        return None
    if numpy is None or not isinstance(value, numpy.generic):
        return NO_SCALAR
    if isinstance(value, numpy.floating):
        return float(str(value))  # 0.1 for float32(0.1), where item() gives 0.10000000149011612
    if isinstance(
        value, (numpy.datetime64, numpy.timedelta64, numpy.complexfloating, numpy.void, numpy.bytes_)
    ):
        return str(value)
    return value.item()


def table(value: Any, limit: int) -> tuple[str, int] | None:
    """(text, characters that the whole would have) for a table or an array; None for anything else."""
    pandas, polars, numpy = (sys.modules.get(name) for name in ("pandas", "polars", "numpy"))
    if pandas is not None:
        if isinstance(value, pandas.DataFrame):
            return _frame(value, limit)
        if isinstance(value, (pandas.Series, pandas.Index)):
            return _series(value, limit)
        if type(value).__module__ == "pandas.io.formats.style" and isinstance(value.data, pandas.DataFrame):
            return _frame(value.data, limit)  # a Styler: how it looks is for people
    if polars is not None and hasattr(polars, "DataFrame") and isinstance(value, polars.DataFrame):
        return _polars(value, limit)
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _array(value)
    return None


def _frame(frame: Any, limit: int) -> tuple[str, int]:
    rows, width = frame.shape
    names = [f"{name} ({dtype})" for name, dtype in itertools.islice(frame.dtypes.items(), _COLUMNS)]
    head = [f"DataFrame: {rows:,} rows × {width:,} columns", f"columns: {_listed(names, width) or 'none'}"]
    part = frame.iloc[:, :_COLUMNS]
    return _rows(head, rows, width - _COLUMNS, limit, lambda count: str(part.iloc[:count].to_csv()))


def _series(series: Any, limit: int) -> tuple[str, int]:
    name = "" if series.name is None else f" {series.name!r}"
    head = [f"{type(series).__name__}{name}: {len(series):,} values, dtype {series.dtype}"]
    if hasattr(series, "to_csv"):
        return _rows(head, len(series), 0, limit, lambda count: str(series.iloc[:count].to_csv()))
    return _rows(head, len(series), 0, limit, lambda count: "".join(f"{item}\n" for item in series[:count]))


def _polars(frame: Any, limit: int) -> tuple[str, int]:
    names = [f"{name} ({dtype})" for name, dtype in itertools.islice(frame.schema.items(), _COLUMNS)]
    head = [
        f"DataFrame: {frame.height:,} rows × {frame.width:,} columns",
        f"columns: {_listed(names, frame.width)}",
    ]
    part = frame[:, :_COLUMNS]
    return _rows(
        head, frame.height, frame.width - _COLUMNS, limit, lambda count: str(part.head(count).write_csv())
    )


def _listed(names: list[str], width: int) -> str:
    return ", ".join(names) + (f" and {width - len(names):,} more" if width > len(names) else "")


def _rows(head: list[str], rows: int, hidden: int, limit: int, csv: Callable[[int], str]) -> tuple[str, int]:
    """The head, then as many first rows as CSV as fit, and how to get the rest."""
    begin = "\n".join(head)
    count = rows if rows <= _ALL_ROWS else _ROWS
    while True:
        body = csv(count)
        whole = count == rows
        title = "as CSV" if whole else f"first {count:,} of {rows:,} rows, as CSV"
        text = f"{begin}\n{title}:\n{body}".rstrip("\n")
        if not whole or hidden > 0:
            text += f"\n{_HOW}"
        if len(text) <= limit or count <= 1:
            break
        count = min(_ROWS, count // 2)
    length = len(text) if whole else len(text) + len(body) * (rows - count) // max(count, 1)
    return text, length


def _array(array: Any) -> tuple[str, int] | None:
    numpy = sys.modules["numpy"]
    if array.ndim == 0:
        return None if array.dtype.hasobject else (str(array.item()), len(str(array.item())))
    head = f"array of shape {array.shape}, dtype {array.dtype}"
    with numpy.printoptions(threshold=_SMALL_ARRAY, edgeitems=5, linewidth=120):
        body = numpy.array2string(array, separator=", ")
    if array.size <= _SMALL_ARRAY:
        text = f"{head}:\n{body}"
        return text, len(text)
    numbers = ""
    if array.dtype.kind in "iuf":
        valid = array[numpy.isfinite(array)] if array.dtype.kind == "f" else array
        if valid.size:
            numbers = f", min {valid.min()}, max {valid.max()}, mean {float(valid.mean()):.6g}"
        if missing := array.size - valid.size:
            numbers += f", {missing:,} not finite"
    text = f"{head}{numbers}:\n{body}\nTo see other values, ask for a smaller part of the array."
    return text, max(len(text) + 1, len(body) * (array.size // _SMALL_ARRAY))
