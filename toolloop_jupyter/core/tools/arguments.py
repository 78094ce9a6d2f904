"""Turns the arguments that a model sent into the typed values that the tool's function gets. If arguments are wrong, writes one
message that lists all faults; the model gets this message.

`parse_arguments` reads the text as a JSON object. `Arguments.read` validates this object against the function's signature. Each
step takes time in proportion to the size of the arguments. `core/text` limits this size.

A fault is corrected only if the arguments can have just one meaning. These faults are corrected: an empty text instead of an
object; the whole object inside a JSON string; a list or an object inside a JSON string, if the parameter's type does not accept
text; the text "500" for an int; the text "false" for a bool. A number for a text parameter is not corrected: when the number is
parsed, its spelling (020, 1.50) is lost.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from ..events import is_same_json, thaw
from ..execution import MISSING, Raised, attempt_call, describe_error, shorten_repr
from ..text import DEEPEST, LONGEST_ARGUMENTS, MOST_VALUES, list_some, shorten
from .preview import PLAIN, JsonObject, holds_note, preview
from .schema import find_default_json
from .signature import Parameter

Location: TypeAlias = tuple[int | str, ...]
"""The place of a value in JSON data: keys and indexes, from the outside in."""
JsonContainer: TypeAlias = Any
"""A list or a dict in JSON data. Its items are read or replaced by index or by key."""
_TOO_DEEP = f"arguments are nested more than {DEEPEST} levels deep"
_TOO_MANY = f"arguments have more than {MOST_VALUES:,} values; send less in one call"
_TOO_LONG = f"arguments have more than {LONGEST_ARGUMENTS:,} characters; send less in one call"


class InvalidArguments(ValueError):
    """The function cannot be called with these arguments. `str(error)` is the short message for the model."""


class Argument(NamedTuple):
    """One argument of one tool call: its value, and the JSON that is shown to a person."""

    value: object
    passed: bool
    """True if the function is called with this value. If False, the function's own default applies."""
    sent: object
    """The JSON that the model sent for this argument; MISSING if the model sent none."""
    shown: object
    """The JSON that is shown and stored; MISSING for a default that cannot be written as JSON."""

    @property
    def has_changed(self) -> bool:
        """True if the value has changed since it was shown. A validator may return an object that other code changes later."""
        if self.shown is MISSING or type(self.value) in PLAIN:
            return False
        return not is_same_json(preview(self.value, self.sent), self.shown)


ArgumentsByKey: TypeAlias = Mapping[str, Argument]
"""The arguments of a tool call: name in the schema -> argument."""


def list_shown(arguments: ArgumentsByKey) -> JsonObject:
    """Return the arguments that a person sees: name in the schema -> JSON. Also includes the defaults that the call uses."""
    return {key: one.shown for key, one in arguments.items() if one.shown is not MISSING}


@dataclass(frozen=True)
class JsonArguments:
    """Reads the arguments of a tool that takes JSON instead of typed values. The tool gets all arguments as one mapping."""

    tool: str

    def read(self, raw: object) -> ArgumentsByKey:
        """Return `raw`, the arguments that the model sent, as JSON data. Raises InvalidArguments."""
        given = self.check(parse_arguments(raw, self.tool))
        return {key: Argument(value, True, shown := thaw(value), shown) for key, value in given.items()}

    def check(self, given: JsonObject) -> JsonObject:
        """Return the checked arguments. This class accepts all arguments; a subclass may raise InvalidArguments."""
        return given

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """Return the arguments after a person's edit; `arguments` itself if nothing has changed. Raises InvalidArguments."""
        return arguments if is_same_json(dict(edited), list_shown(arguments)) else self.read(dict(edited))

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[JsonObject], JsonObject]:
        """Return all arguments as one positional mapping. An argument's name may be any text, so none is passed by name."""
        return ({key: one.value for key, one in arguments.items()},), {}


@dataclass(frozen=True)
class Arguments:
    """Reads the arguments of one tool's calls, according to the function's signature."""

    tool: str
    parameters: Sequence[Parameter]
    adapter: TypeAdapter[JsonObject]
    """Validates a JSON object: name in the schema -> JSON. Returns: name in the function -> typed value. The names may differ."""

    def read(self, raw: object) -> ArgumentsByKey:
        """Return typed values. `raw` is what the model sent: text, None or a mapping. Raises InvalidArguments."""
        return self._make(parse_arguments(raw, self.tool), {})

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """Return the arguments after a person's edit (`edited`); `arguments` itself if nothing has changed.

        Arguments that the person did not edit keep their values.
        Raises InvalidArguments if an argument is not valid, or if the edit would have an effect that the person does not see.
        """
        shown = list_shown(arguments)
        if is_same_json(dict(edited), shown):
            return arguments
        same = [key for key in shown if key in edited and is_same_json(edited[key], shown[key])]
        untouched = {key: arguments[key] for key in same}
        changed = {key: one for key, one in parse_arguments(edited, self.tool).items() if key not in same}
        for value in filter(holds_note, changed.values()):
            raise InvalidArguments(
                f"{shorten_json(value)}: the hidden value is lost, because you changed this argument; "
                f"type the hidden value again; {self.tool} was not run"
            )
        sent = {key: one.sent for key, one in untouched.items() if one.sent is not MISSING}
        made = self._make({**sent, **changed}, untouched)
        if problem := _find_unseen_effect(list_shown(made), edited, shown, ()):
            raise InvalidArguments(f"{problem}; {self.tool} was not run")
        return arguments if is_same_json(list_shown(made), shown) and not holds_note(shown) else made

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return (the positional arguments, the keyword arguments) with which the function is called."""
        args: list[object] = []
        kwargs: dict[str, object] = {}
        for parameter in self.parameters:
            one = arguments[parameter.key]
            if parameter.positional:
                args.append(one.value)
            elif one.passed:
                kwargs[parameter.name] = one.value
        return tuple(args), kwargs

    def _make(self, given: JsonObject, untouched: ArgumentsByKey) -> ArgumentsByKey:
        """Make a call's arguments from the JSON object `given`. Arguments in `untouched` keep their values."""
        for one in self.parameters:
            if one.own_key and one.own_key in given and one.key not in given:
                given[one.key] = given.pop(one.own_key)
        values = self._validate(given)
        made: dict[str, Argument] = {}
        for parameter in self.parameters:
            key, value = parameter.key, values[parameter.name]
            if key in untouched:
                made[key] = untouched[key]
            elif value is MISSING:
                made[key] = _take_default(parameter)
            else:
                sent = given.get(key, MISSING)
                shown = value if type(value) in PLAIN else preview(value, sent)
                made[key] = Argument(value, True, sent, shown)
        return made

    def _validate(self, given: JsonObject) -> JsonObject:
        """Return the typed values: name in the function -> value. A text in `given` that contains JSON may be decoded."""
        # Validate JSON, not Python values. Then a strict pydantic type accepts a text for a date, and an array for a tuple.
        validate: Callable[[bytes], JsonObject] = self.adapter.validator.validate_json
        values = attempt_call(validate, to_json(given))
        error = values.error if isinstance(values, Raised) else None
        if isinstance(error, ValidationError) and _decode_texts(given, error.errors(include_url=False)):
            values = attempt_call(validate, to_json(given))
        if not isinstance(values, Raised):
            return values
        if isinstance(values.error, ValidationError):
            problems = values.error.errors(include_url=False)
            keys = [parameter.key for parameter in self.parameters]
            raise InvalidArguments(_explain_problems(self.tool, given, problems, keys))
        # The code of a parameter's type has raised this error.
        message = f"invalid arguments, {self.tool} was not run: {describe_error(values.error, 500)}"
        raise InvalidArguments(message) from values.error


def _take_default(parameter: Parameter) -> Argument:
    """Return the default of a parameter for one call. If the function could change the default (a list, a dict …), copy it."""
    value, passed, kind = parameter.default, False, type(parameter.default)
    if parameter.field is not None:
        value, passed = parameter.field.get_default(call_default_factory=True), True
    elif issubclass(kind, (list, dict, set, bytearray, BaseModel)) or hasattr(kind, "__dataclass_fields__"):
        # Copying fails if the default contains a lock, a file or a connection. Then the function uses its own default.
        copied = attempt_call(copy.deepcopy, value)
        if not isinstance(copied, Raised):
            value, passed = copied, True
    is_shown = type(value) in PLAIN or find_default_json(parameter) is not MISSING
    return Argument(value, passed, MISSING, preview(value) if is_shown else MISSING)


def _decode_texts(given: JsonObject, problems: Sequence[ErrorDetails]) -> bool:
    """Decode each text in `given` for which `problems` expect a list or an object. Return True if a text was decoded."""
    changed, count = False, itertools.count()
    for problem in problems:
        text = problem["input"]
        is_json = type(text) is str and text.lstrip()[:1] in ("[", "{")
        # If the parameter's type accepts text, pydantic expects neither an array nor an object.
        if not is_json or _EXPECTED.get(problem["type"]) not in ("an array", "an object"):
            continue
        for holder, key in _find_steps(given, problem["loc"])[-1:]:
            if holder[key] != text:  # another member of a union has reported the same text
                continue
            with contextlib.suppress(InvalidArguments):
                holder[key] = _copy(_load(text)[0], (), count)
                changed = True
    return changed


def _find_unseen_effect(made: object, edited: object, shown: object, path: Location) -> str:
    """Return a text about a hidden effect of a person's edit; "" if there is none.

    `shown` is the JSON that the person saw, `edited` the JSON after the edit, `made` the JSON after validation, `path` the place
    of all three. An effect is hidden if validation changes a part that was not edited, or if an edited field of an object keeps
    its old value. It is not a hidden effect if validation converts an edited value (`"2"` to 2).
    """
    if shown is MISSING:
        return ""  # the person has added this part
    if is_same_json(edited, shown):
        if made is not MISSING and is_same_json(made, shown):
            return ""
        now = "disappear from the call" if made is MISSING else shorten_json(made)
        return (
            f"{write_path(path)}: you did not edit this part (it shows {shorten_json(shown)}), "
            f"but your other edits would make it {now}; edit this part, too"
        )
    parts: Iterable[tuple[Any, ...]] = ()
    if isinstance(made, Mapping) and isinstance(edited, Mapping) and isinstance(shown, Mapping):
        parts = ((key, made.get(key, MISSING), edited[key], shown.get(key, MISSING)) for key in edited)
    elif isinstance(made, list) and isinstance(edited, list) and isinstance(shown, list):
        if len(made) == len(edited) == len(shown) and all(isinstance(one, Mapping) for one in edited):
            parts = zip(range(len(made)), made, edited, shown, strict=True)
    elif len(path) > 1 and isinstance(path[-1], str) and is_same_json(made, shown) and edited != shown:
        # A note shows only the length of a secret. The note stays the same if the person types another secret of this length.
        effect = f"{shorten_json(edited)} would have no effect: the value would stay {shorten_json(shown)}"
        return "" if holds_note(shown) else f"{write_path(path)}: {effect}"
    effects = (_find_unseen_effect(a, b, c, (*path, key)) for key, a, b, c in parts)
    return next(filter(None, effects), "")


# --- the text that was sent ------------------------------------------------------------------------------------


class SentArguments:
    """The arguments of a call as the model sent them. They are parsed once; `parse_arguments` copies the parsed object."""

    def __init__(self, raw: object) -> None:
        self.raw, is_strict = raw, False
        self.parsed: JsonObject = {}
        """The JSON object; {} if the model sent no arguments, or if there is a `problem`. Do not change this object."""
        self.problem = ""
        """Why `raw` is not a JSON object; "" if `raw` is a JSON object."""
        try:
            self.parsed, is_strict = _decode(raw)
        except InvalidArguments as error:
            self.problem = str(error)
        # A person's code may call a tool with values that are not JSON data, such as dates.
        self.stored: Any = raw if is_strict else json.dumps(self.parsed, ensure_ascii=False, default=str)
        """The arguments for the conversation: `raw` if it is strict JSON, else `parsed` as JSON."""


def parse_arguments(raw: object, tool: str = "") -> JsonObject:
    """Return `raw`, the arguments that a model sent, as a new JSON object. `raw` is a text, a mapping, a SentArguments or None.

    Raises InvalidArguments if `raw` is not one clear JSON object (repeated names, text after the object, NaN, a number that is
    too large, broken Unicode), or has too many characters, values or levels. If `tool` is given, the error says that this tool
    was not run.
    """
    sent = raw if isinstance(raw, SentArguments) else SentArguments(raw)
    if sent.problem:
        raise InvalidArguments(f"{sent.problem}; {tool} was not run" if tool else sent.problem)
    copied: JsonObject = thaw(sent.parsed)
    return copied


def _decode(raw: object) -> tuple[JsonObject, bool]:
    """Return (the JSON object in `raw`, True if `raw` is a text that every JSON parser reads as this object)."""
    value, is_strict = raw, False
    if isinstance(raw, str) and len(raw) > LONGEST_ARGUMENTS:
        raise InvalidArguments(_TOO_LONG)
    for level in range(3):  # the object may be inside a JSON string, and this string inside another string
        if value is None or (isinstance(value, str) and not value.strip()):
            return {}, False
        if not isinstance(value, str):
            break
        try:
            value, is_strict = _load(value)
        except InvalidArguments:
            if level == 0:
                raise
            break  # a JSON string without JSON inside is just a string
        is_strict = is_strict and level == 0
    if isinstance(value, Mapping) and isinstance(made := _copy(value, (), itertools.count()), dict):
        return made, is_strict
    kind = _JSON_KINDS.get(type(value)) or type(value).__name__
    raise InvalidArguments(f"arguments must be a JSON object, got {kind}: {shorten_json(value)}")


def _load(text: str) -> tuple[object, bool]:
    """Return (the value of a JSON text, True if every JSON parser accepts the text).

    The second value is False if a string has raw line breaks. Many models send such strings.
    """
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
        problem = "arguments have an integer with more than 4300 digits"
    raise InvalidArguments(problem)


def _refuse_repeated(pairs: list[tuple[str, object]]) -> JsonObject:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise InvalidArguments(f"arguments have {list_some(map(shorten_json, twice))} more than once")
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_repeated)
_LENIENT = json.JSONDecoder(strict=False, object_pairs_hook=_refuse_repeated)


def _copy(value: object, path: Location, count: Iterator[int]) -> object:
    """Check JSON data. Return a copy, which no other code can change. `path` is the data's place; `count` counts all values."""
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
    elif isinstance(value, Mapping):
        entries: JsonObject = {}
        for key, item in value.items():
            if not (name := str(key)).isascii():
                _check_text(name, path)
            entries[name] = _copy(item, (*path, name), count)
        return entries
    return value


def _check_text(text: str, path: Location) -> None:
    if isinstance(attempt_call(text.encode), Raised):
        problem = f"half of a surrogate pair is not a character, got {shorten_json(text)}"
        raise InvalidArguments(f"{write_path(path)}: {problem}")


# --- messages for the model -----------------------------------------------------------------------------------

_SHOWN = 80  # at most this many characters of a wrong value are repeated to the model
_MOST = 10  # the most problems in one message
_LINE = 500  # the most characters of the line for one problem: the model may invent a very long name
_KEY_MARK = "[key]"
"""If a key of a dict is not valid, pydantic puts this mark at the end of the error's location."""

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
        "a number or a string with a number": "decimal_type decimal_parsing",
        "a string with a UUID": "uuid_type uuid_parsing",
        "a string with a date such as 2026-01-31": "date_type date_parsing date_from_datetime_parsing",
        "a date without a time": "date_from_datetime_inexact",
        "a string with a date and time such as 2026-01-31T12:00:00": "datetime_type datetime_parsing datetime_from_date_parsing",
        "a string with a time such as 12:00:00": "time_type time_parsing",
        "a string with a duration such as P1DT2H": "time_delta_type time_delta_parsing",
    }.items()
    for kind in kinds.split()
}
"""Type of a pydantic error -> the expected value, in words."""
_JSON_KINDS = {bool: "boolean", str: "string", int: "number", float: "number"}


def _explain_problems(
    tool: str, given: Mapping[str, object], problems: Sequence[ErrorDetails], names: Sequence[str]
) -> str:
    """Return the message for the model, with a line for each wrong argument. `names` are the parameters' names in the schema."""
    by_place: dict[Location, list[ErrorDetails]] = {}
    for problem in problems:
        location = problem["loc"]
        keys = [key for _, key in _find_steps(given, location)]
        if problem["type"].startswith("missing") or location[-1:] == (_KEY_MARK,):
            keys.append(location[-1])
        by_place.setdefault(tuple(keys), []).append(problem)
    lines = [f"invalid arguments, {tool} was not run:"]
    for place, of_place in [*by_place.items()][:_MOST]:
        is_key = place[-1:] == of_place[0]["loc"][-1:] == (_KEY_MARK,)
        path = f"{write_path(place[:-1])} (the key)" if is_key else write_path(place)
        # Each member of a union may report a problem.
        texts = [*dict.fromkeys(_explain_one(one, path, given, names) for one in of_place)]
        fault = "; ".join(texts)
        if all(text.startswith("expected ") for text in texts):
            fault = "expected " + " or ".join(text.removeprefix("expected ") for text in texts)
        if not all(text.startswith(("missing", "no such argument", "there is no")) for text in texts):
            fault += f", got {shorten_json(of_place[-1]['input'])}"
        lines.append(shorten(f"- {path}: {fault}", _LINE))
    if len(by_place) > _MOST:
        lines.append(f"- and {len(by_place) - _MOST} more")
    return "\n".join(lines)


def _find_steps(given: JsonContainer, location: Sequence[int | str]) -> list[tuple[JsonContainer, int | str]]:
    """Return (container, key) for each step from `given` to a pydantic `location`, without parts that name a union's member."""
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


def _explain_one(problem: ErrorDetails, path: str, given: Mapping[str, object], known: Sequence[str]) -> str:
    kind, message = problem["type"], str(problem["msg"])
    if kind.startswith("missing"):
        return "missing, and required"
    if kind == "extra_forbidden":
        return "there is no such field"
    if kind == "unexpected_keyword_argument":
        return explain_unknown(path, known, given)
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    if kind in ("enum", "literal_error"):
        return f"expected {message.removeprefix('Input should be ')}"
    message = re.sub(r"^(Value error|Assertion failed), ?", "", message)
    return re.sub(r"^Input should ?", "must ", message)


def explain_unknown(name: str, names: Sequence[str], given: Collection[str] = ()) -> str:
    """Return the message for an argument that is not among `names`. The message suggests a similar name, preferably one that
    is not in `given`.
    """
    free = [one for one in names if one not in given]
    near = difflib.get_close_matches(name, free, 1) or difflib.get_close_matches(name, names, 1)
    if near:
        return f"no such argument; did you mean {near[0]}?"
    return f"no such argument; there {'are ' + ', '.join(names) if names else 'are none'}"


def shorten_json(value: object) -> str:
    """Return the value as JSON, shortened to at most `_SHOWN` characters."""
    if isinstance(value, str):
        value = value[: _SHOWN + 1]
    # Only the first parts of the JSON text are made. They are enough, because each part has at least one character.
    parts = attempt_call(lambda: [*itertools.islice(_ENCODER.iterencode(value), _SHOWN + 1)])
    text = shorten_repr(value) if isinstance(parts, Raised) else "".join(parts)
    text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair cannot be sent
    return shorten(text, _SHOWN)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=shorten_repr)
