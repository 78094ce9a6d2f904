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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from ..events import is_same_json
from ..execution import MISSING, Raised, attempt_call, describe_error
from .messages import WANTS_CONTAINER, InvalidArguments, explain_problems, find_steps, shorten_json
from .parsing import JsonObject, parse_arguments, parse_part
from .preview import check_edit, holds_note, is_plain, preview
from .schema import find_default_json
from .signature import Parameter


class Argument(NamedTuple):
    """One argument of one call: its value, and what is shown of it."""

    parameter: Parameter
    value: object
    passed: bool
    """Whether the function is given it; else its own default applies."""
    sent: object
    """JSON that the model sent for it, or MISSING."""
    shown: object
    """JSON to show and to keep; MISSING for a default that is no JSON: it cannot be shown, and not be edited."""

    @property
    def has_changed(self) -> bool:
        """Whether the value is no longer what is shown: a validator gave what others can change, too."""
        if self.shown is MISSING or is_plain(self.value):
            return False
        return not is_same_json(preview(self.value, self.sent), self.shown)


ArgumentsByKey: TypeAlias = Mapping[str, Argument]
"""A call's arguments by their names in the schema."""


def list_shown(arguments: ArgumentsByKey) -> JsonObject:
    """What is shown of a call: its arguments as JSON by the schema's names, with the defaults that apply."""
    return {key: one.shown for key, one in arguments.items() if one.shown is not MISSING}


@dataclass(frozen=True)
class Arguments:
    """Reads the arguments of one tool's calls."""

    tool: str
    parameters: Sequence[Parameter]
    adapter: TypeAdapter[JsonObject]
    """Makes values by Python names of JSON by the schema's names."""

    def read(self, raw: object) -> ArgumentsByKey:
        """Typed values from the arguments as the model sent them: text, None or a mapping.

        Raises InvalidArguments.
        """
        with self._naming_tool():
            given = parse_arguments(raw)
        return self._make(given, {})

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """The same call with what a person made of what they were shown; an argument that they left alone keeps its value.

        The others are validated anew. `arguments` themselves where nothing was changed. Raises InvalidArguments, also
        for an edit that does something else than it shows.
        """
        shown = list_shown(arguments)
        if is_same_json(dict(edited), shown):
            return arguments
        untouched = {
            key: arguments[key] for key in shown if key in edited and is_same_json(edited[key], shown[key])
        }
        with self._naming_tool():
            given = parse_arguments(edited)
            for key, value in given.items():
                if key not in untouched and holds_note(value):
                    raise InvalidArguments(
                        f"{shorten_json(value)}: a hidden value stays only in an argument that is left as it was; "
                        "type it anew"
                    )
        sent = {key: untouched[key].sent if key in untouched else value for key, value in given.items()}
        made = self._make({key: value for key, value in sent.items() if value is not MISSING}, untouched)
        with self._naming_tool():
            check_edit(list_shown(made), edited, shown)
        return arguments if is_same_json(list_shown(made), shown) and not holds_note(shown) else made

    @contextlib.contextmanager
    def _naming_tool(self) -> Iterator[None]:
        try:
            yield
        except InvalidArguments as error:
            raise InvalidArguments(f"{error}; {self.tool} was not run") from None

    def _make(self, given: JsonObject, untouched: ArgumentsByKey) -> ArgumentsByKey:
        """The arguments from the JSON of a call, by the schema's names or by the parameters' own."""
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
        """The values by Python names. Decodes texts in `given` that are JSON."""
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
        values = attempt_call(self.adapter.validate_json, to_json(given))
        if isinstance(values, Raised):
            if isinstance(values.error, ValidationError):
                return values.error
            # Raised by a validator of the person's own types.
            told = f"invalid arguments, {self.tool} was not run: {describe_error(values.error, 500)}"
            raise InvalidArguments(told) from values.error
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
    return Argument(parameter, value, passed, MISSING, preview(value) if is_shown else MISSING)


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
