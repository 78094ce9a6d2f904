"""Tables and arrays of pandas, polars and NumPy as bounded text. None of them is imported: a value of theirs brings it along.

A table is its shape, its columns with their types and how many of their values are missing, and its first rows as CSV.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from .foreign import Raised, attempt

NO_SCALAR = object()
_ROWS = 10  # first rows of a table that does not fit
_ALL_ROWS = 50  # a table with no more rows is shown whole if it fits
_COLUMNS = 40
_MOST_COUNTED = 10_000_000  # values that are looked at for missing ones
_SMALL_ARRAY = 1_000  # values of an array that are given whole


def plain_scalar(value: Any) -> Any:
    """Plain data for a NumPy or pandas scalar, or NO_SCALAR."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if pandas is not None and (value is pandas.NaT or value is pandas.NA):
        return None
    if numpy is None or not isinstance(value, numpy.generic):
        return NO_SCALAR
    if isinstance(value, numpy.floating):
        return float(str(value))  # 0.1 for float32(0.1), where item() gives 0.10000000149011612
    return value.item() if isinstance(value, (numpy.bool_, numpy.integer, numpy.str_)) else str(value)


def describe_table(value: Any, limit: int) -> tuple[str, int] | None:
    """(text, characters that the whole would have) for a table or an array; None for anything else."""
    pandas, polars, numpy = (sys.modules.get(name) for name in ("pandas", "polars", "numpy"))
    kind = type(value).__name__
    if pandas is not None:
        if type(value).__module__ == "pandas.io.formats.style":
            value, kind = value.data, "DataFrame"  # a Styler: how it looks is for people
        if isinstance(value, pandas.Index):
            value = value.to_frame(index=False)
        elif isinstance(value, pandas.Series):
            value = value.to_frame()
        if isinstance(value, pandas.DataFrame):
            part = value.iloc[:, :_COLUMNS]
            return _describe(
                kind, value, part, limit, lambda: part.isna().sum(), lambda count: part.iloc[:count].to_csv()
            )
    if polars is not None and hasattr(polars, "DataFrame"):
        if isinstance(value, polars.Series):
            value = value.to_frame()
        if isinstance(value, polars.DataFrame):
            part = value[:, :_COLUMNS]
            return _describe(
                kind,
                value,
                part,
                limit,
                lambda: part.null_count().row(0),
                lambda count: part[:count].write_csv(),
            )
    return _describe_array(value) if numpy is not None and isinstance(value, numpy.ndarray) else None


def _describe(
    kind: str,
    table: Any,
    part: Any,
    limit: int,
    count_missing: Callable[[], Iterable[int]],
    write: Callable[[int], str],
) -> tuple[str, int]:
    """A table by its first columns (`part`): as many first rows as fit, and what is left out."""
    rows, width = table.shape
    shown = part.shape[1]
    counts = list(count_missing()) if rows * shown <= _MOST_COUNTED else [0] * shown
    columns = [
        f"{name} ({dtype}{f', {count:,} missing' if count else ''})"
        for name, dtype, count in zip(part.columns, part.dtypes, counts, strict=True)
    ]
    head = f"{kind}: {rows:,} rows × {width:,} columns\ncolumns: {', '.join(columns) or 'none'}"
    head += f" and {width - shown:,} more" if width > shown else ""
    head += "" if rows * shown <= _MOST_COUNTED else " (missing values were not counted)"
    count = rows if rows <= _ALL_ROWS else _ROWS
    while True:
        body, form = attempt(write, count), "CSV"
        if isinstance(body, Raised):  # values that CSV has no form for
            body, form = attempt(lambda: repr(part.head(count))), "text"  # noqa: B023 - called here
        if isinstance(body, Raised):
            body = f"(not to be written: {type(body.error).__name__})"
        text = f"{head}\n{'' if count == rows else f'first {count:,} of {rows:,} rows, '}as {form}:\n{body}".rstrip(
            "\n"
        )
        if count < rows or shown < width:
            text += "\nTo see other rows or columns, ask for them: by row numbers, column names, a filter or a summary."
        if len(text) <= limit or count <= 1:
            return text, len(text) + len(body) * (rows - count) // max(count, 1)
        count = min(_ROWS, count // 2)


def _describe_array(array: Any) -> tuple[str, int] | None:
    numpy = sys.modules["numpy"]
    if array.ndim == 0:
        return None if array.dtype.hasobject else (str(array.item()), len(str(array.item())))
    unknown = array.size - int(numpy.isfinite(array).sum()) if array.dtype.kind in "fc" else 0
    text = f"array of shape {array.shape}, dtype {array.dtype}{f', {unknown:,} not finite' if unknown else ''}:\n"
    with numpy.printoptions(threshold=_SMALL_ARRAY, edgeitems=5, linewidth=120):
        text += numpy.array2string(array, separator=", ")
    if array.size <= _SMALL_ARRAY:
        return text, len(text)
    text += f"\nOf {array.size:,} values the corners are shown; to see others, ask for a smaller part of the array."
    return text, len(text) * max(2, array.size // _SMALL_ARRAY)
