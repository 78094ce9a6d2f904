"""What a seam is for the fuzzer: inputs that others could send there, as plain JSON data, and what is seen of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis.strategies import SearchStrategy


@dataclass
class Seen:
    """What is seen of one input. A seam fills in what it has; `invariants` says what has to be true of it."""

    escaped: list[str] = field(default_factory=list)
    """Errors that left where none may, and those that ended a turn without anybody having expected them."""
    histories: list[tuple[str, Sequence[Mapping[str, Any]]]] = field(default_factory=list)
    """(when, the messages then): each has to be valid."""
    ran: Counter[str] = field(default_factory=Counter)
    """How often a function ran, by the identity of the call: "f 1"."""
    must_run: Sequence[str] | None = None
    """The calls that have to run, each once, and no other; None where the input does not tell."""
    may_run: set[str] | None = None
    """The calls that somebody has allowed; None where nobody has to be asked."""
    must_not_run: set[str] = field(default_factory=set)
    """The calls that are denied."""
    results: list[Any] = field(default_factory=list)
    """The Result of each turn."""
    kept_turns: list[tuple[str, Sequence[Mapping[str, Any]]]] = field(default_factory=list)
    """(when, what the history has of the turn), beside `results`; empty where the two are not compared."""
    texts: list[tuple[str, str]] = field(default_factory=list)
    """(what, a text that leaves): each can be encoded, and holds no key."""
    pairs: list[tuple[str, Any, Any]] = field(default_factory=list)
    """(what, as it is, as it has to be)."""
    steps: list[tuple[str, int, int, float]] = field(default_factory=list)
    """(what, steps for few, steps for many, how many times more there were)."""


@dataclass(frozen=True)
class Seam:
    """A place that others fill."""

    name: str
    about: str
    inputs: SearchStrategy[Any]
    """Plain JSON data, so that a found fault can be kept as a file."""
    run: Callable[[Any], Seen]
    share: int
    """How many of 100 inputs are its."""
    quick: int = 100
    """How many fresh inputs the test suite tries."""
    needs_litellm: bool = False
    """Whether LiteLLM is imported, which takes seconds, before the first input."""


KEY = "sk-live-0123456789abcdef0123"
"""A key that the inputs hold; no text that leaves may."""
