"""A place for output, as the rest of the package knows it: display, update, clear, and the output of code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from .kernel_output import Bundle, Target, flush, into, keeping, let_be, shell


class Place:
    """A place for output: a target, or (None) the terminal.

    `can_update` says whether `update()` shows anything: not in a terminal, where `display()` prints the text/plain.
    """

    def __init__(self, target: Target | None) -> None:
        self._target = target
        self.can_update = target is not None

    def display(
        self,
        bundle: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        display_id: str | None = None,
    ) -> None:
        """Show a MIME bundle (values of JSON types, or bytes for pictures) as a new output."""
        self._publish(Bundle(bundle, metadata or {}, display_id, replaces=False))

    def update(
        self, bundle: Mapping[str, Any], display_id: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Replace what was shown under `display_id`. Does nothing where `can_update` is False."""
        if self.can_update:
            self._publish(Bundle(bundle, metadata or {}, display_id, replaces=True))

    def clear(self) -> None:
        """Take everything away that the place shows, as soon as the next output comes."""
        if self._target is not None:
            self._target.clear()

    def outputs(self) -> AbstractContextManager[None]:
        """Send prints and displays of the code inside, and of what it starts, to this place.

        Threads count when they run in a copy of the context. One that may outlive the run enters it itself, in the
        thread: then what it prints afterwards still goes here.
        """
        return nullcontext() if self._target is None else self._inside(self._target)

    @contextmanager
    def _inside(self, target: Target) -> Iterator[None]:
        with into(target):
            try:
                yield
            finally:  # before what the cell prints next
                flush(target)

    def let_be_here(self) -> None:
        """Let this be the place of what runs in the current context from now on."""
        let_be(self._target)

    def run(self, *, may_be_cleared: bool) -> AbstractContextManager[None]:
        """The same for a whole run: what its tools leave behind writes to this place, too.

        `may_be_cleared` says whether their `clear_output()` clears it: not where something of ours stands there.
        """
        if self._target is None:
            return nullcontext()
        self._target.may_be_cleared = may_be_cleared
        return self._whole_run(self._target)

    @contextmanager
    def _whole_run(self, target: Target) -> Iterator[None]:
        with keeping(target), self._inside(target):
            yield

    def _publish(self, bundle: Bundle) -> None:
        if self._target is not None:
            self._target.publish(bundle)
        elif shell() is not None:
            shell().display_pub.publish(data=dict(bundle), metadata=dict(bundle.metadata))
        elif "text/plain" in bundle:
            sys.stdout.write(f"{bundle['text/plain']}\n")
