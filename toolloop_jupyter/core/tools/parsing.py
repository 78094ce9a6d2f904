"""What a model sent as arguments -> a JSON object, read once, or the message that says why it is none.

Every step grows with the size of what was sent and not faster, and `bounds` says how much of it is taken.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ..text import DEEPEST, LONGEST_ARGUMENTS, MOST_VALUES, list_some
from .messages import InvalidArguments, name_json_kind, shorten_json, write_path

JsonObject: TypeAlias = dict[str, object]
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_TOO_DEEP = f"arguments are nested more than {DEEPEST} levels deep"
_TOO_MANY = f"arguments hold more than {MOST_VALUES:,} values; send less in one call"
_TOO_LONG = f"arguments have more than {LONGEST_ARGUMENTS:,} characters; send less in one call"


class SentArguments:
    """A call's arguments as the model sent them, parsed once; whoever needs them gets a copy by `parse_arguments`."""

    def __init__(self, raw: object) -> None:
        self.raw = raw
        self.parsed: JsonObject = {}
        """The JSON object, not to be changed; {} where it is none."""
        self.problem = ""
        """Why it is none."""
        self.is_strict = False
        """Whether `raw` is a JSON object as text that every reader of JSON takes."""
        try:
            self.parsed, self.is_strict = _decode(raw)
        except InvalidArguments as error:
            self.problem = str(error)

    def stored(self) -> object:
        """What a conversation keeps: `raw` where it is strict, else the JSON object that was read of it, or {}."""
        return self.raw if self.is_strict else json.dumps(self.parsed, ensure_ascii=False)


def parse_arguments(raw: object) -> JsonObject:
    """The JSON object that a model sent as a call's arguments; a private copy of it when it came as a mapping.

    None, blank text, `null` and `""` are no arguments: {}. An object sent as a JSON string is taken out of it.
    Duplicate keys, trailing text, NaN, numbers too large and broken Unicode raise InvalidArguments: two readings
    are possible, or none. So do too many characters or values. A SentArguments is copied, and not parsed again.
    """
    if not isinstance(raw, SentArguments):
        return _decode(raw)[0]
    if raw.problem:
        raise InvalidArguments(raw.problem)
    return copy.deepcopy(raw.parsed)


def parse_part(text: str, count: Iterator[int]) -> object:
    """What a JSON text within the arguments says, under the same rules. `count` counts the values of all such texts.

    Raises InvalidArguments.
    """
    return _copy(_load(text)[0], (), count)


def _decode(raw: object) -> tuple[JsonObject, bool]:
    """(the object that was sent, whether `raw` itself is strict JSON for it: text that every reader of JSON takes)."""
    value, is_strict = raw, False
    if isinstance(raw, (str, bytes, bytearray)) and len(raw) > LONGEST_ARGUMENTS:
        raise InvalidArguments(_TOO_LONG)
    for _ in range(3):
        if isinstance(value, (bytes, bytearray)):
            value = value.decode("utf-8", "replace")
        if value is None or (isinstance(value, str) and not value.strip()):
            return {}, False
        if not isinstance(value, str):
            break
        try:
            text, (value, is_strict) = value, _load(value)
            is_strict = is_strict and text is raw
        except InvalidArguments:
            if value is raw or isinstance(raw, (bytes, bytearray)):
                raise
            break  # a JSON string that holds no JSON in turn: it is just a string
    made = _copy(value, (), itertools.count()) if isinstance(value, Mapping) else value
    if isinstance(made, dict):
        return made, is_strict
    raise InvalidArguments(
        f"arguments must be a JSON object, got {name_json_kind(value)}: {shorten_json(value)}"
    )


def _load(text: str) -> tuple[object, bool]:
    """(what the JSON text says, whether it is strict): a line break inside a string is what many models send, and
    means just that.
    """
    # Commas outside of strings: there are more values than these, and only so many are built.
    if text.count(",") > MOST_VALUES:
        unquoted = "".join(_ESCAPED.sub("", text).split('"')[::2])
        if unquoted.count(",") > MOST_VALUES:
            raise InvalidArguments(_TOO_MANY)
    try:
        try:
            return _DECODER.decode(text), True
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Invalid control character"):
                raise
        return _LENIENT.decode(text), False
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            rest = shorten_json(text[error.pos :].strip())
            problem = f"arguments are not a single JSON object: after its end comes {rest}"
        else:
            near = shorten_json(text[max(0, error.pos - 30) : error.pos + 10])
            problem = f"arguments are not valid JSON: {error.msg} at character {error.pos}, near {near}"
    except RecursionError:
        problem = _TOO_DEEP
    except InvalidArguments:
        raise
    except ValueError:  # Python's limit on the digits of an int
        problem = "arguments hold an integer with more than 4300 digits"
    raise InvalidArguments(problem)


def _refuse_repeated(pairs: list[tuple[str, object]]) -> JsonObject:
    result = dict(pairs)
    if len(result) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        twice = sorted(name for name, count in counted.items() if count > 1)
        raise InvalidArguments(f"arguments have {list_some(map(shorten_json, twice))} more than once")
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_repeated)
_LENIENT = json.JSONDecoder(strict=False, object_pairs_hook=_refuse_repeated)


def _copy(value: object, path: tuple[int | str, ...], count: Iterator[int]) -> object:
    """A copy of JSON data, checked: no other call and no caller can change it later. `count` counts its values."""
    if len(path) > DEEPEST:
        raise InvalidArguments(_TOO_DEEP)
    if next(count) > MOST_VALUES:
        raise InvalidArguments(_TOO_MANY)
    if isinstance(value, Mapping):
        entries: JsonObject = {}
        for key, item in value.items():
            if not (name := str(key)).isascii():
                _check_text(name, path)
            entries[name] = _copy(item, (*path, name), count)
        return entries
    if isinstance(value, (list, tuple)):
        return [_copy(item, (*path, index), count) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArguments(
            f"{write_path(path)}: expected a finite number, got {value} (or one too large)"
        )
    if isinstance(value, str) and not value.isascii():
        _check_text(value, path)
    return value


def _check_text(text: str, path: tuple[int | str, ...]) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        sent = shorten_json(text)
        raise InvalidArguments(
            f"{write_path(path)}: half of a surrogate pair is no character, got {sent}"
        ) from None
