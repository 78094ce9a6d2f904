"""Looks for inputs that break an invariant, with hypothesis, which makes these inputs as small as possible."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.errors import Flaky

from fuzz.invariants import INVARIANTS
from fuzz.running import make_ready
from fuzz.seam import Seam, Seen

BATCH = 250
"""The number of inputs of one run of hypothesis, which remembers all of them. So longer runs become slow."""
LONGEST = 30.0
"""The most seconds that one input may take. Usually it takes some milliseconds."""


@dataclass(frozen=True)
class Fault:
    """An input for which an invariant is not true."""

    seam: str
    invariant: str
    what: str
    input: Any
    after: int = 0
    """How many inputs of the seam were tried before."""

    @property
    def kind(self) -> str:
        """A text that is the same for similar faults: names, numbers and texts are left out."""
        return (
            self.invariant
            + ": "
            + re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+|\s+|[^\x21-\x7e]", " ", self.what)[:60]
        )


class _FaultFound(Exception):
    """Raised to hypothesis, which keeps different faults apart while it makes them smaller."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)


_CLASSES: dict[str, type[_FaultFound]] = {}


class _Overdue(Exception):
    """An input takes too long."""


@contextmanager
def _within_time() -> Iterator[list[str]]:
    """Interrupt the code in the context if it takes too long. The list then has an entry."""
    late: list[str] = []
    if not hasattr(signal, "setitimer"):  # Windows
        yield late
        return

    def ring(*_: object) -> None:
        late.append(f"took longer than {LONGEST:g} s")
        raise _Overdue(late[0])

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LONGEST, 5.0)
    try:
        yield late
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def find_fault(seam: Seam, given_input: Any) -> Fault | None:
    """Run one input. Return the first invariant that is not true for it; None if all are true."""
    if seam.needs_litellm:
        make_ready()
    with _within_time() as late:
        try:
            seen = seam.run(given_input)
        except _Overdue:
            seen = Seen()
    seen.escaped[:0] = late
    for invariant in INVARIANTS:
        for what in invariant(seen):
            return Fault(seam.name, invariant.__name__, what, given_input)
    return None


@dataclass
class Report:
    """The result of a search."""

    seam: str
    inputs: int = 0
    seconds: float = 0.0
    """CPU seconds of this process."""
    faults: list[Fault] = field(default_factory=list)

    def __str__(self) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0.0
        return f"{self.seam:<13} {self.inputs:>7,} inputs  {rate:>7,.0f} a second of CPU  {len(self.faults)} faults"


def search(seam: Seam, inputs: int, seed: int, tell: Callable[[Fault], None] = lambda fault: None) -> Report:
    """Try this number of new inputs. Keep the smallest input for each kind of fault."""
    report, began, batch = Report(seam.name), time.process_time(), 0
    kinds: set[str] = set()
    while report.inputs < inputs:
        tried, fault = _run_batch(seam, min(BATCH, inputs - report.inputs), seed * 1_000_003 + batch, kinds)
        batch += 1
        if fault is not None:
            fault = Fault(fault.seam, fault.invariant, fault.what, fault.input, report.inputs + tried)
            kinds.add(fault.kind)
            report.faults.append(fault)
            tell(fault)
        report.inputs += max(tried, 1)
    report.seconds = time.process_time() - began
    return report


def _run_batch(seam: Seam, inputs: int, seed: int, known: set[str]) -> tuple[int, Fault | None]:
    """Return (how many inputs were tried, the fault that was found, made small)."""
    tried, faults = 0, list[Fault]()

    @hypothesis.seed(seed)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
    )
    @given(seam.inputs)
    def try_one(given_input: Any) -> None:
        nonlocal tried
        tried += not faults
        fault = find_fault(seam, given_input)
        if fault is not None and fault.kind not in known:
            faults.append(fault)
            made = _CLASSES.setdefault(fault.kind, type("FaultFound", (_FaultFound,), {}))
            raise made(fault)

    try:
        try_one()
    except _FaultFound:
        return tried, faults[-1]
    except Flaky:
        last = faults[-1]
        return tried, Fault(last.seam, last.invariant, f"not at each try: {last.what}", last.input)
    return tried, None
