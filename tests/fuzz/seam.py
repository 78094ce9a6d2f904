"""A seam, for the fuzzer: inputs that others could send there, as plain JSON data, and what is seen of each input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis.strategies import SearchStrategy


@dataclass
class Seen:
    """What is seen of one input. A seam fills in the fields that it has. `invariants` says what must be true of them."""

    escaped: list[str] = field(default_factory=list)
    """Errors that were raised where none may be raised, and unexpected errors that ended a turn."""
    histories: list[tuple[str, Sequence[Mapping[str, Any]]]] = field(default_factory=list)
    """(when, the messages at that time). Each list of messages must be valid."""
    ran: Counter[str] = field(default_factory=Counter)
    """Identity of a call, such as "f 1" -> how often its function ran."""
    must_run: Sequence[str] | None = None
    """The only calls that may run, each exactly once. None if the input does not determine them."""
    may_run: set[str] | None = None
    """The calls that somebody has allowed. None if nobody has to be asked."""
    must_not_run: set[str] = field(default_factory=set)
    """The calls that are denied."""
    results: list[Any] = field(default_factory=list)
    """The Result of each turn."""
    kept_turns: list[tuple[str, Sequence[Mapping[str, Any]]]] = field(default_factory=list)
    """For each of `results`: (when, the turn in the history). Empty if the two are not compared."""
    texts: list[tuple[str, str]] = field(default_factory=list)
    """(the kind of text, a text that leaves the package). Each can be encoded, and contains no key."""
    pairs: list[tuple[str, Any, Any]] = field(default_factory=list)
    """(what it is, the actual value, the expected value)."""
    steps: list[tuple[str, int, int, float]] = field(default_factory=list)
    """(what was read, steps for few repetitions, steps for many, how many times more repetitions there were)."""


@dataclass(frozen=True)
class Seam:
    """A place where data comes from outside."""

    name: str
    about: str
    inputs: SearchStrategy[Any]
    """Plain JSON data, so that an input with a fault can be kept as a file."""
    run: Callable[[Any], Seen]
    share: int
    """How many of 100 inputs are for this seam."""
    quick: int = 100
    """How many new inputs the test suite tries."""
    needs_litellm: bool = False
    """True if LiteLLM must be imported before the first input, which takes seconds."""


KEY = "sk-live-0123456789abcdef0123"
"""A key that the inputs contain. No text that leaves the package may contain it."""
