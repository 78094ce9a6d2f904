"""Redirects prints and displays: each goes to the target of the code that makes it, whichever cell runs at that time.

The target is in a context variable. All code inside `redirect_output(target)` has this target: also its tasks, and threads that
run in a copy of the context (`asyncio.to_thread` and tool threads do). While any redirection is entered, there are hooks on
`sys.stdout`, on `sys.stderr`, on the shell's display publisher, and on the methods that send a cell's value and traceback. Each
write through a hook looks up the target. Without a target, output goes where it went before. The last redirection that ends
removes the hooks. Other code may keep a removed hook (a logging handler keeps a stream); the hook then passes everything on.

A thread that a tool starts without the context has no target. While a single tool runs, each such thread that begins counts as
that tool's, also after the tool's end. While several tools run side by side, nobody can tell which tool started such a thread,
so its output is not redirected.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from ...core.execution import IDLE_THREAD, TOOL_THREAD
from .where import get_shell

Sink = Callable[[str, Any], None]
"""Called with ("stdout" | "stderr", text) or ("display", Bundle), from the thread that writes."""


class Bundle(dict[str, object]):
    """A MIME bundle of `display()`: MIME type -> data. With `replaces`, it replaces the output that has the same `display_id`."""

    def __init__(
        self,
        data: Mapping[str, object],
        metadata: Mapping[str, object],
        display_id: str | None,
        *,
        replaces: bool,
    ) -> None:
        super().__init__(data)
        self.metadata, self.display_id, self.replaces = metadata, display_id, replaces


class Target:
    """Takes redirected output."""

    may_be_cleared = False
    """True if `clear_output()` in the redirected code clears this target. False if that would clear a transcript."""

    def write(self, name: str, text: str) -> None: ...
    def flush(self, name: str) -> None: ...
    def publish(self, bundle: Bundle) -> None: ...
    def clear(self, wait: bool = True) -> None: ...  # noqa: FBT001, FBT002 - IPython's own signature


_target: ContextVar[Target | None] = ContextVar("toolloop_output")
"""The target of the code in this context. None lets output through. Without a value, the thread's tool decides."""


def get_target() -> Target | None:
    """The target of this context, or None."""
    return _target.get(None)


def get_target_outside_tools() -> Target | None:
    """Return the target of the cell around the tools in which this context runs."""
    target = get_target()
    while isinstance(target, _SinkTarget):
        target = target.outer
    return target


def copy_context_without_target() -> Context:
    """Return a copy of the current context in which output is not redirected."""
    context = copy_context()
    context.run(_target.set, None)
    return context


@contextmanager
def redirect_output(target: Target | None) -> Iterator[None]:
    """Send prints and displays of the code inside, and of its tasks and threads, to `target`. None lets them through."""
    hooks = _install_hooks() if target is not None else []
    before = _target.get(None)
    token = _target.set(target)
    try:
        yield
    finally:
        try:
            _target.reset(token)
        except ValueError:  # this is a copy of the context in which it was entered
            _target.set(before)
        _release(hooks)


@contextmanager
def redirect_tool(target: Target) -> Iterator[None]:
    """Like `redirect_output`, but also for threads that the code starts without its context, or leaves behind."""
    redirection = _Redirection(target, get_target())
    with redirect_output(target):
        _entered.append(redirection)
        try:
            yield
        finally:
            _redirect_threads_left(redirection)
            _entered.remove(redirection)


@contextmanager
def capture(sink: Sink) -> Iterator[None]:
    """Send prints and displays of the code inside, and of tasks and threads it starts, to `sink` instead of the cell.

    `clear_output()` does nothing inside, since it would clear the whole cell. Nested and overlapping captures do not affect
    each other, in whatever order they end.
    """
    with redirect_tool(_SinkTarget(sink, get_target())):
        yield


class _SinkTarget(Target):
    def __init__(self, sink: Sink, outer: Target | None) -> None:
        self._sink, self.outer = sink, outer

    def write(self, name: str, text: str) -> None:
        self._sink(name, text)

    def publish(self, bundle: Bundle) -> None:
        self._sink("display", bundle)


def flush(target: Target | None) -> None:
    """Send the buffered prints of `target` to the front-end; with None, the buffered prints of the streams below the hooks."""
    for name in ("stdout", "stderr"):
        if target is not None:
            target.flush(name)
        elif (stream := find_stream(name)) is not None:
            stream.flush()


def find_stream(name: str) -> Any:
    """Return `sys.stdout` or `sys.stderr` without our hooks; None where there is no console."""
    stream = getattr(sys, name)
    while isinstance(stream, _StreamHook):
        stream = stream.below
    return stream


# --- The hooks.

_MARK = "_toolloop_hook"
"""The attribute of a hooked method that has its `_MethodHooks`."""
_lock = threading.RLock()
"""Held while hooks are installed or removed."""


def _install_hooks() -> list[_StreamHook | _MethodHooks]:
    """Install the hooks that are missing, and count one more user of each hook; returns all hooks."""
    hooks: list[_StreamHook | _MethodHooks] = []
    with _lock:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:  # no console (pythonw)
                continue
            if not isinstance(stream, _StreamHook):
                stream = _StreamHook(name, stream)
                setattr(sys, name, stream)
            hooks.append(stream)
            if type(stream.below).__name__ == "OutStream":
                # A logging handler from before has ipykernel's stream itself, and would bypass the hook above.
                hooks.append(getattr(stream.below.write, _MARK, None) or _hook_stream(name, stream.below))
        shell: Any = get_shell()
        publisher = getattr(shell, "display_pub", None)
        if publisher is not None:
            hooks.append(getattr(publisher.publish, _MARK, None) or _hook_publisher(publisher))
        results: Any = getattr(shell, "displayhook", None)
        if hasattr(results, "pub_socket"):  # the display hook of a kernel; others print
            hooks.append(getattr(results.finish_displayhook, _MARK, None) or _hook_results(results))
            hooks.append(getattr(shell._showtraceback, _MARK, None) or _hook_tracebacks(shell))
        for hook in hooks:
            hook.users += 1
    return hooks


def _release(hooks: Iterable[_StreamHook | _MethodHooks]) -> None:
    """Lower the user count of each hook by one, and remove the hooks that nobody uses any more."""
    with _lock:
        for hook in hooks:
            hook.users -= 1
            if not hook.users:
                hook.remove()


class _StreamHook:
    """Replaces `sys.stdout` or `sys.stderr`. If a write has no target, it goes to the stream below, as does every other call."""

    def __init__(self, name: str, below: Any) -> None:
        self._name, self.below, self.users = name, below, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.below)

    def write(self, text: str) -> int:
        return _write(self._name, text, self.below.write)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        target = _find_target()
        if target is None:
            self.below.flush()
        else:
            target.flush(self._name)

    def remove(self) -> None:
        """Put the stream back, unless somebody has put another one there."""
        if getattr(sys, self._name) is self:
            below = self.below
            while isinstance(below, _StreamHook) and not below.users:
                below = below.below
            setattr(sys, self._name, below)


class _MethodHooks:
    """Puts our methods on one object, as attributes of that object alone, and later puts the old attributes back."""

    def __init__(self, owner: Any, methods: Mapping[str, Callable[..., object]]) -> None:
        self._owner, self._methods, self.users = owner, methods, 0
        self._before = {name: vars(owner)[name] for name in methods if name in vars(owner)}
        for name, method in methods.items():
            setattr(method, _MARK, self)
            setattr(owner, name, method)

    def remove(self) -> None:
        """Put the old attributes back, unless somebody has replaced ours."""
        for name, method in self._methods.items():
            if vars(self._owner).get(name) is method:
                delattr(self._owner, name)
                if name in self._before:
                    setattr(self._owner, name, self._before[name])


def _hook_stream(name: str, stream: Any) -> _MethodHooks:
    """Hook `write` of ipykernel's stream. IPython 9 puts a `write` of its own there while a cell runs."""
    below = stream.write
    return _MethodHooks(stream, {"write": lambda text: _write(name, text, below)})


def _write(name: str, text: str, below: Callable[[str], int]) -> int:
    """Write to the target of the calling code; if it has no target, call `below`."""
    target = _find_target()
    if target is None:
        return below(text)
    if not isinstance(text, str):
        raise TypeError(f"write() argument must be str, not {type(text).__name__}")
    target.write(name, text)
    return len(text)


def _hook_publisher(publisher: Any) -> _MethodHooks:
    """Hook a display publisher. IPython's `capture_output` puts another publisher on the shell, which needs a hook of its own."""
    publish_below, clear_below = publisher.publish, publisher.clear_output

    def publish(
        data: Mapping[str, object], metadata: Mapping[str, object] | None = None, *args: object, **kwargs: Any
    ) -> None:
        target = _find_target()
        if target is None:
            publish_below(data, metadata, *args, **kwargs)
            return
        display_id = (kwargs.get("transient") or {}).get("display_id")
        target.publish(Bundle(data, metadata or {}, display_id, replaces=bool(kwargs.get("update"))))

    def clear_output(*args: bool, **kwargs: bool) -> None:
        target = _find_target()
        if target is None:
            clear_below(*args, **kwargs)
        elif target.may_be_cleared:
            target.clear(*args, **kwargs)

    return _MethodHooks(publisher, {"publish": publish, "clear_output": clear_output})


# private: `finish_displayhook` and `msg` of the display hook, `_showtraceback` of the shell (ipykernel 6.17 to 7.4). A kernel
# sends a cell's value and its traceback without the publisher; a tool's `get_ipython().run_cell(…)` does so, too.


def _hook_results(hook: Any) -> _MethodHooks:
    """Hook the method that sends a cell's value."""
    below = hook.finish_displayhook

    def finish_displayhook() -> None:
        target = _find_target()
        if target is None:
            below()
            return
        message, hook.msg = hook.msg, None
        content = (message or {}).get("content") or {}
        if content.get("data"):
            target.publish(Bundle(content["data"], content.get("metadata") or {}, None, replaces=False))

    return _MethodHooks(hook, {"finish_displayhook": finish_displayhook})


def _hook_tracebacks(shell: Any) -> _MethodHooks:
    """Hook the method that sends tracebacks."""
    below = shell._showtraceback

    def show(etype: object, evalue: object, stb: str | list[str]) -> None:
        target = _find_target()
        if target is None:
            below(etype, evalue, stb)
        else:
            target.write("stderr", (stb if isinstance(stb, str) else "\n".join(stb)) + "\n")

    return _MethodHooks(shell, {"_showtraceback": show})


def _find_target() -> Target | None:
    """Return the target for writes of the calling code: the target of its context, or of the tool that owns the thread."""
    try:
        return _target.get()
    except LookupError:
        return _find_target_of_thread(threading.current_thread())


# --- Threads without a context.


@dataclass(eq=False)
class _Redirection:
    """The redirection of one tool or run. `outer` is the target around it: a tool is inside its run."""

    target: Target
    outer: Target | None
    earlier: WeakSet[threading.Thread] = field(
        default_factory=lambda: WeakSet(t for t in threading.enumerate() if t.name != IDLE_THREAD)
    )
    """The threads that already had work when the redirection began."""


_entered: list[_Redirection] = []
_owned: WeakKeyDictionary[threading.Thread, Target] = WeakKeyDictionary()
"""Threads that tools have left behind, with the tools' targets."""
_NOT_OF_A_TOOL = (
    "asyncio_",
    "ThreadPoolExecutor",
    "toolloop-late",
    "toolloop-import",
    "toolloop-show",
    IDLE_THREAD,
)
"""Beginnings of the names of threads that belong to no tool: those of pools, and those of this package."""


def _find_innermost() -> _Redirection | None:
    """Return the redirection that is inside all others; None if there is none, or if two run side by side."""
    outer = {id(each.outer) for each in _entered if each.outer is not each.target}
    innermost = [each for each in _entered if id(each.target) not in outer]
    return innermost[0] if len(innermost) == 1 else None


def _find_target_of_thread(thread: threading.Thread) -> Target | None:
    """Return the target of the tool that left the thread behind; else of the only running tool, if the thread began during it."""
    innermost = _find_innermost()
    if innermost is None or thread in _owned:
        return _owned.get(thread)
    by_python = not thread.name.startswith("Dummy-")  # a "Dummy" thread is the kernel's own
    return innermost.target if by_python and thread not in innermost.earlier else None


def _redirect_threads_left(redirection: _Redirection) -> None:
    """Let threads that outlive the tool write to its target, not to a later cell. The hooks stay until these threads end."""
    # A thread of a subclass belongs to a library (tqdm's monitor), and lives as long as the kernel does.
    own = [t for t in threading.enumerate() if type(t) in (threading.Thread, threading.Timer)]
    left = [t for t in own if t not in redirection.earlier and not t.name.startswith(_NOT_OF_A_TOOL)]
    if _find_innermost() is redirection:
        for thread in left:
            if thread.name != TOOL_THREAD:
                _owned.setdefault(thread, redirection.target)
    redirected = threading.Event()

    def wait() -> None:
        with redirect_output(redirection.target):
            redirected.set()
            for thread in left:
                is_worker = thread.name == TOOL_THREAD  # it goes on to other work, under another name
                while thread.is_alive() and (not is_worker or thread.name == TOOL_THREAD):
                    thread.join(0.2)

    if left:
        threading.Thread(target=wait, name="toolloop-late", daemon=True).start()
        redirected.wait(1.0)
