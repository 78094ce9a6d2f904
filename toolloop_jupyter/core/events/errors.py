"""The errors of this package. The message of each error is one clear line that says what to type next.

    HarnessError
    ├── CapabilityUnsupported, OptionsMismatch, SandboxError    before a run
    ├── ArgumentInvalid (ValueError), ArgumentTypeInvalid (TypeError)
    ├── HistoryInvalid, ToolDefinitionError (ValueErrors)       with .problems
    ├── SessionClosed
    ├── ModelCallFailed                                         with .advice
    ├── OutputInvalid                                           with .raw and .result
    ├── RunFailed                                               a magic cell ended in runtime_error; with .result
    ├── Mistake (ValueError)                                    in a line that a person typed in a cell
    ├── ToolFailed                                              raised by a tool's own code
    └── HarnessInstallFailed, StateIncompatible                 raised by LiteLLM's other harnesses only

An error that only one subpackage raises is defined in that subpackage (for example, RecordingError in `teaching`). A tool's own
exception, an unknown tool and arguments that do not validate are not raised to the caller. They become tool results
(`ToolResult(is_error=True)`), so that the model can react. `litellm.harness` 1.110 has the names of HarnessError,
CapabilityUnsupported, OptionsMismatch, OutputInvalid, SessionClosed, SandboxError, HarnessInstallFailed and StateIncompatible.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..execution import is_exactly, shorten_repr
from ..text import hide, hide_suspected, list_some, make_text_plain
from .events import ImageMode

if TYPE_CHECKING:
    from .result import Result


class HarnessError(Exception):
    """Base class of every error of this package.

    A notebook shows the error as one line, because IPython (7.34 to 9) calls `_render_traceback_` instead of writing a
    traceback. nbconvert and papermill still see that the cell has failed. The message may quote a provider, a model or a
    person, so terminal sequences and API keys are removed from the message.
    """

    _shown_as = ""
    """The word that a notebook shows in front of the message. If it is "", the name of the class is shown."""

    def __str__(self) -> str:
        return hide(make_text_plain(super().__str__()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _render_traceback_(self) -> list[str]:
        return [f"{self._shown_as or type(self).__name__}: {self}"]


class CapabilityUnsupported(HarnessError):
    """The Tool Loop does not have a feature that was asked for. Raised before anything starts."""


class OptionsMismatch(HarnessError):
    """The options belong to another harness of LiteLLM, not to the Tool Loop."""


class ArgumentInvalid(HarnessError, ValueError):
    """An argument has a wrong value. A notebook shows one line: with `%xmode Verbose`, a traceback would show all arguments."""

    _shown_as = "ValueError"


class ArgumentTypeInvalid(HarnessError, TypeError):
    """An argument has a wrong type."""

    _shown_as = "TypeError"


class HarnessInstallFailed(HarnessError):
    """Only LiteLLM's other harnesses raise this error. The class is here so that existing code can import it."""


class StateIncompatible(HarnessError):
    """Only LiteLLM's other harnesses raise this error. The class is here so that existing code can import it."""


class SandboxError(HarnessError):
    """The sandbox folder does not exist or cannot be read."""


class SessionClosed(HarnessError):
    """A turn was started on a session that is closed."""


class OutputInvalid(HarnessError):
    """The final answer did not validate against `output=`. `raw` is the answer as text, `result` the Result of the turn."""

    def __init__(self, message: str, raw: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.raw = raw
        self.result = result


class HistoryInvalid(HarnessError, ValueError):
    """The messages are not a valid OpenAI conversation. `problems` has one line for each fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("history is not a valid conversation: " + list_some(problems, 20, "; "))
        self.problems = tuple(problems)


class ToolDefinitionError(HarnessError, ValueError):
    """Some functions cannot be used as tools. `problems` has one line for each fault. The line says what to write instead."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(
            problems[0] if len(problems) == 1 else "\n".join(["these tools cannot be used:", *problems])
        )
        self.problems = tuple(problems)


class ToolFailed(HarnessError):
    """A tool's own code may raise this error. The model then gets only the text of the error, not the name of its class."""


class ModelCallFailed(HarnessError):
    """A model call failed after its retries. `advice` says what to set or to try; "" if there is no advice."""

    def __init__(self, message: str, advice: str = "") -> None:
        stop = "" if not advice or message.endswith((".", "!", "?")) else "."
        super().__init__(f"{message}{stop} {advice}".strip())
        self.advice = advice


class RunFailed(HarnessError):
    """The run of a `%%toolloop` cell ended in `runtime_error`. `result` has all events before the error."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class Mistake(HarnessError, ValueError):
    """A line of a magic, or a call in a cell (`show()`, `connect()`), has a mistake. The message says what to type instead.

    Texts that look like API keys are hidden in the message.
    """

    _shown_as = "toolloop"

    def __str__(self) -> str:
        return hide_suspected(super().__str__())


STOPPED = "the run was stopped"


# --- checks of the values that a run is given ------------------------------------------------------------------------

OnLimit = Literal["stop", "answer"]
OnError = Literal["continue", "stop"]
"""What happens after a row has failed. "continue": the other rows run. "stop": no other row begins."""
_NUMBER = (int, float)
_LIKE: Mapping[object, Any] = {int: numbers.Integral, _NUMBER: (numbers.Real, Decimal)}
"""`Check.types` -> the types that are also accepted, for example numbers of NumPy and pandas, fractions and decimals."""


def make_plain_number(value: Any) -> Any:
    """If `value` is a number of another class, such as Decimal, return it as int or float. Return other values unchanged."""
    if isinstance(value, (int, float)) or not isinstance(value, (numbers.Real, Decimal)):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


@dataclass(frozen=True)
class Check:
    """The values that are allowed for one keyword or option."""

    types: Any = str
    words: str = "text"
    """The allowed types in words. The error message contains these words."""
    least: int | None = None
    above: int | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    or_none: bool = True

    def find_fault(self, name: str, value: object) -> ArgumentInvalid | ArgumentTypeInvalid | None:
        """Return an error if `value` is not allowed, else None. `name` is the name of the keyword in the error message."""
        if value is None and self.or_none and not self.choices:
            return None
        must = ""
        if self.choices:
            if not is_exactly(value, *self.choices):
                must = " or ".join(", ".join(f'"{choice}"' for choice in self.choices).rsplit(", ", 1))
                must += " as plain text" if isinstance(value, str) and type(value) is not str else ""
        elif not isinstance(value, _LIKE.get(self.types, self.types)) or (
            isinstance(value, bool) and self.types is not bool
        ):
            words = f"{self.words} or None" if self.or_none else self.words
            given = f"{type(value).__name__} {shorten_repr(value, 60)}"
            return ArgumentTypeInvalid(f"{name} must be {words}, got {given}")
        elif self.least is not None and not value >= self.least:
            must = f">= {self.least}"
        elif self.above is not None and not value > self.above:
            must = f"> {self.above}{self.unit}"
        return ArgumentInvalid(f"{name} must be {must}, got {shorten_repr(value, 500)}") if must else None


CHECKS: Mapping[str, Check] = {
    "instructions": Check(),
    "api_base": Check(words="an address as text"),
    "max_turns": Check(int, "a whole number", least=1),
    "timeout": Check(_NUMBER, "a number of seconds", above=0, unit=" seconds"),
    "metadata": Check(Mapping, "a mapping of names to values"),
    "on_approval": Check(Callable, "a function that takes the Approval and returns True or False"),
    "completion_kwargs": Check(Mapping, "a mapping of names to values", or_none=False),
    "output_retries": Check(int, "a whole number", least=0, or_none=False),
    "max_model_calls": Check(int, "a whole number", least=1, or_none=False),
    "max_cost": Check(_NUMBER, "an amount of US dollars", above=0, unit=" US dollars"),
    "budget": Check(_NUMBER, "an amount of US dollars", above=0, unit=" US dollars"),
    "fallback": Check((list, tuple), "a list of models", or_none=False),
    "on_limit": Check(choices=get_args(OnLimit)),
    "images": Check(choices=get_args(ImageMode)),
    "variables": Check(Mapping, "a mapping of names to values"),
    "concurrency": Check(int, "a whole number", least=1, or_none=False),
    "on_error": Check(choices=get_args(OnError)),
}
"""Name -> the check of the value. A name is a keyword, a field of `ToolLoopOptions` or `RowsOptions`, or a `%toolloop` option."""


def check_values(values: Mapping[str, object]) -> dict[str, Any]:
    """Check `values` (keyword of a run -> value), and return them with plain numbers (see `make_plain_number`).

    If values are wrong, raise one error that names all faults: ArgumentTypeInvalid if all faults are wrong types, else
    ArgumentInvalid.
    """
    faults, plain = [], {}
    for name, value in values.items():
        plain[name] = make_plain_number(value)
        if fault := CHECKS[name].find_fault(name, value):
            faults.append(fault)
    if faults:
        only_types = all(isinstance(fault, ArgumentTypeInvalid) for fault in faults)
        raise (ArgumentTypeInvalid if only_types else ArgumentInvalid)("; ".join(map(str, faults)))
    return plain
