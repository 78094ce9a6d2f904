"""What the values of a run may be: checked where they come in, in one line that names the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .errors import ArgumentInvalid, ArgumentTypeInvalid

OnLimit = Literal["stop", "answer"]
ImageMode = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Check:
    """What one value may be."""

    types: Any = str
    words: str = "text"
    """The types in words."""
    least: float | None = None
    above: float | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    or_none: bool = True

    def explain_type(self, name: str, value: object) -> str:
        """What is wrong with the type of a value, or ""."""
        if self.choices or (value is None and self.or_none):
            return ""
        if isinstance(value, self.types) and (self.types is bool or not isinstance(value, bool)):
            return ""
        words = f"{self.words} or None" if self.or_none else self.words
        return f"{name} must be {words}, got {type(value).__name__} {value!r:.60}"

    def explain_value(self, name: str, value: Any) -> str:
        """What is wrong with a value of the right type, or ""."""
        if self.choices:
            *others, last = (f'"{choice}"' for choice in self.choices)
            allowed = value in self.choices
            words = f"{', '.join(others)} or {last}"
        else:
            bound = self.above if self.least is None else self.least
            if bound is None or value is None:
                return ""
            allowed = value > bound if self.least is None else value >= bound
            words = f"{'>' if self.least is None else '>='} {bound:g}{self.unit}"
        return "" if allowed else f"{name} must be {words}, got {value!r}"

    def explain(self, name: str, value: object) -> str:
        """What is wrong with a value, or ""."""
        return self.explain_type(name, value) or self.explain_value(name, value)


_WHOLE: Mapping[str, Any] = {"types": int, "words": "a whole number"}
_NUMBER = (int, float)
CHECKS: Mapping[str, Check] = {
    "instructions": Check(),
    "api_base": Check(words="an address as text"),
    "max_turns": Check(**_WHOLE, least=1),
    "timeout": Check(_NUMBER, "a number of seconds", above=0, unit=" seconds"),
    "metadata": Check(Mapping, "a mapping of names to values"),
    "on_approval": Check(Callable, "a function that takes the Approval and returns True or False"),
    "completion_kwargs": Check(Mapping, "a mapping of names to values", or_none=False),
    "output_retries": Check(**_WHOLE, least=0, or_none=False),
    "max_model_calls": Check(**_WHOLE, least=1, or_none=False),
    "max_cost": Check(_NUMBER, "an amount of US dollars", above=0, unit=" US dollars"),
    "on_limit": Check(choices=get_args(OnLimit)),
    "images": Check(choices=get_args(ImageMode)),
}
"""The keywords of the API and the fields of `ToolLoopOptions` that are plain values."""


def check_values(values: Mapping[str, object]) -> None:
    """Raise for values that a run cannot have, all of them in one line: ArgumentInvalid, or ArgumentTypeInvalid where
    only types are wrong.
    """
    wrong = [text for name, value in values.items() if (text := CHECKS[name].explain(name, value))]
    types = [text for name, value in values.items() if (text := CHECKS[name].explain_type(name, value))]
    if wrong:
        raise (ArgumentTypeInvalid if wrong == types else ArgumentInvalid)("; ".join(wrong))
