"""Turn the arguments that a model sent into the typed values that the function gets, or into one message with all faults.

This takes two steps: `parse_arguments` makes a JSON object of the text, `Arguments.read` validates it against the
signature. The time for each step is in proportion to the size of the arguments, and `core/text` has a bound for that size.

A fault is corrected only if the arguments can have no other meaning: an empty text for no arguments, JSON sent as a JSON
string (inside the arguments only where the declared type takes no text), "500" for an int, "false" for a bool, "null" where
null is allowed. Any other fault is told to the model. So is a number for a text parameter, since its spelling (020, 1.50) is
lost.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from ..events import is_same_json, thaw
from ..execution import MISSING, Raised, attempt_call, describe_error
from ..text import DEEPEST, LONGEST_ARGUMENTS, MOST_VALUES, list_some
from .messages import (
    WANTS_CONTAINER,
    InvalidArguments,
    explain_problems,
    find_steps,
    name_json_kind,
    shorten_json,
    write_path,
)
from .preview import JsonObject, check_edit, holds_note, is_plain, preview
from .schema import find_default_json
from .signature import Parameter

_ESCAPED = re.compile(r"\\.", re.DOTALL)
_TOO_DEEP = f"arguments are nested more than {DEEPEST} levels deep"
_TOO_MANY = f"arguments hold more than {MOST_VALUES:,} values; send less in one call"
_TOO_LONG = f"arguments have more than {LONGEST_ARGUMENTS:,} characters; send less in one call"


class Argument(NamedTuple):
    """One argument of one tool call: its value, and the JSON that a person sees of this value."""

    parameter: Parameter
    value: object
    passed: bool
    """True if the function is called with this value. If False, the function's own default applies."""
    sent: object
    """The JSON that the model sent for it, or MISSING."""
    shown: object
    """The JSON to show and to keep; MISSING for a default without a JSON form, which can be neither shown nor edited."""

    @property
    def has_changed(self) -> bool:
        """True if the value has changed since it was shown: a validator may return an object that other code can change."""
        if self.shown is MISSING or is_plain(self.value):
            return False
        return not is_same_json(preview(self.value, self.sent), self.shown)


ArgumentsByKey: TypeAlias = Mapping[str, Argument]
"""The arguments of a tool call, by their names in the schema."""


def list_shown(arguments: ArgumentsByKey) -> JsonObject:
    """Return the arguments of a call that a person sees: JSON by the schema's names, with the defaults that apply."""
    return {key: one.shown for key, one in arguments.items() if one.shown is not MISSING}


class ArgumentReader(Protocol):
    """Reads the arguments of one tool's calls, by a function's signature or by a given schema."""

    def read(self, raw: object) -> ArgumentsByKey:
        """Validate the arguments that the model sent. Raises InvalidArguments."""

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """Validate a person's edit of `arguments`; returns `arguments` itself if nothing was changed. Raises InvalidArguments."""

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments as the function takes them: (the positional ones, the ones by name)."""


@dataclass(frozen=True)
class JsonArguments:
    """Reads the arguments of a tool that takes JSON instead of typed values. All arguments are one mapping."""

    tool: str

    def read(self, raw: object) -> ArgumentsByKey:
        """Check the arguments that the model sent, as JSON. Raises InvalidArguments."""
        given = self.check(parse_arguments(raw, self.tool))
        return {key: self._make(key, value) for key, value in given.items()}

    def check(self, given: JsonObject) -> JsonObject:
        """Return the accepted arguments: here, all. A subclass may raise InvalidArguments."""
        return given

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """Check a person's edit of `arguments`; returns `arguments` itself if nothing was changed. Raises InvalidArguments."""
        if is_same_json(dict(edited), {key: one.value for key, one in arguments.items()}):
            return arguments
        return self.read(dict(edited))

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[JsonObject], JsonObject]:
        """Return all arguments as one positional mapping, since a name may be any text."""
        return ({key: one.value for key, one in arguments.items()},), {}

    def _make(self, key: str, value: object) -> Argument:
        shown = copy.deepcopy(value)
        return Argument(Parameter(key, key, object, "", positional=False), value, True, shown, shown)


@dataclass(frozen=True)
class Arguments:
    """Reads the arguments of one tool's calls, by the function's signature."""

    tool: str
    parameters: Sequence[Parameter]
    adapter: TypeAdapter[JsonObject]
    """Takes JSON by the schema's names; gives typed values by the function's own names."""

    def read(self, raw: object) -> ArgumentsByKey:
        """Return typed values for `raw`, the arguments as the model sent them: text, None or a mapping.

        Raises InvalidArguments.
        """
        return self._make(parse_arguments(raw, self.tool), {})

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """Return the arguments after a person's edit. Unedited arguments keep their values; the others are validated again.

        Returns `arguments` itself if nothing was changed. Raises InvalidArguments, also if the effect of the edit would be
        another one than the edit shows.
        """
        shown = list_shown(arguments)
        if is_same_json(dict(edited), shown):
            return arguments
        untouched = {
            key: arguments[key] for key in shown if key in edited and is_same_json(edited[key], shown[key])
        }
        given = parse_arguments(edited, self.tool)
        for key, value in given.items():
            if key not in untouched and holds_note(value):
                raise self._not_run(
                    f"{shorten_json(value)}: a hidden value is kept only in an argument that you do not change; type it again"
                )
        sent = {key: untouched[key].sent if key in untouched else value for key, value in given.items()}
        made = self._make({key: value for key, value in sent.items() if value is not MISSING}, untouched)
        try:
            check_edit(list_shown(made), edited, shown)
        except InvalidArguments as error:
            raise self._not_run(error) from None
        return arguments if is_same_json(list_shown(made), shown) and not holds_note(shown) else made

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments as the function takes them: (the positional ones, the ones by name)."""
        args: list[object] = []
        kwargs: dict[str, object] = {}
        for one in arguments.values():
            if one.parameter.positional:
                args.append(one.value)
            elif one.passed:
                kwargs[one.parameter.name] = one.value
        return tuple(args), kwargs

    def _not_run(self, problem: object) -> InvalidArguments:
        return InvalidArguments(f"{problem}; {self.tool} was not run")

    def _make(self, given: JsonObject, untouched: ArgumentsByKey) -> ArgumentsByKey:
        """Make the arguments of a call from JSON by the schema's names or by the names that the person wrote (`own_key`)."""
        for one in self.parameters:
            if one.own_key and one.own_key in given and one.key not in given:
                given[one.key] = given.pop(one.own_key)
        values = self._validate(given)
        made: dict[str, Argument] = {}
        for parameter in self.parameters:
            key, value = parameter.key, values[parameter.name]
            sent = given.get(key, MISSING)
            if key in untouched:
                made[key] = untouched[key]
            elif value is MISSING:
                made[key] = _take_default(parameter)
            else:
                made[key] = Argument(parameter, value, True, sent, preview(value, sent))
        return made

    def _validate(self, given: JsonObject) -> JsonObject:
        """Return the values by the function's own names. JSON texts in `given` may be decoded, in place (`_decode_texts`)."""
        values = self._check(given)
        if isinstance(values, ValidationError) and _decode_texts(given, values.errors(include_url=False)):
            values = self._check(given)
        if not isinstance(values, ValidationError):
            return values
        problems = values.errors(include_url=False)
        keys = [parameter.key for parameter in self.parameters]
        raise InvalidArguments(explain_problems(self.tool, given, problems, keys))

    def _check(self, given: JsonObject) -> JsonObject | ValidationError:
        # As JSON: so a strict model takes a date's text, and an array for a tuple.
        validate: Callable[[bytes], JsonObject] = self.adapter.validator.validate_json
        values = attempt_call(validate, to_json(given))
        if isinstance(values, Raised):
            if isinstance(values.error, ValidationError):
                return values.error
            # Raised by a validator of the person's own types.
            told = f"invalid arguments, {self.tool} was not run: {describe_error(values.error, 500)}"
            raise InvalidArguments(told) from values.error
        return values


def _take_default(parameter: Parameter) -> Argument:
    """Return the default of a parameter for one call. It is a copy if the call could change it for later calls."""
    value, passed = parameter.default, False
    if is_plain(value):
        return Argument(parameter, value, passed, MISSING, value)
    if parameter.field is not None:
        value, passed = parameter.field.get_default(call_default_factory=True), True
    else:
        copied = attempt_call(_copy_default, value)  # copying fails for a lock, a file, a connection in it
        if not isinstance(copied, Raised) and copied is not value:
            value, passed = copied, True
    is_shown = is_plain(value) or find_default_json(parameter) is not MISSING
    return Argument(parameter, value, passed, MISSING, preview(value) if is_shown else MISSING)


def _copy_default(value: object) -> object:
    """Return a copy of a default that a call could change; any other value itself."""
    changes = isinstance(value, (list, dict, set, bytearray, BaseModel)) or hasattr(
        value, "__dataclass_fields__"
    )
    return copy.deepcopy(value) if changes else value


def _decode_texts(given: JsonObject, problems: Sequence[ErrorDetails]) -> bool:
    """Decode, in place, each JSON text that stands where a list or an object must be. Return whether there was one."""
    changed, count = False, itertools.count()
    tried: set[tuple[int, int | str]] = set()
    for problem in problems:
        text = problem["input"]
        if (
            problem["type"] not in WANTS_CONTAINER
            or type(text) is not str
            or text.lstrip()[:1] not in ("[", "{")
        ):
            continue
        for holder, key in find_steps(given, problem["loc"])[-1:]:
            if holder[key] != text or (id(holder), key) in tried:
                continue
            tried.add((id(holder), key))  # only once: each member of a union may have refused it
            with contextlib.suppress(InvalidArguments):
                holder[key] = parse_part(text, count)
                changed = True
    return changed


# --- the text that was sent ------------------------------------------------------------------------------------


class SentArguments:
    """The arguments of a call as the model sent them. They are parsed once; `parse_arguments` gives copies."""

    def __init__(self, raw: object) -> None:
        self.raw = raw
        self.parsed: JsonObject = {}
        """The JSON object, never to be changed; {} if the model sent none."""
        self.problem = ""
        """Why `raw` is no JSON object; "" if it is one."""
        self.is_strict = False
        """True if `raw` is a JSON object as text that every JSON parser accepts."""
        try:
            self.parsed, self.is_strict = _decode(raw)
        except InvalidArguments as error:
            self.problem = str(error)

    def stored(self) -> object:
        """Return the arguments for the conversation: `raw` if it is strict, else the JSON of what was read from it."""
        return self.raw if self.is_strict else json.dumps(self.parsed, ensure_ascii=False)


def parse_arguments(raw: object, tool: str = "") -> JsonObject:
    """Return the JSON object that a model sent as the arguments of a call. It is a copy that nobody shares.

    None, blank text, `null` and `""` mean no arguments, {}. An object inside a JSON string is taken out of the string.
    Raises InvalidArguments for repeated names, text after the object, NaN, numbers too large and broken Unicode, since they
    have two meanings or none, and for too many characters or values. A SentArguments is copied, not parsed again. With
    `tool`, the error says that the tool of this name was not run.
    """
    sent = raw if isinstance(raw, SentArguments) else SentArguments(raw)
    if sent.problem:
        raise InvalidArguments(f"{sent.problem}; {tool} was not run" if tool else sent.problem)
    copied: JsonObject = thaw(sent.parsed)
    return copied


def parse_part(text: str, count: Iterator[int]) -> object:
    """Read a JSON text inside the arguments by the rules of `parse_arguments`. `count` counts the values of all such texts.

    Raises InvalidArguments.
    """
    return _copy(_load(text)[0], (), count)


def _decode(raw: object) -> tuple[JsonObject, bool]:
    """Return (the object that was sent, whether `raw` is its strict JSON, which every JSON parser accepts)."""
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
            break  # a JSON string without JSON inside is just a string
    made = _copy(value, (), itertools.count()) if isinstance(value, (dict, Mapping)) else value
    if isinstance(made, dict):
        return made, is_strict
    raise InvalidArguments(
        f"arguments must be a JSON object, got {name_json_kind(value)}: {shorten_json(value)}"
    )


_BEFORE_VALUES = ",[{"


def _load(text: str) -> tuple[object, bool]:
    """Return (the value of a JSON text, whether the text is strict JSON). A raw line break in a string is accepted, since
    many models send one.
    """
    # There are more values than commas, and than brackets, outside of strings. So too many are noticed before they are made.
    if len(text) > MOST_VALUES and max(map(text.count, _BEFORE_VALUES)) > MOST_VALUES:
        unquoted = "".join(_ESCAPED.sub("", text).split('"')[::2])
        if max(map(unquoted.count, _BEFORE_VALUES)) > MOST_VALUES:
            levels = itertools.accumulate((c in "[{") - (c in "]}") for c in unquoted[:MOST_VALUES])
            raise InvalidArguments(_TOO_DEEP if max(levels) > DEEPEST else _TOO_MANY)
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
    """Check JSON data and return a copy, which no other code can change later. `count` counts the values."""
    if len(path) > DEEPEST:
        raise InvalidArguments(_TOO_DEEP)
    if next(count) > MOST_VALUES:
        raise InvalidArguments(_TOO_MANY)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        if not value.isascii():
            _check_text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArguments(
                f"{write_path(path)}: expected a finite number, got {value} (or one too large)"
            )
    elif isinstance(value, (list, tuple)):
        return [_copy(item, (*path, index), count) for index, item in enumerate(value)]
    elif isinstance(value, (dict, Mapping)):
        entries: JsonObject = {}
        for key, item in value.items():
            if not (name := str(key)).isascii():
                _check_text(name, path)
            entries[name] = _copy(item, (*path, name), count)
        return entries
    return value


def _check_text(text: str, path: tuple[int | str, ...]) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        sent = shorten_json(text)
        raise InvalidArguments(
            f"{write_path(path)}: half of a surrogate pair is no character, got {sent}"
        ) from None
