"""Pydantic's errors -> one message that tells a model which argument is wrong, what is expected and what it sent."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from ..execution import Raised, attempt_call, shorten_repr


class InvalidArguments(ValueError):
    """Arguments that the function cannot be called with. `str()` is the short message for the model."""


_SHOWN = 80  # characters of an input that are repeated to the model
_MOST = 10  # problems in one message
_MOST_TEXTS = 50  # of one place: what each member of a union expects
_KEY_MARK = "[key]"
_LINE = 500  # characters of one problem: a made-up name or a list of choices may be of any length

_EXPECTED: Mapping[str, str] = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "an integer with fewer digits",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a string",
    "bytes_type": "a string",
    "path_type": "a string",
    "list_type": "an array",
    "tuple_type": "an array",
    "set_type": "an array",
    "frozen_set_type": "an array",
    "iterable_type": "an array",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
    "arguments_type": "an array",
    "named_tuple_type": "an array",
    "complex_type": "a number or a string such as 1+2j",
    "complex_str_parsing": "a number or a string such as 1+2j",
    "deque_type": "an array",
    "ordered_dict_type": "an object",
    "counter_type": "an object",
    "sequence_str": "an array",
    "none_required": "null",
    "decimal_type": "a number or a string with one",
    "decimal_parsing": "a number or a string with one",
    "uuid_type": "a string with a UUID",
    "uuid_parsing": "a string with a UUID",
    "date_type": "a string with a date such as 2026-01-31",
    "date_parsing": "a string with a date such as 2026-01-31",
    "date_from_datetime_parsing": "a string with a date such as 2026-01-31",
    "date_from_datetime_inexact": "a date without a time",
    "datetime_type": "a string with a date and time such as 2026-01-31T12:00:00",
    "datetime_parsing": "a string with a date and time such as 2026-01-31T12:00:00",
    "datetime_from_date_parsing": "a string with a date and time such as 2026-01-31T12:00:00",
    "time_type": "a string with a time such as 12:00:00",
    "time_parsing": "a string with a time such as 12:00:00",
    "time_delta_type": "a string with a duration such as P1DT2H",
    "time_delta_parsing": "a string with a duration such as P1DT2H",
}
_MISSING = (
    "missing",
    "missing_argument",
    "missing_keyword_only_argument",
    "missing_positional_only_argument",
)


def _shorten_beginning(begin: re.Match[str]) -> str:
    return "must " if begin[1] == "Input should" else ""


def explain_problems(
    tool: str, given: Mapping[str, Any], problems: Sequence[ErrorDetails], known: Sequence[str]
) -> str:
    """The message for the model: a line for each wrong argument.

    `problems` are pydantic's `ValidationError.errors()` for `given`; `known` are the parameters' schema names.
    """
    found: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for problem in problems:
        found.setdefault(_find_place(given, problem), []).append(problem)
    lines: list[str] = []
    for place, of_place in itertools.islice(found.items(), _MOST):
        path = _make_path(place, of_place[0])
        texts = [_explain_one(problem, path, given, known) for problem in of_place[:_MOST_TEXTS]]
        lines.append(_cut_line(f"- {path}: {_join_texts(texts)}{_tell_input(texts, of_place[-1]['input'])}"))
    if len(found) > _MOST:
        lines.append(f"- and {len(found) - _MOST} more")
    return "\n".join([f"invalid arguments, {tool} was not run:", *lines])


def _cut_line(text: str) -> str:
    return text if len(text) <= _LINE else text[: _LINE - 1] + "…"


def find_steps(given: Any, location: Sequence[int | str]) -> list[tuple[Any, int | str]]:
    """The containers and keys on the way to a pydantic location; parts that name a union's member are no keys."""
    way: list[tuple[Any, int | str]] = []
    current = given
    for part in location:
        in_object = isinstance(current, dict) and part in current
        in_list = isinstance(current, list) and isinstance(part, int) and part < len(current)
        if in_object or in_list:
            way.append((current, part))
            current = current[part]
    return way


def _find_place(given: Any, problem: ErrorDetails) -> tuple[int | str, ...]:
    """The keys of what is wrong, with pydantic's own mark for an error in a key of a dict at their end."""
    location = problem["loc"]
    keys = [key for _, key in find_steps(given, location)]
    if problem["type"] in _MISSING or (location and location[-1] == _KEY_MARK):
        keys.append(location[-1])
    return tuple(keys)


def _make_path(place: Sequence[int | str], problem: ErrorDetails) -> str:
    """`items[0].name`, from what `_find_place` gives."""
    if place and place[-1] == _KEY_MARK and problem["loc"][-1] == _KEY_MARK:
        return f"{write_path(place[:-1])} (the key)"
    return write_path(place)


def write_path(keys: Sequence[int | str]) -> str:
    """`items[0].name`; "arguments" for the whole."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key[:_LINE]}" for key in keys)
    return text.removeprefix(".") or "arguments"


def _explain_one(problem: ErrorDetails, path: str, given: Mapping[str, Any], known: Sequence[str]) -> str:
    kind = problem["type"]
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
    message = str(problem["msg"])
    if kind in ("enum", "literal_error"):
        return f"expected {message.removeprefix('Input should be ')}"
    return re.sub(r"^(Input should|Value error,|Assertion failed,) ?", _shorten_beginning, message)


def _join_texts(texts: Sequence[str]) -> str:
    """What each member of a union expects, as one phrase."""
    distinct = list(dict.fromkeys(texts))
    if all(text.startswith("expected ") for text in distinct):
        return "expected " + " or ".join(text.removeprefix("expected ") for text in distinct)
    return "; ".join(distinct)


def _tell_input(texts: Sequence[str], value: Any) -> str:
    silent = all(text.startswith(("missing", "no such argument", "there is no")) for text in texts)
    return "" if silent else f", got {shorten_json(value)}"


def name_json_kind(value: object) -> str:
    """What JSON calls the value."""
    for types, name in ((bool, "boolean"), (str, "string"), (int, "number"), (float, "number")):
        if isinstance(value, types):
            return name
    return type(value).__name__


def shorten_json(value: object) -> str:
    """The value as JSON, at most `_SHOWN` characters."""
    if isinstance(value, str):
        value = value[: _SHOWN + 1]
    parts = attempt_call(_write_beginning, value)
    text = shorten_repr(value) if isinstance(parts, Raised) else parts
    text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair cannot be sent back
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=shorten_repr)


def _write_beginning(value: object) -> str:
    """The beginning of the value's JSON: no more of it is made than is shown."""
    text = ""
    for part in _ENCODER.iterencode(value):
        text += part
        if len(text) > _SHOWN:
            break
    return text
