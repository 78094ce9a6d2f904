"""What the values of a run may be: checked where they come in, in one line that names the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..execution import is_exactly
from .errors import ArgumentInvalid, ArgumentTypeInvalid
from .events import ImageMode

OnLimit = Literal["stop", "answer"]


@dataclass(frozen=True)
class Check:
    """What one value may be."""

    types: Any = str
    words: str = "text"
    """The types in words."""
    least: int | None = None
    above: int | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    or_none: bool = True

    def find_fault(self, name: str, value: object) -> ArgumentInvalid | ArgumentTypeInvalid | None:
        """What is wrong with a value, as the error to raise; None when it is allowed."""
        if self.choices:
            if is_exactly(value, *self.choices):
                return None
            words = " or ".join(", ".join(f'"{choice}"' for choice in self.choices).rsplit(", ", 1))
            return ArgumentInvalid(f"{name} must be {words}, got {value!r}")
        if value is None and self.or_none:
            return None
        if not isinstance(value, self.types) or (isinstance(value, bool) and self.types is not bool):
            words = f"{self.words} or None" if self.or_none else self.words
            return ArgumentTypeInvalid(f"{name} must be {words}, got {type(value).__name__} {value!r:.60}")
        if self.least is not None and not value >= self.least:
            return ArgumentInvalid(f"{name} must be >= {self.least}, got {value!r}")
        if self.above is not None and not value > self.above:
            return ArgumentInvalid(f"{name} must be > {self.above}{self.unit}, got {value!r}")
        return None


_NUMBER = (int, float)
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
    "on_limit": Check(choices=get_args(OnLimit)),
    "images": Check(choices=get_args(ImageMode)),
}
"""The keywords of the API and the fields of `ToolLoopOptions` that are plain values."""


def check_values(values: Mapping[str, object]) -> None:
    """Raise for values that a run cannot have, all of them in one line: ArgumentInvalid, or ArgumentTypeInvalid where
    only types are wrong.
    """
    faults = []
    for name, value in values.items():
        if fault := CHECKS[name].find_fault(name, value):
            faults.append(fault)
    if faults:
        only_types = all(isinstance(fault, ArgumentTypeInvalid) for fault in faults)
        raise (ArgumentTypeInvalid if only_types else ArgumentInvalid)("; ".join(map(str, faults)))
