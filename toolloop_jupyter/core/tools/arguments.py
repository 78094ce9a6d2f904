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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from ..events import is_same_json
from ..execution import MISSING, Raised, attempt_call, describe_error
from .messages import InvalidArguments, explain_problems, find_steps
from .parsing import JsonObject, parse_arguments, parse_part
from .preview import Preview, check_edit, holds_note, is_plain, merge_edit, preview
from .schema import find_default_json
from .signature import Parameter

_NESTED = frozenset(
    {
        "list_type",
        "dict_type",
        "tuple_type",
        "set_type",
        "frozen_set_type",
        "mapping_type",
        "iterable_type",
        "model_type",
        "model_attributes_type",
        "dataclass_type",
        "arguments_type",
        "named_tuple_type",
        "deque_type",
        "ordered_dict_type",
        "counter_type",
        "sequence_str",
    }
)
"""Pydantic's errors for a text where a list or an object is wanted: no type that takes text raises them."""


class Argument(NamedTuple):
    """One argument of one call: its value, and what is shown of it."""

    parameter: Parameter
    value: Any
    passed: bool
    """Whether the function is given it; else its own default applies."""
    sent: Any
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


@dataclass(frozen=True)
class Arguments:
    """Reads the arguments of one tool's calls."""

    tool: str
    parameters: Sequence[Parameter]
    adapter: TypeAdapter[JsonObject]

    def read(self, raw: object) -> ArgumentsByKey:
        """Typed values from the arguments as the model sent them: text, None or a mapping.

        Raises InvalidArguments.
        """
        with self._naming_the_tool():
            given = parse_arguments(raw)
        return self._make(*self._validate(self._rename(given)), {})

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """The same call with what a person made of what they were shown; what they left alone keeps its very value.

        `arguments` themselves where nothing was changed. Raises InvalidArguments, also for an edit that does something
        else than it shows.
        """
        shown = list_shown(arguments)
        if is_same_json(dict(edited), shown):
            return arguments
        again = {key: one.preview.again for key, one in arguments.items() if one.preview is not None}
        with self._naming_the_tool():
            merged = {
                key: merge_edit(value, shown.get(key, MISSING), again.get(key, MISSING))
                for key, value in parse_arguments(edited).items()
            }
        given = self._rename({key: value for key, value in merged.items() if value is not MISSING})
        untouched = {
            key: arguments[key] for key in shown if key in edited and is_same_json(edited[key], shown[key])
        }
        made = self._make(*self._validate(given), untouched)
        with self._naming_the_tool():
            check_edit(list_shown(made), edited, shown)
        is_as_shown = is_same_json(list_shown(made), shown) and not holds_note(shown)
        return arguments if is_as_shown else made

    @contextlib.contextmanager
    def _naming_the_tool(self) -> Iterator[None]:
        try:
            yield
        except InvalidArguments as error:
            raise InvalidArguments(f"{error}; {self.tool} was not run") from None

    def _rename(self, given: JsonObject) -> JsonObject:
        """The arguments by the schema's names, also where one came by the parameter's own, which providers do not take."""
        keys = {parameter.key for parameter in self.parameters}
        for key, own in ((parameter.key, parameter.own_key) for parameter in self.parameters):
            if own in given and own and own not in keys and key not in given:
                given[key] = given.pop(own)
        return given

    def _validate(self, given: JsonObject) -> tuple[JsonObject, JsonObject]:
        """(values by Python names, the JSON that they were made of by schema names)."""
        try:
            return self._check(given), given
        except ValidationError as error:
            problems = error.errors(include_url=False)
        if _decode_texts(given, problems):
            try:
                return self._check(given), given
            except ValidationError as error:
                problems = error.errors(include_url=False)
        if (with_null := _put_nulls(given, problems)) is not None:
            try:
                return self._check(with_null), with_null
            except ValidationError:
                pass  # null was not meant, or does not help: the message is about what was sent
        keys = [parameter.key for parameter in self.parameters]
        raise InvalidArguments(explain_problems(self.tool, given, problems, keys))

    def _check(self, given: JsonObject) -> JsonObject:
        # As JSON: so a strict model takes a date's text, and an array for a tuple.
        values: JsonObject | Raised = attempt_call(lambda: self.adapter.validate_json(to_json(given)))
        if isinstance(values, Raised):
            if isinstance(values.error, ValidationError):
                raise values.error
            # Raised by a validator of the person's own types.
            text = describe_error(values.error, 500)
            raise InvalidArguments(f"invalid arguments, {self.tool} was not run: {text}") from values.error
        if _has_nan_text(given) and (path := next(_find_not_finite(values, ""), None)):
            raise InvalidArguments(
                f"invalid arguments, {self.tool} was not run:\n- {path}: expected a finite number, got NaN or infinity"
            )
        return values

    def _make(
        self, validated: Mapping[str, Any], given: Mapping[str, Any], untouched: ArgumentsByKey
    ) -> ArgumentsByKey:
        made: dict[str, Argument] = {}
        for parameter in self.parameters:
            key, value = parameter.key, validated[parameter.name]
            if key in untouched:
                made[key] = untouched[key]
            elif value is MISSING:
                made[key] = _take_default(parameter)
            else:
                sent = given.get(key, MISSING)
                made[key] = Argument(parameter, value, True, sent, preview(value, sent))
        return made


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
    changed, tried, count = False, set(), itertools.count()
    for problem in problems:
        text = problem["input"]
        if problem["type"] not in _NESTED or type(text) is not str or text.lstrip()[:1] not in ("[", "{"):
            continue
        holder, key = _find_place(given, problem["loc"])
        if holder is None or holder[key] != text or (id(holder), key) in tried:
            continue
        tried.add((id(holder), key))  # once, also where each member of a union has refused it
        try:
            holder[key] = parse_part(text, count)
        except InvalidArguments:
            continue
        changed = True
    return changed


def _put_nulls(given: JsonObject, problems: Sequence[ErrorDetails]) -> JsonObject | None:
    """A copy with null for each refused text "null"; None when there is no such text."""
    # What a validator has made of it is never compared: it says itself what it is equal to.
    refused = [
        problem for problem in problems if type(problem["input"]) is str and problem["input"] == "null"
    ]
    if not refused:
        return None
    copied: JsonObject = copy.deepcopy(given)
    places = [_find_place(copied, problem["loc"]) for problem in refused]
    for holder, key in places:
        if holder is not None and holder[key] == "null":
            holder[key] = None
    return copied


def _find_place(given: object, location: Sequence[int | str]) -> tuple[Any, Any]:
    """The container and the key that hold what a pydantic location means; (None, None) for the whole."""
    return next(reversed(find_steps(given, location)), (None, None))


def _has_nan_text(value: object) -> bool:
    if isinstance(value, str):
        return len(value) < 12 and value.strip().lstrip("+-").lower() in ("nan", "inf", "infinity")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_nan_text(item) for item in items)


def _find_not_finite(value: object, path: str) -> Iterator[str]:
    """Where a model holds NaN or an infinity without `allow_inf_nan=True`, its own or the field's.

    Pydantic takes the text "NaN" for a float in a model unless told otherwise; outside of models `schema.build`
    has told it, and so what is found there is meant.
    """
    if isinstance(value, BaseModel):
        if type(value).model_config.get("allow_inf_nan"):
            return
        for name, info in type(value).model_fields.items():
            item, inside = getattr(value, name), f"{path}.{name}".lstrip(".")
            if any(getattr(known, "allow_inf_nan", None) for known in info.metadata):
                continue
            if isinstance(item, float) and not math.isfinite(item):
                yield inside
            yield from _find_not_finite(item, inside)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find_not_finite(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _find_not_finite(item, f"{path}[{index}]")
