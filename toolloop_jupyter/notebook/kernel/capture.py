"""Redirect prints and displays. Output goes to the target of the code that prints, even if another cell is running.

The target is the value of a context variable. `redirect_output(target)` sets the target for the code in its `with` block, for
the tasks of this code, and for threads that run in a copy of the context (`asyncio.to_thread` and tool threads do this). While a
redirection is active, there are hooks on `sys.stdout`, on `sys.stderr`, on the shell's display publisher, and on the methods that
send a cell's value and traceback. For each output, a hook looks up the target of the calling code. If there is no target, the
output goes to the same place as without a hook. When the last redirection ends, the hooks are removed. Other code may still have
a removed hook, for example a logging handler that has stored `sys.stderr`. The removed hook then passes all output on.

If a tool starts a thread without a copy of the context, the thread has no target. If only one tool is running at that time, the
thread is assigned to this tool, also after the tool has ended. If several tools are running, it is not known which of the tools
has started the thread. So the thread's output is not redirected.
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
"""A function that takes ("stdout", text), ("stderr", text) or ("display", Bundle). It is called in the thread that writes."""


class Bundle(dict[str, object]):
    """A MIME bundle of `display()`: MIME type -> data.

    If `replaces` is True, the bundle replaces an earlier output with the same `display_id`.
    """

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
    """Receives redirected output."""

    may_be_cleared = False
    """True if `clear_output()` in the redirected code clears this target. If a target shows a transcript, this is False."""

    def write(self, name: str, text: str) -> None: ...
    def flush(self, name: str) -> None: ...
    def publish(self, bundle: Bundle) -> None: ...
    def clear(self, wait: bool = True) -> None: ...  # noqa: FBT001, FBT002 - IPython's own signature


_target: ContextVar[Target | None] = ContextVar("toolloop_output")
"""The target of the code in this context. None: the output is not redirected. If the variable has no value, the target depends on
the thread (`_find_target_of_thread`)."""


def get_target() -> Target | None:
    """Return the target of the current context, or None if output is not redirected."""
    return _target.get(None)


def get_target_outside_tools() -> Target | None:
    """Return the target outside of all `capture` blocks. For code in a tool, this is the target of the tool's run."""
    target = get_target()
    while isinstance(target, _SinkTarget):
        target = target.outer
    return target


def copy_context_without_target() -> Context:
    """Return a copy of the current context. In the copy, output is not redirected."""
    context = copy_context()
    context.run(_target.set, None)
    return context


@contextmanager
def redirect_output(target: Target | None) -> Iterator[None]:
    """Send prints and displays of the `with` block, and of the tasks and threads that it starts, to `target`.

    If `target` is None, output is not redirected in the block.
    """
    hooks = _install_hooks() if target is not None else []
    before = _target.get(None)
    token = _target.set(target)
    try:
        yield
    finally:
        try:
            _target.reset(token)
        except ValueError:  # the block ends in a copy of the context in which it began
            _target.set(before)
        _release(hooks)


@contextmanager
def redirect_tool(target: Target) -> Iterator[None]:
    """Redirect output as `redirect_output` does, but include threads that have no copy of the context.

    If a thread still runs after the `with` block, its output is redirected until the thread ends.
    """
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
    """Send prints and displays of the `with` block, and of the tasks and threads that it starts, to `sink` instead of the cell.

    In the block, `clear_output()` does nothing, since it would clear the whole cell. Captures may be nested or overlap, and may
    end in any order.
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
    """Send the buffered prints of `target` to the front-end. If `target` is None, flush the original `stdout` and `stderr`."""
    for name in ("stdout", "stderr"):
        if target is not None:
            target.flush(name)
        elif (stream := find_stream(name)) is not None:
            stream.flush()


def find_stream(name: str) -> Any:
    """Return the original `sys.stdout` or `sys.stderr` without the hooks of this module. Return None if there is no console."""
    stream = getattr(sys, name)
    while isinstance(stream, _StreamHook):
        stream = stream.below
    return stream


# --- The hooks.

_MARK = "_toolloop_hook"
"""Each hook that is a method has an attribute with this name. The attribute contains the `_MethodHooks` that set the hook."""
_lock = threading.RLock()
"""A thread holds this lock while it installs or removes hooks."""


def _install_hooks() -> list[_StreamHook | _MethodHooks]:
    """Install the hooks that are missing, and add 1 to the `users` of each hook. Return all hooks.

    `users` is the number of redirections that need the hook.
    """
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
                # A logging handler may have stored ipykernel's stream earlier. Such a handler does not use `sys.stderr`. So the
                # stream itself gets a hook, too.
                hooks.append(getattr(stream.below.write, _MARK, None) or _hook_stream(name, stream.below))
        shell: Any = get_shell()
        publisher = getattr(shell, "display_pub", None)
        if publisher is not None:
            hooks.append(getattr(publisher.publish, _MARK, None) or _hook_publisher(publisher))
        results: Any = getattr(shell, "displayhook", None)
        if hasattr(results, "pub_socket"):  # only the display hook of a kernel has it; others print
            hooks.append(getattr(results.finish_displayhook, _MARK, None) or _hook_results(results))
            hooks.append(getattr(shell._showtraceback, _MARK, None) or _hook_tracebacks(shell))
        for hook in hooks:
            hook.users += 1
    return hooks


def _release(hooks: Iterable[_StreamHook | _MethodHooks]) -> None:
    """Subtract 1 from the `users` of each hook, and remove the hooks that no redirection needs any more."""
    with _lock:
        for hook in hooks:
            hook.users -= 1
            if not hook.users:
                hook.remove()


class _StreamHook:
    """Replaces `sys.stdout` or `sys.stderr`. `below` is the replaced stream.

    If the calling code has a target, its output goes to the target. If not, its output goes to `below`. Methods that do not write
    are those of `below`.
    """

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
        """Restore the replaced stream. If other code has replaced this hook meanwhile, change nothing."""
        if getattr(sys, self._name) is self:
            below = self.below
            while isinstance(below, _StreamHook) and not below.users:
                below = below.below
            setattr(sys, self._name, below)


class _MethodHooks:
    """Replaces methods of the object `owner` by hooks, and later restores the methods.

    The hooks are attributes of `owner`, so other objects of the same class are not changed.
    """

    def __init__(self, owner: Any, methods: Mapping[str, Callable[..., object]]) -> None:
        self._owner, self._methods, self.users = owner, methods, 0
        self._before = {name: vars(owner)[name] for name in methods if name in vars(owner)}
        for name, method in methods.items():
            setattr(method, _MARK, self)
            setattr(owner, name, method)

    def remove(self) -> None:
        """Restore the methods of `owner`. A hook that other code has replaced meanwhile is left alone."""
        for name, method in self._methods.items():
            if vars(self._owner).get(name) is method:
                delattr(self._owner, name)
                if name in self._before:
                    setattr(self._owner, name, self._before[name])


def _hook_stream(name: str, stream: Any) -> _MethodHooks:
    """Hook the method `write` of ipykernel's stream. IPython 9 replaces this method, too, while a cell runs."""
    below = stream.write
    return _MethodHooks(stream, {"write": lambda text: _write(name, text, below)})


def _write(name: str, text: str, below: Callable[[str], int]) -> int:
    """Write `text` to the target of the calling code. If the code has no target, call `below`."""
    target = _find_target()
    if target is None:
        return below(text)
    if not isinstance(text, str):
        raise TypeError(f"write() argument must be str, not {type(text).__name__}")
    target.write(name, text)
    return len(text)


def _hook_publisher(publisher: Any) -> _MethodHooks:
    """Hook a display publisher. IPython's `capture_output` gives the shell another publisher, which needs a separate hook."""
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


# private: ipykernel 6.17 to 7.4 have `finish_displayhook` and `msg` (of the display hook) and `_showtraceback` (of the shell).
# These hooks are needed since a kernel sends a cell's value and traceback without the publisher. A tool that calls
# `get_ipython().run_cell(…)` has such values and tracebacks.


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
    """Return the target of the calling code's context. If `_target` has no value there, return the target of the thread."""
    try:
        return _target.get()
    except LookupError:
        return _find_target_of_thread(threading.current_thread())


# --- Threads without a context.


@dataclass(eq=False)
class _Redirection:
    """The redirection of one tool or run. `outer` is the target outside of it: for a tool, the target of the tool's run."""

    target: Target
    outer: Target | None
    earlier: WeakSet[threading.Thread] = field(
        default_factory=lambda: WeakSet(t for t in threading.enumerate() if t.name != IDLE_THREAD)
    )
    """The threads that were already working when the redirection began."""


_entered: list[_Redirection] = []
_owned: WeakKeyDictionary[threading.Thread, Target] = WeakKeyDictionary()
"""A thread that still runs after its tool has ended -> the target of the tool."""
_NOT_OF_A_TOOL = (
    "asyncio_",
    "ThreadPoolExecutor",
    "toolloop-late",
    "toolloop-import",
    "toolloop-show",
    IDLE_THREAD,
)
"""Prefixes of the names of threads that do not belong to a tool: threads of pools, and threads of this package."""


def _find_innermost() -> _Redirection | None:
    """Return the redirection that is inside all others. Return None if there is none, or if tools run in parallel."""
    outer = {id(each.outer) for each in _entered if each.outer is not each.target}
    innermost = [each for each in _entered if id(each.target) not in outer]
    return innermost[0] if len(innermost) == 1 else None


def _find_target_of_thread(thread: threading.Thread) -> Target | None:
    """Return the target for a thread that has no copy of a context.

    If the thread still runs after its tool has ended, return the tool's target. If only one tool is running and the thread began
    during this tool, return the target of the running tool. If not, return None.
    """
    innermost = _find_innermost()
    if innermost is None or thread in _owned:
        return _owned.get(thread)
    by_python = not thread.name.startswith("Dummy-")  # a "Dummy" thread belongs to the kernel
    return innermost.target if by_python and thread not in innermost.earlier else None


def _redirect_threads_left(redirection: _Redirection) -> None:
    """Redirect threads that still run when the tool ends: their output goes to the tool's target, and not to a later cell.

    The hooks are removed only after these threads have ended.
    """
    # If the class of a thread is a subclass of Thread, the thread belongs to a library (such as tqdm's monitor). It may run as
    # long as the kernel, so it is left out.
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
                is_worker = thread.name == TOOL_THREAD  # a worker gets another name when its work is done
                while thread.is_alive() and (not is_worker or thread.name == TOOL_THREAD):
                    thread.join(0.2)

    if left:
        threading.Thread(target=wait, name="toolloop-late", daemon=True).start()
        redirected.wait(1.0)
