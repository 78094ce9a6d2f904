"""Turns the arguments that a model sent into the typed values that the function gets. If the arguments have faults, makes one
message for the model that names all of them.

There are two steps: `parse_arguments` reads the text as a JSON object, and `Arguments.read` validates this object against the
function's signature. The time of each step is in proportion to the size of the arguments. `core/text` limits this size.

A fault is corrected only if the arguments can have just one meaning. These faults are corrected:

- an empty text, which means that there are no arguments;
- the whole object inside a JSON string;
- a list or an object inside a JSON string, if the parameter's type does not accept text;
- the text "500" for an int, the text "false" for a bool, the text "null" if null is allowed.

For any other fault, the model gets an error. A number for a text parameter is not corrected: when the number is parsed, its
spelling (020, 1.50) is lost.
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
    """One argument of one tool call: its value, and the JSON that is shown to a person."""

    parameter: Parameter
    value: object
    passed: bool
    """True if the function is called with this value. If False, the function's own default applies."""
    sent: object
    """The JSON that the model sent for this argument; MISSING if the model sent none."""
    shown: object
    """The JSON that is shown and stored. MISSING for a default that cannot be written as JSON: this default can be neither shown
    nor edited.
    """

    @property
    def has_changed(self) -> bool:
        """True if the value has changed since it was shown. A validator may return an object that other code changes later."""
        if self.shown is MISSING or is_plain(self.value):
            return False
        return not is_same_json(preview(self.value, self.sent), self.shown)


ArgumentsByKey: TypeAlias = Mapping[str, Argument]
"""The arguments of a tool call: name in the schema -> argument."""


def list_shown(arguments: ArgumentsByKey) -> JsonObject:
    """Return the arguments that a person sees: name in the schema -> JSON. Defaults are included if the call uses them."""
    return {key: one.shown for key, one in arguments.items() if one.shown is not MISSING}


class ArgumentReader(Protocol):
    """Reads the arguments of one tool's calls, according to a function's signature or a given schema."""

    def read(self, raw: object) -> ArgumentsByKey:
        """Validate the arguments that the model sent. Raises InvalidArguments."""

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """Validate a person's edit of `arguments`. Return `arguments` itself if nothing was changed. Raises InvalidArguments."""

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return (the positional arguments, the keyword arguments) with which the function is called."""


@dataclass(frozen=True)
class JsonArguments:
    """Reads the arguments of a tool that takes JSON instead of typed values. The tool gets all arguments as one mapping."""

    tool: str

    def read(self, raw: object) -> ArgumentsByKey:
        """Return the model's arguments as JSON data. Raises InvalidArguments."""
        given = self.check(parse_arguments(raw, self.tool))
        return {key: self._make(key, value) for key, value in given.items()}

    def check(self, given: JsonObject) -> JsonObject:
        """Return the arguments that the tool accepts. In this class, all are accepted. A subclass may raise InvalidArguments."""
        return given

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """Check a person's edit of `arguments`. Return `arguments` itself if nothing was changed. Raises InvalidArguments."""
        if is_same_json(dict(edited), {key: one.value for key, one in arguments.items()}):
            return arguments
        return self.read(dict(edited))

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[JsonObject], JsonObject]:
        """Return all arguments as one positional mapping. A name may be any text, so the arguments are not passed by name."""
        return ({key: one.value for key, one in arguments.items()},), {}

    def _make(self, key: str, value: object) -> Argument:
        shown = copy.deepcopy(value)
        return Argument(Parameter(key, key, object, "", positional=False), value, True, shown, shown)


@dataclass(frozen=True)
class Arguments:
    """Reads the arguments of one tool's calls, according to the function's signature."""

    tool: str
    parameters: Sequence[Parameter]
    adapter: TypeAdapter[JsonObject]
    """Validates JSON with the names of the schema. Returns typed values with the names of the function's parameters."""

    def read(self, raw: object) -> ArgumentsByKey:
        """Return typed values for `raw`, the arguments as the model sent them: text, None or a mapping.

        Raises InvalidArguments.
        """
        return self._make(parse_arguments(raw, self.tool), {})

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """Return the arguments after a person's edit. Unedited arguments keep their values. Edited arguments are validated again.

        Return `arguments` itself if nothing was changed. Raises InvalidArguments if an argument is not valid, or if the edit
        would have an effect that the person does not see.
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
                    f"{shorten_json(value)}: the hidden value is lost, since you changed this argument; type the hidden value again"
                )
        sent = {key: untouched[key].sent if key in untouched else value for key, value in given.items()}
        made = self._make({key: value for key, value in sent.items() if value is not MISSING}, untouched)
        try:
            check_edit(list_shown(made), edited, shown)
        except InvalidArguments as error:
            raise self._not_run(error) from None
        return arguments if is_same_json(list_shown(made), shown) and not holds_note(shown) else made

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return (the positional arguments, the keyword arguments) with which the function is called."""
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
        """Make the arguments of a call from JSON. A name in the JSON is the schema's name of a parameter, or the name that the
        person wrote for it (`own_key`). Arguments in `untouched` keep their values.
        """
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
        """Return the typed values: name of the function's parameter -> value. `given` may be changed: `_decode_texts` decodes
        JSON texts in it.
        """
        values = self._check(given)
        if isinstance(values, ValidationError) and _decode_texts(given, values.errors(include_url=False)):
            values = self._check(given)
        if not isinstance(values, ValidationError):
            return values
        problems = values.errors(include_url=False)
        keys = [parameter.key for parameter in self.parameters]
        raise InvalidArguments(explain_problems(self.tool, given, problems, keys))

    def _check(self, given: JsonObject) -> JsonObject | ValidationError:
        # Validate JSON, not Python values. Then a strict model accepts a text for a date, and an array for a tuple.
        validate: Callable[[bytes], JsonObject] = self.adapter.validator.validate_json
        values = attempt_call(validate, to_json(given))
        if isinstance(values, Raised):
            if isinstance(values.error, ValidationError):
                return values.error
            # A validator in one of the person's types has raised this error.
            told = f"invalid arguments, {self.tool} was not run: {describe_error(values.error, 500)}"
            raise InvalidArguments(told) from values.error
        return values


def _take_default(parameter: Parameter) -> Argument:
    """Return the default of a parameter for one call. If the call could change the default for later calls, copy the default."""
    value, passed = parameter.default, False
    if is_plain(value):
        return Argument(parameter, value, passed, MISSING, value)
    if parameter.field is not None:
        value, passed = parameter.field.get_default(call_default_factory=True), True
    else:
        # Copying fails if the default has a lock, a file or a connection inside.
        copied = attempt_call(_copy_default, value)
        if not isinstance(copied, Raised) and copied is not value:
            value, passed = copied, True
    is_shown = is_plain(value) or find_default_json(parameter) is not MISSING
    return Argument(parameter, value, passed, MISSING, preview(value) if is_shown else MISSING)


def _copy_default(value: object) -> object:
    """Return a copy of a default that a call could change. Return any other default itself."""
    changes = isinstance(value, (list, dict, set, bytearray, BaseModel)) or hasattr(
        value, "__dataclass_fields__"
    )
    return copy.deepcopy(value) if changes else value


def _decode_texts(given: JsonObject, problems: Sequence[ErrorDetails]) -> bool:
    """Decode each JSON text in `given` that should be a list or an object. The decoded value replaces the text. Return True if
    a text was replaced.
    """
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
            tried.add((id(holder), key))  # only once: each member of a union may report the same text
            with contextlib.suppress(InvalidArguments):
                holder[key] = parse_part(text, count)
                changed = True
    return changed


# --- the text that was sent ------------------------------------------------------------------------------------


class SentArguments:
    """The arguments of a call as the model sent them. They are parsed only once. `parse_arguments` returns copies of them."""

    def __init__(self, raw: object) -> None:
        self.raw = raw
        self.parsed: JsonObject = {}
        """The JSON object; {} if the model sent none. Do not change this object."""
        self.problem = ""
        """Why `raw` is not a JSON object; "" if `raw` is a JSON object."""
        self.is_strict = False
        """True if `raw` is a text, and every JSON parser reads this text as an object."""
        try:
            self.parsed, self.is_strict = _decode(raw)
        except InvalidArguments as error:
            self.problem = str(error)

    def stored(self) -> object:
        """Return the arguments for the conversation: `raw` if it is strict JSON, else `parsed` as JSON."""
        return self.raw if self.is_strict else json.dumps(self.parsed, ensure_ascii=False)


def parse_arguments(raw: object, tool: str = "") -> JsonObject:
    """Return the JSON object that a model sent as the arguments of a call. The caller may change the returned object.

    None, a blank text, `null` and `""` mean that there are no arguments: they give {}. If the object is inside a JSON string, the
    string is decoded. If `raw` is a SentArguments, its object is copied and the text is not parsed again.

    Raises InvalidArguments if the text has two meanings or none: repeated names, text after the object, NaN, a number that is too
    large, broken Unicode. Raises it also for too many characters, values or levels. If `tool` is given, the error says that the
    tool of this name was not run.
    """
    sent = raw if isinstance(raw, SentArguments) else SentArguments(raw)
    if sent.problem:
        raise InvalidArguments(f"{sent.problem}; {tool} was not run" if tool else sent.problem)
    copied: JsonObject = thaw(sent.parsed)
    return copied


def parse_part(text: str, count: Iterator[int]) -> object:
    """Read a JSON text inside the arguments. The rules are those of `parse_arguments`.

    `count` counts the JSON values. Pass the same `count` for all texts in the arguments of one call. Raises InvalidArguments.
    """
    return _copy(_load(text)[0], (), count)


def _decode(raw: object) -> tuple[JsonObject, bool]:
    """Return (object, strict): `object` was sent; `strict` is True if `raw` is text that every JSON parser reads as `object`."""
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
    """Return (value, strict): `value` is the value of a JSON text; `strict` is True if every JSON parser accepts the text. Many
    models send a raw line break in a string. This function accepts such a text, but `strict` is then False.
    """
    # Outside of strings, a text has at least as many values as commas or opening brackets. So a text with too many values is
    # refused before its values are made.
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
    """Check JSON data and return a copy, so that no other code can change the data later. `count` counts the values."""
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
                f"{write_path(path)}: expected a finite number, got {value} (or a number that is too large)"
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
            f"{write_path(path)}: half of a surrogate pair is not a character, got {sent}"
        ) from None
