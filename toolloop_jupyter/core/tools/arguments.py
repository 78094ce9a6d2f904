"""What a model sent as arguments -> the typed values that the function gets, or one message with all that is wrong.

Two steps: `parse_arguments` makes a JSON object of the text, `Arguments.read` validates it against the signature.
Only what cannot mean anything else is put right: no text for no arguments, JSON sent as a JSON string (for a part
only where the declared type takes no text), "500" for an int, "false" for a bool, "null" where null is allowed. The
rest goes back to the model. A number for a text parameter does, too: how it was written (020, 1.50) is lost.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from ..events import is_same_json
from ..execution import MISSING, Raised, attempt_call, describe_error
from .messages import WANTS_CONTAINER, InvalidArguments, explain_problems, find_steps
from .parsing import JsonObject, parse_arguments, parse_part
from .preview import Preview, check_edit, holds_note, holds_text, is_plain, merge_edit, preview
from .schema import find_default_json
from .signature import Parameter

_IN_NAN = re.compile(rb"nan|inf", re.IGNORECASE)
_NAN = re.compile(r"\s*[+-]*(?:nan|inf|infinity)\s*", re.IGNORECASE)


class Argument(NamedTuple):
    """One argument of one call: its value, and what is shown of it."""

    parameter: Parameter
    value: object
    passed: bool
    """Whether the function is given it; else its own default applies."""
    sent: object
    """JSON that the model sent for it, or MISSING."""
    preview: Preview | None
    """None for a default that is no JSON: it cannot be shown, and not be edited."""

    @property
    def has_changed(self) -> bool:
        """Whether the value is no longer what is shown: a validator gave what others can change, too."""
        if self.preview is None or is_plain(self.value):
            return False
        return not is_same_json(preview(self.value, self.sent).shown, self.preview.shown)


ArgumentsByKey: TypeAlias = Mapping[str, Argument]
"""A call's arguments by their names in the schema."""


def list_shown(arguments: ArgumentsByKey) -> JsonObject:
    """What is shown of a call: its arguments as JSON by the schema's names, with the defaults that apply."""
    return {key: one.preview.shown for key, one in arguments.items() if one.preview is not None}


class ArgumentReader(Protocol):
    """Reads the arguments of one tool's calls: by a function's signature, or by a schema that is given."""

    def read(self, raw: object) -> ArgumentsByKey:
        """What the model sent, validated. Raises InvalidArguments."""

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """The same call as a person edited it, validated anew; `arguments` where nothing was changed. Raises InvalidArguments."""

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[object, ...], dict[str, object]]:
        """(by position, by name) as the function takes them."""


@dataclass(frozen=True)
class Arguments:
    """Reads the arguments of one tool's calls, by the function's signature."""

    tool: str
    parameters: Sequence[Parameter]
    adapter: TypeAdapter[JsonObject]
    """Makes values by Python names of JSON by the schema's names."""

    def read(self, raw: object) -> ArgumentsByKey:
        """Typed values from the arguments as the model sent them: text, None or a mapping.

        Raises InvalidArguments.
        """
        try:
            given = parse_arguments(raw)
        except InvalidArguments as error:
            raise self._refuse(error) from None
        return self._make(given, {})

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """The same call with what a person made of what they were shown; what they left alone keeps its very value.

        `arguments` themselves where nothing was changed. Raises InvalidArguments, also for an edit that does something
        else than it shows.
        """
        shown = list_shown(arguments)
        if is_same_json(dict(edited), shown):
            return arguments
        again = {key: one.preview.again for key, one in arguments.items() if one.preview is not None}
        untouched = {
            key: arguments[key] for key in shown if key in edited and is_same_json(edited[key], shown[key])
        }
        try:
            merged = {
                key: merge_edit(value, shown.get(key, MISSING), again.get(key, MISSING))
                for key, value in parse_arguments(edited).items()
            }
        except InvalidArguments as error:
            raise self._refuse(error) from None
        made = self._make({key: value for key, value in merged.items() if value is not MISSING}, untouched)
        now = list_shown(made)
        try:
            check_edit(now, edited, shown)
        except InvalidArguments as error:
            raise self._refuse(error) from None
        return arguments if is_same_json(now, shown) and not holds_note(shown) else made

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[object, ...], dict[str, object]]:
        """(by position, by name) as the function takes them."""
        args = [one.value for one in arguments.values() if one.parameter.positional]
        named = [one for one in arguments.values() if one.passed and not one.parameter.positional]
        return tuple(args), {one.parameter.name: one.value for one in named}

    def _refuse(self, problem: object) -> InvalidArguments:
        return InvalidArguments(f"{problem}; {self.tool} was not run")

    def _make(self, given: JsonObject, untouched: ArgumentsByKey) -> ArgumentsByKey:
        """The arguments from the JSON of a call, by the schema's names or by the parameters' own."""
        for one in self.parameters:
            if one.own_key and one.own_key in given and one.key not in given:
                given[one.key] = given.pop(one.own_key)
        values, read = self._validate(given)
        made: dict[str, Argument] = {}
        for parameter in self.parameters:
            key, value = parameter.key, values[parameter.name]
            sent = read.get(key, MISSING)
            if key in untouched:
                made[key] = untouched[key]
            elif value is MISSING:
                made[key] = _take_default(parameter)
            else:
                made[key] = Argument(parameter, value, True, sent, preview(value, sent))
        return made

    def _validate(self, given: JsonObject) -> tuple[JsonObject, JsonObject]:
        """(values by Python names, the JSON that they were made of by schema names)."""
        values = self._check(given)
        if isinstance(values, ValidationError) and _decode_texts(given, values.errors(include_url=False)):
            values = self._check(given)
        if not isinstance(values, ValidationError):
            return values, given
        problems = values.errors(include_url=False)
        if (with_null := _put_nulls(given, problems)) is not None:
            values = self._check(with_null)
            if not isinstance(values, ValidationError):
                return values, with_null
            # null was not meant, or does not help: the message is about what was sent
        keys = [parameter.key for parameter in self.parameters]
        raise InvalidArguments(explain_problems(self.tool, given, problems, keys))

    def _check(self, given: JsonObject) -> JsonObject | ValidationError:
        # As JSON: so a strict model takes a date's text, and an array for a tuple.
        sent = to_json(given)
        values = attempt_call(self.adapter.validate_json, sent)
        begin = f"invalid arguments, {self.tool} was not run:"
        if isinstance(values, Raised):
            if isinstance(values.error, ValidationError):
                return values.error
            # Raised by a validator of the person's own types.
            raise InvalidArguments(f"{begin} {describe_error(values.error, 500)}") from values.error
        holds_nan = _IN_NAN.search(sent) and holds_text(given, _NAN.fullmatch)
        if holds_nan and (path := next(_find_not_finite(values, ""), None)):
            raise InvalidArguments(f"{begin}\n- {path}: expected a finite number, got NaN or infinity")
        return values


def _take_default(parameter: Parameter) -> Argument:
    """The default for one call: a copy where calls could share what they change."""
    value, passed = parameter.default, False
    if parameter.field is not None:
        value, passed = parameter.field.get_default(call_default_factory=True), True
    elif isinstance(value, (list, dict, set, bytearray, BaseModel)) or hasattr(value, "__dataclass_fields__"):
        # It may hold a lock, a file, a connection.
        with contextlib.suppress(TypeError, ValueError, RecursionError, copy.Error):
            value, passed = copy.deepcopy(value), True
    is_shown = is_plain(value) or find_default_json(parameter) is not MISSING
    return Argument(parameter, value, passed, MISSING, preview(value) if is_shown else None)


def _decode_texts(given: JsonObject, problems: Sequence[ErrorDetails]) -> bool:
    """Decode, in place, the texts that stand where a list or an object is wanted and are JSON for one."""
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
            tried.add((id(holder), key))  # once, also where each member of a union has refused it
            with contextlib.suppress(InvalidArguments):
                holder[key] = parse_part(text, count)
                changed = True
    return changed


def _put_nulls(given: JsonObject, problems: Sequence[ErrorDetails]) -> JsonObject | None:
    """A copy with null for each refused text "null"; None when there is no such text."""
    # What a validator has made of it is never compared: it says itself what it is equal to.
    refused = [one["loc"] for one in problems if type(one["input"]) is str and one["input"] == "null"]
    if not refused:
        return None
    copied = copy.deepcopy(given)
    # All are found before one is put in place.
    for holder, key in [step for location in refused for step in find_steps(copied, location)[-1:]]:
        if holder[key] == "null":
            holder[key] = None
    return copied


def _find_not_finite(value: object, path: str) -> Iterator[str]:
    """Where a model holds NaN or an infinity without `allow_inf_nan=True`, its own or the field's.

    Pydantic takes the text "NaN" for a float in a model unless told otherwise; outside of models `build_schema`
    has told it, and so what is found there is meant.
    """
    parts: list[tuple[str, object]] = []
    if isinstance(value, BaseModel) and not type(value).model_config.get("allow_inf_nan"):
        for name, info in type(value).model_fields.items():
            item, inside = getattr(value, name), f"{path}.{name}".lstrip(".")
            if any(getattr(known, "allow_inf_nan", None) for known in info.metadata):
                continue
            if isinstance(item, float) and not math.isfinite(item):
                yield inside
            parts.append((inside, item))
    elif isinstance(value, dict):
        parts += [(f"{path}.{key}".lstrip("."), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        parts += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    for inside, item in parts:
        yield from _find_not_finite(item, inside)
