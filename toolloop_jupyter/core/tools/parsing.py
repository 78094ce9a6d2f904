"""What a model sent as arguments -> a JSON object, read once, or the message that says why it is none.

Every step grows with the size of what was sent and not faster, and `bounds` says how much of it is taken.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ..text import DEEPEST, LONGEST_ARGUMENTS, MOST_VALUES, list_some
from .messages import InvalidArguments, name_json_kind, shorten_json, write_path

JsonObject: TypeAlias = dict[str, Any]
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_TOO_DEEP = f"arguments are nested more than {DEEPEST} levels deep"
_TOO_MANY = f"arguments hold more than {MOST_VALUES:,} values; send less in one call"
_TOO_LONG = f"arguments have more than {LONGEST_ARGUMENTS:,} characters; send less in one call"


def parse_arguments(raw: object) -> JsonObject:
    """The JSON object that a model sent as a call's arguments; a private copy of it when it came as a mapping.

    None, blank text, `null` and `""` are no arguments: {}. An object sent as a JSON string is taken out of it.
    Duplicate keys, trailing text, NaN, numbers too large and broken Unicode raise InvalidArguments: two readings
    are possible, or none. So do too many characters or values. A SentArguments is copied, and not parsed again.
    """
    if isinstance(raw, SentArguments):
        raw = raw.parsed()
    value, _ = _decode(raw)
    return _copy_checked(value)


class SentArguments:
    """A call's arguments as the model sent them, parsed once; whoever needs them gets a copy by `parse_arguments`."""

    def __init__(self, raw: object) -> None:
        self.raw = raw
        self.is_strict = False
        """Whether `raw` is a JSON object as text that every reader of JSON takes."""
        self._parsed: JsonObject | InvalidArguments
        try:
            value, self.is_strict = _decode(raw)
            self._parsed = _copy_checked(value)
        except InvalidArguments as error:
            self._parsed, self.is_strict = error, False

    def parsed(self) -> JsonObject:
        """The JSON object, not to be changed. Raises InvalidArguments where it is none."""
        if isinstance(self._parsed, InvalidArguments):
            raise InvalidArguments(str(self._parsed))
        return self._parsed

    def stored(self) -> object:
        """What a conversation keeps: `raw` where it is strict, else the JSON object that was read of it, or {}."""
        if self.is_strict:
            return self.raw
        return (
            "{}"
            if isinstance(self._parsed, InvalidArguments)
            else json.dumps(self._parsed, ensure_ascii=False)
        )


def _decode(raw: object) -> tuple[Mapping[str, object], bool]:
    """(the object that was sent, whether `raw` itself is strict JSON for it)."""
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
    if not isinstance(value, Mapping):
        raise InvalidArguments(
            f"arguments must be a JSON object, got {name_json_kind(value)}: {shorten_json(value)}"
        )
    return value, is_strict


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
            raise InvalidArguments(
                f"arguments are not a single JSON object: after its end comes {rest}"
            ) from None
        near = shorten_json(text[max(0, error.pos - 30) : error.pos + 10])
        raise InvalidArguments(
            f"arguments are not valid JSON: {error.msg} at character {error.pos}, near {near}"
        ) from None
    except RecursionError:
        raise InvalidArguments(_TOO_DEEP) from None
    except InvalidArguments:
        raise
    except ValueError:  # Python's limit on the digits of an int
        raise InvalidArguments("arguments hold an integer with more than 4300 digits") from None


def _refuse_repeated(pairs: list[tuple[str, object]]) -> JsonObject:
    result = dict(pairs)
    if len(result) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        twice = sorted(name for name, count in counted.items() if count > 1)
        raise InvalidArguments(f"arguments have {list_some(map(shorten_json, twice))} more than once")
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_repeated)
_LENIENT = json.JSONDecoder(strict=False, object_pairs_hook=_refuse_repeated)


def parse_part(text: str, count: Iterator[int]) -> object:
    """What a JSON text within the arguments says, under the same rules. `count` counts the values of all such texts.

    Raises InvalidArguments.
    """
    return _copy(_load(text)[0], (), count)


def _copy_checked(value: Mapping[str, object]) -> JsonObject:
    copied: JsonObject = _copy(value, (), itertools.count())
    return copied


def _copy(value: object, path: tuple[int | str, ...], count: Iterator[int]) -> Any:
    """A copy of JSON data, checked: no other call and no caller can change it later. `count` counts its values."""
    if len(path) > DEEPEST:
        raise InvalidArguments(_TOO_DEEP)
    if next(count) > MOST_VALUES:
        raise InvalidArguments(_TOO_MANY)
    if isinstance(value, Mapping):
        return {
            _check_text(str(key), path): _copy(item, (*path, str(key)), count) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_copy(item, (*path, index), count) for index, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArguments(
            f"{write_path(path)}: expected a finite number, got {value} (or one too large)"
        )
    return _check_text(value, path) if isinstance(value, str) else value


def _check_text(text: str, path: tuple[int | str, ...]) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        sent = shorten_json(text)
        raise InvalidArguments(
            f"{write_path(path)}: half of a surrogate pair is no character, got {sent}"
        ) from None
    return text
