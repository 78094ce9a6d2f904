"""What a model sent as arguments -> the typed values that the function gets, or one message with all that is wrong.

Two steps: `parse_arguments` makes a JSON object of the text, `Arguments.read` validates it against the signature.
Only what cannot mean anything else is put right: no text for no arguments, JSON sent as a JSON string (for a part
only where the declared type takes no text), "500" for an int, "false" for a bool, "null" where null is allowed. The
rest goes back to the model. A number for a text parameter does, too: how it was written (020, 1.50) is lost.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from ..events import same_json
from ..execution import Raised, attempt_call, words_of
from .messages import InvalidArguments, complaint, steps
from .parsing import parse_arguments, parse_part
from .preview import (
    ABSENT,
    Told,
    candidates,
    is_plain,
    spoilt,
    tell,
    unheeded,
    with_marks,
)
from .schema import OMITTED, default_json
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


class Held(NamedTuple):
    """The value of one parameter in one call."""

    value: Any
    passed: bool
    """Whether the function is given it; else its own default applies."""
    sent: Any
    """JSON that the model sent for it, or ABSENT."""
    told: Told | None
    """What is shown of it; None for a default that is no JSON."""


@dataclass(frozen=True)
class Values:
    """Validated arguments, private to one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    json: dict[str, Any]
    """All that `args` and `kwargs` hold, as JSON by schema names, with the defaults that apply (see `telling.py`)."""
    held: Mapping[str, Held]
    """By schema names."""

    def changed(self) -> list[str]:
        """The arguments whose values are no longer what `json` tells: a validator gave what others can change, too."""
        return [
            name
            for name, (value, _, sent, told) in self.held.items()
            if told is not None and not is_plain(value) and not same_json(tell(value, sent).shown, told.shown)
        ]


@dataclass(frozen=True)
class Arguments:
    """Reads the arguments of one tool's calls."""

    tool: str
    parameters: Sequence[Parameter]
    adapter: TypeAdapter[Any]

    def read(self, raw: object) -> Values:
        """Typed values from the arguments as the model sent them: text, None or a mapping.

        Raises InvalidArguments.
        """
        return self._values(*self._read(raw))

    def edit(self, values: Values, edited: Mapping[str, object]) -> Values:
        """The same call with what a person made of `values.json`; an argument they left alone keeps its very value.

        An edit that is read as what was there already is none; so values that are as they were come back themselves.
        Raises InvalidArguments, also for an edit that nothing reads.
        """
        untouched = {
            key: held
            for key, held in values.held.items()
            if key in edited and key in values.json and same_json(edited[key], values.json[key])
        }
        if len(untouched) == len(edited) == len(values.json):
            return values
        refused: InvalidArguments | None = None
        fallback: Values | None = None
        as_it_was: Values | None = None
        for given in candidates(
            edited, values.json, {key: _again(held) for key, held in values.held.items()}
        ):
            try:
                made = self._values(*self._read(given), untouched)
            except InvalidArguments as error:
                refused = refused or error
                continue
            made = replace(made, json=with_marks(made.json, edited, values.json))
            problem, wrong = unheeded(made.json, edited, values.json)
            if wrong:
                refused = refused or InvalidArguments(f"{problem}; {self.tool} was not run")
            elif problem:
                as_it_was = as_it_was or made
            elif same_json(made.json, values.json):
                return values
            elif not spoilt(made.json, edited, values.json):
                return made
            else:
                fallback = fallback or made
        if (fallback := fallback or as_it_was) is not None:
            return fallback  # one argument depends on another: the record names both
        assert refused is not None, "there is a candidate"
        raise refused

    def _read(self, raw: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """(values by Python names, the JSON that they were made of by schema names)."""
        try:
            given = parse_arguments(raw)
        except InvalidArguments as error:
            raise InvalidArguments(f"{error}; {self.tool} was not run") from None
        return self._validate(given)

    def _validate(self, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            return self._check(given), given
        except ValidationError as error:
            problems = error.errors(include_url=False)
        if _decode(given, problems):
            try:
                return self._check(given), given
            except ValidationError as error:
                problems = error.errors(include_url=False)
        if (with_null := _with_null(given, problems)) is not None:
            try:
                return self._check(with_null), with_null
            except ValidationError:
                pass  # null was not meant, or does not help: the message is about what was sent
        keys = [parameter.key for parameter in self.parameters]
        raise InvalidArguments(complaint(self.tool, given, problems, keys))

    def _check(self, given: dict[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] | Raised = attempt_call(self.adapter.validate_python, given)
        if isinstance(values, Raised):
            if isinstance(values.error, ValidationError):
                raise values.error
            # Raised by a validator of the person's own types.
            text = words_of(values.error, 500)
            raise InvalidArguments(f"invalid arguments, {self.tool} was not run: {text}") from values.error
        if _has_nan_text(given) and (path := next(_not_finite(values, ""), None)):
            raise InvalidArguments(
                f"invalid arguments, {self.tool} was not run:\n- {path}: expected a finite number, got NaN or infinity"
            )
        return values

    def _values(
        self,
        validated: Mapping[str, Any],
        given: Mapping[str, Any],
        untouched: Mapping[str, Held] | None = None,
    ) -> Values:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        shown: dict[str, Any] = {}
        kept: dict[str, Held] = {}
        for parameter in self.parameters:
            key, value = parameter.key, validated[parameter.name]
            if untouched and key in untouched:
                held = untouched[key]
            elif value is OMITTED:
                held = _held_default(parameter)
            else:
                sent = given.get(key, ABSENT)
                held = Held(value, True, sent, tell(value, sent))
            kept[key] = held
            if held.told is not None:
                shown[key] = held.told.shown
            if parameter.positional:
                args.append(held.value)
            elif held.passed:
                kwargs[parameter.name] = held.value
        return Values(tuple(args), kwargs, shown, kept)


def _held_default(parameter: Parameter) -> Held:
    value, passed = _default(parameter)
    known = is_plain(value) or default_json(parameter) is not OMITTED
    return Held(value, passed, ABSENT, tell(value) if known else None)


def _again(held: Held) -> Any:
    return ABSENT if held.told is None else held.told.again


def _default(parameter: Parameter) -> tuple[Any, bool]:
    """The default for one call, and whether it has to be passed: a copy where calls could share what they change."""
    if parameter.field is not None:
        return parameter.field.get_default(call_default_factory=True), True
    default = parameter.default
    mutable = isinstance(default, (list, dict, set, bytearray, BaseModel)) or hasattr(
        default, "__dataclass_fields__"
    )
    if not mutable:
        return default, False
    try:
        return copy.deepcopy(default), True
    except (TypeError, ValueError, RecursionError, copy.Error):  # it holds a lock, a file, a connection
        return default, False


def _decode(given: dict[str, Any], problems: Sequence[Any]) -> bool:
    """Decode, in place, the texts that stand where a list or an object is wanted and are JSON for one."""
    changed, tried, count = False, set(), itertools.count()
    for problem in problems:
        text = problem["input"]
        if problem["type"] not in _NESTED or not isinstance(text, str) or text.lstrip()[:1] not in ("[", "{"):
            continue
        holder, key = _place(given, problem["loc"])
        if holder is None or holder[key] is not text or (id(holder), key) in tried:
            continue
        tried.add((id(holder), key))  # once, also where each member of a union has refused it
        try:
            holder[key] = parse_part(text, count)
        except InvalidArguments:
            continue
        changed = True
    return changed


def _with_null(given: dict[str, Any], problems: Sequence[Any]) -> dict[str, Any] | None:
    """A copy with null for each refused text "null"; None when there is no such text."""
    # What a validator has made of it is never compared: it says itself what it is equal to.
    refused = [
        problem for problem in problems if type(problem["input"]) is str and problem["input"] == "null"
    ]
    if not refused:
        return None
    copied: dict[str, Any] = copy.deepcopy(given)
    places = [_place(copied, problem["loc"]) for problem in refused]
    for holder, key in places:
        if holder is not None and holder[key] == "null":
            holder[key] = None
    return copied


def _place(given: Any, location: Sequence[int | str]) -> tuple[Any, Any]:
    """The container and the key that hold what a pydantic location means; (None, None) for the whole."""
    return next(reversed(steps(given, location)), (None, None))


def _has_nan_text(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) < 12 and value.strip().lstrip("+-").lower() in ("nan", "inf", "infinity")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_nan_text(item) for item in items)


def _not_finite(value: Any, path: str) -> Iterator[str]:
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
            yield from _not_finite(item, inside)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _not_finite(item, f"{path}[{index}]")
