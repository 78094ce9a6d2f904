"""Where prints and displays go while a run is on: told apart by contextvars, not by "whichever cell runs now".

While at least one `into(target)` is entered anywhere, thin proxies stand on `sys.stdout` and `sys.stderr` and on two
methods of the shell's display publisher (on that one object, never on a class). Each write looks at the contextvar:
code started inside `into` (its tasks, and threads that run in a copy of its context, as `asyncio.to_thread` and
the loop's tool threads do) reaches the target; everybody else falls through to what was found. When the last one
leaves, what was found is put back. A proxy that somebody has kept meanwhile (a logging handler) goes on falling through.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from ...core.execution import IDLE_THREAD, TOOL_THREAD

Sink = Callable[[str, Any], None]
"""Called with ("stdout" | "stderr", text) or ("display", Bundle), from the thread that writes."""


class Bundle(dict[str, Any]):
    """A MIME bundle as `display()` made it: a dict of MIME type to data, with what else was said about it."""

    metadata: Mapping[str, Any]
    display_id: str | None
    replaces: bool
    """Whether this replaces what was shown before under the same `display_id`."""

    def __init__(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, *, replaces: bool
    ) -> None:
        super().__init__(data)
        self.metadata, self.display_id, self.replaces = metadata, display_id, replaces


class Target(Protocol):
    """Something that takes output."""

    def write(self, name: str, text: str) -> None: ...
    def flush(self, name: str) -> None: ...
    def publish(self, bundle: Bundle) -> None: ...
    def clear(self, wait: bool = True) -> None: ...  # noqa: FBT001, FBT002 - IPython's own signature

    may_be_cleared: bool
    """Whether `clear_output()` of the code inside reaches it: not where that would take a transcript away."""


_target: ContextVar[Target | None] = ContextVar("toolloop_output", default=None)


class _Unset:
    """What the variable is in a context that has never seen it, told from a None that was set."""


_UNSET = _Unset()
_lock = threading.RLock()


def shell() -> Any:
    """The running IPython shell, or None. Imports nothing: a shell exists only where IPython is imported."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None


def current_target() -> Target | None:
    """The target that output of the calling code reaches, or None outside of `into`."""
    return _target.get()


def _target_here() -> Target | None:
    """The target for what the calling code writes: its context's, or that of the tool whose thread it is."""
    target = _target.get(_UNSET)
    if not isinstance(target, _Unset):
        return target
    owner: Target | None = target_of(threading.current_thread())
    return owner


def let_be(target: Target | None) -> None:
    """Let `target` be that of what runs in the current context from now on."""
    _target.set(target)


def clean_context() -> Context:
    """A copy of the current context in which output falls through."""
    context = copy_context()
    context.run(_target.set, None)
    return context


@contextmanager
def into(target: Target | None) -> Iterator[None]:
    """Send prints and displays of the code inside, and of what it starts, to `target` (None: to nobody of ours)."""
    taken = _stand() if target is not None else []
    before = _target.get()
    token = _target.set(target)
    try:
        yield
    finally:
        try:
            _target.reset(token)
        except ValueError:  # left in a copy of the context it was entered in
            _target.set(before)
        with _lock:
            for proxy in taken:
                proxy.leave()


@contextmanager
def capture(sink: Sink) -> Iterator[None]:
    """Send prints and displays of the code inside, and of what it starts, to `sink` instead of the cell.

    `clear_output()` does nothing inside: it would clear the whole cell. Nested and overlapping captures do not see
    each other, whatever the order in which they end.
    """
    with keeping(_SinkTarget(sink)):
        yield


@contextmanager
def keeping(target: Target) -> Iterator[None]:
    """Like `into`, and what the code inside leaves behind in threads goes on writing to `target`."""
    outer = _target.get()
    with into(target):
        mine = Capture(target, outer)
        try:
            yield
        finally:
            if left := mine.end():
                _outlast(target, left)


def _outlast(target: Target, left: list[threading.Thread]) -> None:
    """Let the proxies stand until the threads that a capture has left behind have ended: what they print still reaches
    `target` then, and no later cell.
    """
    standing = threading.Event()

    def wait() -> None:
        with into(target):
            standing.set()
            for thread in left:
                wait_for(thread)

    threading.Thread(target=wait, name=WAITING, daemon=True).start()
    standing.wait(1.0)


class _SinkTarget:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, name: str, text: str) -> None:
        self._sink(name, text)

    def flush(self, name: str) -> None:
        pass

    def publish(self, bundle: Bundle) -> None:
        self._sink("display", bundle)

    may_be_cleared = False

    def clear(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002
        pass  # what was captured is not on a screen


def flush(target: Target | None) -> None:
    """Send on what was printed to a target, or (None) to whoever was found."""
    for name in ("stdout", "stderr"):
        if target is not None:
            target.flush(name)
        elif (stream := unwrapped(getattr(sys, name))) is not None:
            stream.flush()


def unwrapped(stream: Any) -> Any:
    """The stream below our proxies."""
    while isinstance(stream, _Stream):
        stream = stream._found
    return stream


def _stand() -> list[Any]:
    """Put the proxies where there are none, and count one more user for each."""
    taken: list[Any] = []
    with _lock:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:  # no console (pythonw)
                continue
            if not isinstance(stream, _Stream):
                stream = _Stream(name, stream)
                setattr(sys, name, stream)
            taken.append(stream)
            if type(stream._found).__name__ == "OutStream":
                taken.append(
                    getattr(stream._found.write, "_toolloop_hook", None) or _KeptStream(name, stream._found)
                )
        publisher = getattr(shell(), "display_pub", None)
        if publisher is not None:
            hook = getattr(publisher.publish, "_toolloop_hook", None) or _PublisherHook(publisher)
            taken.append(hook)
        for proxy in taken:
            proxy.users += 1
    return taken


class _Stream:
    """Stands on sys.stdout or sys.stderr. Everything that is not written to a target is the found stream's."""

    def __init__(self, name: str, found: Any) -> None:
        self._name, self._found, self.users = name, found, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def write(self, text: str) -> int:
        target = _target_here()
        if target is None:
            return self._found.write(text)  # type: ignore[no-any-return]
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        target.write(self._name, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        target = _target_here()
        if target is None:
            self._found.flush()
        else:
            target.flush(self._name)

    def leave(self) -> None:
        self.users -= 1
        if self.users == 0 and getattr(sys, self._name) is self:
            below = self._found
            while isinstance(below, _Stream) and below.users == 0:
                below = below._found
            setattr(sys, self._name, below)


class _KeptStream:
    """Stands on `write` of ipykernel's stream itself, as an attribute of that object alone.

    A logging handler made before the run holds the stream that it found, and writes past what stands on sys.stderr.
    """

    def __init__(self, name: str, stream: Any) -> None:
        self._stream, self.users = stream, 0
        # IPython 9 keeps a write of its own there while a cell runs, for its history of outputs.
        self._before = vars(stream).get("write")
        found = stream.write

        def write(text: str) -> int:
            target = _target_here()
            if target is None:
                return found(text)  # type: ignore[no-any-return]
            target.write(name, text)
            return len(text)

        write._toolloop_hook = self  # type: ignore[attr-defined]
        stream.write = self._ours = write

    def leave(self) -> None:
        self.users -= 1
        if self.users == 0 and vars(self._stream).get("write") is self._ours:
            del self._stream.write
            if self._before is not None:
                self._stream.write = self._before


class _PublisherHook:
    """Stands on `publish` and `clear_output` of one display publisher, as attributes of that object alone.

    IPython's `capture_output` puts another publisher on the shell instead, so both can be used at once.
    """

    def __init__(self, publisher: Any) -> None:
        self._publisher, self.users = publisher, 0
        found = vars(publisher)
        self._before = {name: found[name] for name in ("publish", "clear_output") if name in found}
        found_publish, found_clear = publisher.publish, publisher.clear_output

        def publish(data: Any, metadata: Any = None, *args: Any, **kwargs: Any) -> None:
            target = _target_here()
            if target is None:
                found_publish(data, metadata, *args, **kwargs)
                return
            display_id = (kwargs.get("transient") or {}).get("display_id")
            target.publish(Bundle(data, metadata or {}, display_id, replaces=bool(kwargs.get("update"))))

        def clear_output(*args: Any, **kwargs: Any) -> None:
            target = _target_here()
            if target is None:
                found_clear(*args, **kwargs)
            elif getattr(target, "may_be_cleared", False):
                target.clear(*args, **kwargs)

        publish._toolloop_hook = self  # type: ignore[attr-defined]
        self._ours = {"publish": publish, "clear_output": clear_output}
        for name, method in self._ours.items():
            setattr(publisher, name, method)

    def leave(self) -> None:
        self.users -= 1
        if self.users:
            return
        for name, method in self._ours.items():
            if vars(self._publisher).get(name) is method:
                with suppress(AttributeError):
                    delattr(self._publisher, name)
                if name in self._before:
                    setattr(self._publisher, name, self._before[name])


# --- Threads that a tool starts by itself, without the tool's context: whose output theirs is. ----------------
#
# While a single tool runs, a thread that was not there before is taken for that tool's; so is one that it leaves behind.
# With several tools at once nobody can tell, and what such a thread writes falls through to the cell.

WAITING = "toolloop-late"
"""The name of a thread that waits for those left behind."""
_NOT_LEFT = ("asyncio_", "ThreadPoolExecutor", WAITING, "toolloop-import", "toolloop-show", IDLE_THREAD)
"""Names of threads that stay for other reasons: pools, and what is ours."""

_captures: list[Capture] = []
_owners: WeakKeyDictionary[threading.Thread, Any] = WeakKeyDictionary()


class Capture:
    """One capture on its way, and the threads that were busy before it."""

    def __init__(self, target: Any, outer: Any = None) -> None:
        """`outer` is the target around it: a run's, around that of one of its tools."""
        self.target, self.outer = target, outer
        self.known = WeakSet(thread for thread in threading.enumerate() if thread.name != IDLE_THREAD)
        _captures.append(self)

    def end(self) -> list[threading.Thread]:
        """End it; returns the threads that go on and may write to its target."""
        is_innermost = _innermost() is self
        _captures.remove(self)
        left = [thread for thread in threading.enumerate() if thread not in self.known and _may_write(thread)]
        if is_innermost:
            mine = [thread for thread in left if thread.name != TOOL_THREAD and thread not in _owners]
            _owners.update((thread, self.target) for thread in mine)
        return left


def _innermost() -> Capture | None:
    """The capture that all others are around; None where two go on side by side, or none does."""
    around = {id(capture.outer) for capture in _captures if capture.outer is not capture.target}
    innermost = [capture for capture in _captures if id(capture.target) not in around]
    return innermost[0] if len(innermost) == 1 else None


def wait_for(thread: threading.Thread) -> None:
    """Wait until a thread has ended, or a tool's thread its tool: it goes on to other work then."""
    is_tools = thread.name == TOOL_THREAD
    while thread.is_alive() and (not is_tools or thread.name == TOOL_THREAD):
        thread.join(0.2)


def _may_write(thread: threading.Thread) -> bool:
    """No subclasses: such threads are a library's own (tqdm's monitor), and stay as long as the kernel."""
    return type(thread) in (threading.Thread, threading.Timer) and not thread.name.startswith(_NOT_LEFT)


def target_of(thread: threading.Thread) -> Any:
    """The target of a thread whose context has none, or None."""
    only = _innermost()
    if only is None or thread in _owners:
        return _owners.get(thread)
    foreign = thread.name.startswith("Dummy-")  # not started by Python: the kernel's own
    return None if foreign or thread in only.known else only.target
