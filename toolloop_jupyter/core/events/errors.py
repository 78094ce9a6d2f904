"""The errors of this package, each with one clear line that says what to type next.

    HarnessError                    the base class of all others; the name is LiteLLM's
    ├── CapabilityUnsupported       the Tool Loop does not have what was asked for (skills, resume, …)
    ├── OptionsMismatch             the options of another of LiteLLM's harnesses
    ├── OutputInvalid               the final answer does not fit output=; has .raw and .result
    ├── SessionClosed               a turn on a closed session
    ├── SandboxError                the sandbox folder cannot be read
    ├── HarnessInstallFailed, StateIncompatible    of LiteLLM's other harnesses; never raised here
    ├── ArgumentInvalid             (also ValueError) an impossible value for an argument of agent() or a like function
    ├── ArgumentTypeInvalid         (also TypeError) a value of the wrong type for such an argument
    ├── HistoryInvalid              (also ValueError) messages that no provider would accept; has .problems
    ├── ToolDefinitionError         (also ValueError) functions that cannot be tools; all problems at once
    ├── ToolFailed                  raised by a tool's own code; the model gets its text unchanged
    ├── ModelCallFailed             a model call failed after its retries; .advice says what to set
    ├── RunFailed                   a magic cell whose run ended in runtime_error; has .result
    └── Mistake                     (also ValueError) a mistake in the line of a magic

Errors that only one subpackage raises (RecordingError: `teaching`, …) are defined there.

A tool's own exception, an unknown tool and arguments that do not validate are not raised to the caller. They become tool
results (`ToolResult(is_error=True)`), so that the model can react.

The errors down to StateIncompatible have the names of `litellm.harness` 1.110.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..execution import is_exactly, shorten_repr
from ..text import hide, hide_suspected, list_some, plain
from .events import ImageMode

if TYPE_CHECKING:
    from .result import Result


class HarnessError(Exception):
    """Base class of every error of this package.

    Notebooks show it as one line: IPython (7.34 to 9) calls `_render_traceback_` in the place of a traceback. The cell
    still counts as failed for nbconvert and papermill. Control sequences and API keys are taken out of the message, since
    it may quote a provider, a model or what a person typed.
    """

    def __str__(self) -> str:
        return hide(plain(super().__str__()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class CapabilityUnsupported(HarnessError):
    """The Tool Loop cannot do what was asked. Raised before anything starts."""


class OptionsMismatch(HarnessError):
    """The options are those of another of LiteLLM's harnesses, not of the Tool Loop."""


class ArgumentInvalid(HarnessError, ValueError):
    """An argument has an impossible value. Shown as one line: a traceback of `%xmode Verbose` shows every argument."""

    def _render_traceback_(self) -> list[str]:
        return [f"ValueError: {self}"]


class ArgumentTypeInvalid(HarnessError, TypeError):
    """An argument has the wrong type. Shown as one line, like `ArgumentInvalid`."""

    def _render_traceback_(self) -> list[str]:
        return [f"TypeError: {self}"]


class HarnessInstallFailed(HarnessError):
    """An error of LiteLLM's other harnesses, never raised here. It exists so that code which catches it works here, too."""


class StateIncompatible(HarnessError):
    """An error of LiteLLM's other harnesses, like `HarnessInstallFailed`; never raised here."""


class SandboxError(HarnessError):
    """The sandbox folder does not exist or cannot be read."""


class SessionClosed(HarnessError):
    """A turn was started on a session that is closed."""


class OutputInvalid(HarnessError):
    """The final answer did not validate against `output=`.

    `raw` is the model's last answer as text; `result` is the `Result` of the turn, with the work that was done.
    """

    def __init__(self, message: str, raw: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.raw = raw
        self.result = result


class HistoryInvalid(HarnessError, ValueError):
    """The messages are no valid OpenAI conversation. `problems` has a line for each fault and its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("history is not a valid conversation: " + list_some(problems, 20, "; "))
        self.problems = tuple(problems)


class ToolDefinitionError(HarnessError, ValueError):
    """Some functions cannot be tools as they are. `problems` has a line for each fault, with what to write instead."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(
            problems[0] if len(problems) == 1 else "\n".join(["these tools cannot be used:", *problems])
        )
        self.problems = tuple(problems)


class ToolFailed(HarnessError):
    """Raised by a tool's own code: the model gets the error's text unchanged, without the name of its class."""


class ModelCallFailed(HarnessError):
    """A model call failed after its retries. `advice` says what to set or try, or is empty."""

    def __init__(self, message: str, advice: str = "") -> None:
        stop = "" if not advice or message.endswith((".", "!", "?")) else "."
        super().__init__(f"{message}{stop} {advice}".strip())
        self.advice = advice


class RunFailed(HarnessError):
    """The run of a `%%toolloop` cell ended in `runtime_error`. `result` has the work that was done before."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class Mistake(HarnessError, ValueError):
    """The line of a magic has a mistake. The message says what to type instead, and hides all that looks like an API key."""

    def __str__(self) -> str:
        return hide_suspected(super().__str__())

    def _render_traceback_(self) -> list[str]:
        return [f"toolloop: {self}"]


STOPPED = "the run was stopped"


# --- checks of the values that a run is given ------------------------------------------------------------------------

OnLimit = Literal["stop", "answer"]
_NUMBER = (int, float)
_LIKE: Mapping[object, Any] = {int: numbers.Integral, _NUMBER: (numbers.Real, Decimal)}
"""Type of a check -> the types that are taken for it: numbers of NumPy and pandas, fractions, decimals."""


def make_plain_number(value: Any) -> Any:
    """Return a number of another class as int or float; any other value unchanged."""
    if isinstance(value, (int, float)) or not isinstance(value, (numbers.Real, Decimal)):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


@dataclass(frozen=True)
class Check:
    """The values that are allowed for one keyword or option."""

    types: Any = str
    words: str = "text"
    """The allowed types in words, for the message."""
    least: int | None = None
    above: int | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    or_none: bool = True

    def find_fault(self, name: str, value: object) -> ArgumentInvalid | ArgumentTypeInvalid | None:
        """Return the error to raise for `value`; None if it is allowed."""
        if self.choices:
            if is_exactly(value, *self.choices):
                return None
            words = " or ".join(", ".join(f'"{choice}"' for choice in self.choices).rsplit(", ", 1))
            return ArgumentInvalid(f"{name} must be {words}, got {shorten_repr(value, 500)}")
        if value is None and self.or_none:
            return None
        if not isinstance(value, _LIKE.get(self.types, self.types)) or (
            isinstance(value, bool) and self.types is not bool
        ):
            words = f"{self.words} or None" if self.or_none else self.words
            return ArgumentTypeInvalid(
                f"{name} must be {words}, got {type(value).__name__} {shorten_repr(value, 60)}"
            )
        if self.least is not None and not value >= self.least:
            return ArgumentInvalid(f"{name} must be >= {self.least}, got {shorten_repr(value, 500)}")
        if self.above is not None and not value > self.above:
            return ArgumentInvalid(
                f"{name} must be > {self.above}{self.unit}, got {shorten_repr(value, 500)}"
            )
        return None


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
}
"""Name -> its check, for keywords of the API and fields of `ToolLoopOptions` that take plain values."""


def check_values(values: Mapping[str, object]) -> None:
    """Check the keywords of a run. Raises one error for all faults: ArgumentTypeInvalid if only types are wrong, else
    ArgumentInvalid.
    """
    faults = []
    for name, value in values.items():
        if fault := CHECKS[name].find_fault(name, value):
            faults.append(fault)
    if faults:
        only_types = all(isinstance(fault, ArgumentTypeInvalid) for fault in faults)
        raise (ArgumentTypeInvalid if only_types else ArgumentInvalid)("; ".join(map(str, faults)))
