"""Makes one message for the model from pydantic's errors.

The message says which arguments are wrong, what is expected and what was sent.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pydantic_core import ErrorDetails

from ..execution import Raised, attempt_call, shorten_repr
from ..text import shorten


class InvalidArguments(ValueError):
    """The function cannot be called with these arguments. `str(error)` is the short message for the model."""


JsonContainer: TypeAlias = Any
"""A list or a dict in JSON data. Its items are read or replaced by index or by key."""
_SHOWN = 80  # the most characters of an input that are repeated to the model
_MOST = 10  # the most problems in one message
_MOST_TEXTS = 50  # the most texts for one place; each member of a union may add one
_LINE = 500  # the most characters for one problem: an invented name or a list of choices may be of any length
_KEY_MARK = "[key]"
"""Pydantic puts this mark at the end of an error's location if the error is in a key of a dict."""

_DATE, _MOMENT = (
    "a string with a date such as 2026-01-31",
    "a string with a date and time such as 2026-01-31T12:00:00",
)
_EXPECTED = {
    kind: expected
    for expected, kinds in {
        "an integer": "int_type int_parsing int_from_float",
        "an integer with fewer digits": "int_parsing_size",
        "a number": "float_type float_parsing",
        "a finite number": "finite_number",
        "true or false": "bool_type bool_parsing",
        "a string": "string_type bytes_type path_type",
        "an array": "list_type tuple_type set_type frozen_set_type iterable_type arguments_type named_tuple_type "
        "deque_type sequence_str",
        "an object": "dict_type mapping_type model_type model_attributes_type dataclass_type ordered_dict_type counter_type",
        "a number or a string such as 1+2j": "complex_type complex_str_parsing",
        "null": "none_required",
        "a number or a string with one": "decimal_type decimal_parsing",
        "a string with a UUID": "uuid_type uuid_parsing",
        _DATE: "date_type date_parsing date_from_datetime_parsing",
        "a date without a time": "date_from_datetime_inexact",
        _MOMENT: "datetime_type datetime_parsing datetime_from_date_parsing",
        "a string with a time such as 12:00:00": "time_type time_parsing",
        "a string with a duration such as P1DT2H": "time_delta_type time_delta_parsing",
    }.items()
    for kind in kinds.split()
}
"""Type of a pydantic error -> the value that is expected."""
WANTS_CONTAINER = frozenset(
    kind for kind, expected in _EXPECTED.items() if expected in ("an array", "an object")
)
"""Types of the pydantic errors for a value that must be a list or an object. Pydantic raises none of these errors for a text if
the parameter's type accepts text.
"""
_MISSING = (
    "missing",
    "missing_argument",
    "missing_keyword_only_argument",
    "missing_positional_only_argument",
)
_JSON_KINDS = {bool: "boolean", str: "string", int: "number", float: "number"}


def explain_problems(
    tool: str, given: Mapping[str, object], problems: Sequence[ErrorDetails], known: Sequence[str]
) -> str:
    """Return the message for the model, with a line for each wrong argument.

    `problems` are pydantic's `ValidationError.errors()` for `given`; `known` are the parameters' names in the schema.
    """
    by_place: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for problem in problems:
        location = problem["loc"]
        keys = [key for _, key in find_steps(given, location)]
        if problem["type"] in _MISSING or (location and location[-1] == _KEY_MARK):
            keys.append(location[-1])
        by_place.setdefault(tuple(keys), []).append(problem)
    lines = [f"invalid arguments, {tool} was not run:"]
    for place, of_place in list(by_place.items())[:_MOST]:
        is_key = place[-1:] == of_place[0]["loc"][-1:] == (_KEY_MARK,)
        path = f"{write_path(place[:-1])} (the key)" if is_key else write_path(place)
        line = f"- {path}: {_explain_place(of_place, path, given, known)}"
        lines.append(shorten(line, _LINE))
    if len(by_place) > _MOST:
        lines.append(f"- and {len(by_place) - _MOST} more")
    return "\n".join(lines)


def find_steps(given: JsonContainer, location: Sequence[int | str]) -> list[tuple[JsonContainer, int | str]]:
    """Return each (container, key) on the path to a pydantic location. Parts of the location that name a member of a union are
    skipped.
    """
    steps: list[tuple[JsonContainer, int | str]] = []
    for part in location:
        is_index = isinstance(given, list) and isinstance(part, int) and part < len(given)
        if is_index or (isinstance(given, dict) and part in given):
            steps.append((given, part))
            given = given[part]
    return steps


def write_path(keys: Sequence[int | str]) -> str:
    """Return keys as a path such as `items[0].name`; "arguments" if there are no keys."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key[:_LINE]}" for key in keys)
    return text.removeprefix(".") or "arguments"


def _explain_place(
    problems: Sequence[ErrorDetails], path: str, given: Mapping[str, object], known: Sequence[str]
) -> str:
    """Return a text that says what is expected at one place, and what was sent. For a union, the text says what each member expects."""
    texts = list(dict.fromkeys(_explain_one(one, path, given, known) for one in problems[:_MOST_TEXTS]))
    if all(text.startswith("expected ") for text in texts):
        told = "expected " + " or ".join(text.removeprefix("expected ") for text in texts)
    else:
        told = "; ".join(texts)
    if all(text.startswith(("missing", "no such argument", "there is no")) for text in texts):
        return told
    return f"{told}, got {shorten_json(problems[-1]['input'])}"


def _explain_one(problem: ErrorDetails, path: str, given: Mapping[str, object], known: Sequence[str]) -> str:
    kind, message = problem["type"], str(problem["msg"])
    if kind in _MISSING:
        return "missing, and required"
    if kind == "extra_forbidden":
        return "there is no such field"
    if kind == "unexpected_keyword_argument":
        free = [name for name in known if name not in given]
        near = difflib.get_close_matches(path, free, 1) or difflib.get_close_matches(path, known, 1)
        if near:
            return f"no such argument; did you mean {near[0]}?"
        return f"no such argument; there {'are ' + ', '.join(known) if known else 'are none'}"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    if kind in ("enum", "literal_error"):
        return f"expected {message.removeprefix('Input should be ')}"
    message = re.sub(r"^(Value error|Assertion failed), ?", "", message)
    return re.sub(r"^Input should ?", "must ", message)


def name_json_kind(value: object) -> str:
    """Return JSON's name for the type of a value."""
    return _JSON_KINDS.get(type(value)) or type(value).__name__


def shorten_json(value: object) -> str:
    """Return the value as JSON, shortened to at most `_SHOWN` characters."""
    if isinstance(value, str):
        value = value[: _SHOWN + 1]
    written = attempt_call(_write_beginning, value)
    text = shorten_repr(value) if isinstance(written, Raised) else written
    text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair cannot be sent back
    return shorten(text, _SHOWN)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=shorten_repr)


def _write_beginning(value: object) -> str:
    """Return the beginning of the value's JSON. The rest of the JSON is not made."""
    text = ""
    for part in _ENCODER.iterencode(value):
        text += part
        if len(text) > _SHOWN:
            break
    return text
