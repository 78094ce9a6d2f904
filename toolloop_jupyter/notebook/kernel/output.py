"""Send output to the right place: prints and displays of tools, and the outputs of a run (`Cell`).

The target of an output is the value of a context variable. `redirect_output(target)` sets this variable for the code in its
`with` block, for the tasks of this code, and for threads in a copy of the context. Meanwhile, there are hooks on `sys.stdout`, on
`sys.stderr`, on the shell's display publisher, and on the methods that send a cell's value and traceback. A hook looks up the
target of the calling code. If there is none, the output goes to the same place as without a hook. A logging handler may have
stored a hook as its `sys.stderr`, and use it after its removal. A removed hook passes all output on.

If a tool starts a thread without a copy of the context, the thread has no target. If only this tool is running, the thread
gets the tool's target, even after the tool has ended. If several tools are running, the thread's output is not redirected.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakSet

from ...core.execution import IDLE_THREAD, TOOL_THREAD
from .where import Message, find_widgets, get_id, get_kernel, get_shell, is_in_callback, last_cell

Sink = Callable[[str, Any], None]
"""A function that takes ("stdout", text), ("stderr", text) or ("display", Bundle). It is called in the thread that writes."""


class Bundle(dict[str, object]):
    """A MIME bundle of `display()`. If `replaces` is True, it replaces an earlier output with the same `display_id`."""

    def __init__(
        self,
        data: Mapping[str, object],
        metadata: Mapping[str, object] | None,
        display_id: str | None,
        *,
        replaces: bool = False,
    ) -> None:
        super().__init__(data)
        self.metadata, self.display_id, self.replaces = metadata or {}, display_id, replaces


class Cell:
    """The place to which output goes: a cell, a `capture` block, or a terminal. A subclass says what happens to the output."""

    cell_id: str | None = None
    """The id that the front-end has given the cell. JupyterLab, Notebook 7 and VS Code send an id; otherwise this is None."""
    execution = ""
    """The id of the message that started this execution of the cell. Each execution has a different id. "" outside a kernel."""
    can_update = True
    """True if `update()` can replace an output. False in a terminal: there, `display()` prints the text/plain of the bundle."""
    may_be_cleared = False
    """True if `clear_output()` in the redirected code clears this place. If the place shows a transcript, this is False."""

    @classmethod
    def here(cls) -> Cell:
        """Return the place to which the calling code's output goes now. Threads and later cells do not change it."""
        return get_target() or _find_running_cell()

    @classmethod
    def outside_tools(cls) -> Cell:
        """Return the same as `here`. But if a tool calls this, return the place of the tool's run: the run may capture the
        tool's output.
        """
        place = get_target()
        while isinstance(place, _Capture):
            place = place.outer
        return place or _find_running_cell()

    def write(self, name: str, text: str) -> None: ...
    def flush(self) -> None: ...
    def publish(self, bundle: Bundle) -> None: ...

    def clear(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002 - IPython's own signature
        """Remove all outputs here. With `wait`, they disappear when the next output arrives, so that the page does not flicker."""

    def display(self, bundle: Mapping[str, object], display_id: str | None = None) -> None:
        """Show a MIME bundle as a new output. The values in `bundle` have JSON types; pictures may be bytes."""
        self.publish(Bundle(bundle, None, display_id))

    def update(self, bundle: Mapping[str, object], display_id: str) -> None:
        """Replace the output that has this `display_id`. If `can_update` is False, do nothing."""
        if self.can_update:
            self.publish(Bundle(bundle, None, display_id, replaces=True))

    @contextmanager
    def outputs(self) -> Iterator[None]:
        """Send prints and displays of the block, of its tasks, and of threads in a copy of its context to this place.

        If a thread may still run after the end of the run, the code in the thread must use this context manager, too.
        """
        with redirect_output(self):
            try:
                yield
            finally:  # so that these prints appear before later prints of the cell
                self.flush()

    @contextmanager
    def outputs_of_run(self, *, may_be_cleared: bool) -> Iterator[None]:
        """Do the same as `outputs` for a whole run, and include threads that its tools leave behind.

        If `may_be_cleared` is True, `clear_output()` in a tool clears this place. If not, `clear_output()` does nothing.
        """
        self.may_be_cleared = may_be_cleared
        with redirect_tool(self), self.outputs():
            yield


_target: ContextVar[Cell | None] = ContextVar("toolloop_output")
"""The target of the code in this context. None: the output is not redirected. If the variable has no value, the target depends on
the thread (`_find_target`)."""


def get_target() -> Cell | None:
    """Return the target of the current context, or None if output is not redirected."""
    return _target.get(None)


@contextmanager
def redirect_output(target: Cell | None) -> Iterator[None]:
    """Send output of the block, its tasks, and threads in a copy of its context to `target`. None: output is not redirected."""
    hooks = _install_hooks() if target is not None else []
    before = get_target()
    token = _target.set(target)
    try:
        yield
    finally:
        try:
            _target.reset(token)
        except ValueError:  # the block has ended in another context than the one in which it began
            _target.set(before)
        with _lock:
            for hook in hooks:
                hook.users -= 1
                if not hook.users:
                    hook.remove()


@contextmanager
def redirect_tool(target: Cell) -> Iterator[None]:
    """Do the same as `redirect_output`, but also for threads of the block that have no copy of the context, until they end."""
    redirection = _Redirection(target, get_target())
    with redirect_output(target):
        _entered.append(redirection)
        try:
            yield
        finally:
            _redirect_threads_left(redirection)
            _entered.remove(redirection)


def capture(sink: Sink) -> AbstractContextManager[None]:
    """Send prints and displays of the block, and of its tasks and threads, to `sink` instead of the cell.

    In the block, `clear_output()` does nothing, because it would clear the whole cell. Captures may be nested or overlap.
    """
    return redirect_tool(_Capture(sink, get_target()))


class _Capture(Cell):
    def __init__(self, sink: Sink, outer: Cell | None) -> None:
        self._sink, self.outer = sink, outer

    def write(self, name: str, text: str) -> None:
        self._sink(name, text)

    def publish(self, bundle: Bundle) -> None:
        self._sink("display", bundle)


def flush_streams() -> None:
    """Send the buffered prints of the original `stdout` and `stderr` to the front-end."""
    for name in ("stdout", "stderr"):
        if (stream := _find_stream(name)) is not None:
            stream.flush()


def _find_stream(name: str) -> Any:
    """Return the original `sys.stdout` or `sys.stderr` without the hooks of this module. Return None if there is no console."""
    stream = getattr(sys, name)
    while isinstance(stream, _StreamHook):
        stream = stream.below
    return stream


# --- The hooks.

_MARK = "_toolloop_hook"
"""Each hook that is a method has an attribute with this name. The attribute contains the `MethodHooks` that set the hook."""
_lock = threading.RLock()
"""A thread holds this lock while it installs or removes hooks."""


def _install_hooks() -> list[_StreamHook | MethodHooks]:
    """Install the missing hooks, and return all hooks. Add 1 to the `users` of each hook: the number of redirections that need it."""
    hooks: list[_StreamHook | MethodHooks] = []
    with _lock:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:  # no console (pythonw)
                continue
            if not isinstance(stream, _StreamHook):
                stream = _make_hook(name, stream)
                setattr(sys, name, stream)
            hooks.append(stream)
            if type(stream.below).__name__ == "OutStream":
                # A logging handler may have stored ipykernel's stream earlier. Such a handler does not use `sys.stderr`. So the
                # stream itself gets a hook, too. (While a cell runs, IPython 9 also replaces the stream's method `write`.)
                hooks.append(_set_hooks(stream.below, write=functools.partial(_write, name)))
        shell: Any = get_shell()
        publisher = getattr(shell, "display_pub", None)
        if publisher is not None:
            # Inside IPython's `capture_output`, the shell has another publisher. So the present publisher gets the hook.
            hooks.append(_set_hooks(publisher, publish=_publish, clear_output=_clear))
        results: Any = getattr(shell, "displayhook", None)
        # Only a kernel's display hook has a socket; others print the value.
        if hasattr(results, "pub_socket"):
            # A kernel sends a cell's value and traceback without the publisher. So these methods have hooks, for a tool that calls
            # `get_ipython().run_cell(…)`. private: ipykernel 6.17 to 7.4 have both methods, and `msg` of the display hook.
            hooks.append(_set_hooks(results, finish_displayhook=functools.partial(_publish_value, results)))
            hooks.append(_set_hooks(shell, _showtraceback=_write_traceback))
        for hook in hooks:
            hook.users += 1
    return hooks


class _StreamHook:
    """Replaces the stream `below`. Output goes to the calling code's target, or to `below`. Other methods are `below`'s."""

    def __init__(self, name: str, below: Any) -> None:
        self.name, self.below, self.users = name, below, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.below)

    def write(self, text: str) -> int:
        target = _find_target()
        written: int = self.below.write(text) if target is None else _write(self.name, target, text)
        return written

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        (_find_target() or self.below).flush()

    def remove(self) -> None:
        """Restore the replaced stream. If other code has replaced this hook meanwhile, change nothing."""
        if getattr(sys, self.name) is self:
            below = self.below
            while isinstance(below, _StreamHook) and not below.users:
                below = below.below
            setattr(sys, self.name, below)
        if self not in _removed:
            _removed.append(self)


_removed: deque[_StreamHook] = deque(maxlen=8)
"""The stream hooks that were removed last. They stay in memory, because another thread's `print()` may still use one.

CPython's `print` uses `sys.stdout` without a reference of its own (before 3.12.10 and 3.13.3, and in all of 3.10 and 3.11;
python/cpython#130163). If a hook was freed meanwhile, `print` would go on with freed memory: the kernel would die.
"""


def _make_hook(name: str, stream: Any) -> _StreamHook:
    """Return a hook for `sys.stdout` or `sys.stderr` (`name`): the one that `stream` had before, or a new one."""
    for hook in _removed:
        if hook.name == name and hook.below is stream:
            return hook
    return _StreamHook(name, stream)


class MethodHooks:
    """Replaces methods of the object `owner` by hooks, and later restores them. Other objects of its class are not changed."""

    def __init__(self, owner: Any, **methods: Callable[..., object]) -> None:
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


def _set_hooks(owner: Any, **redirected: Callable[..., object]) -> MethodHooks:
    """Hook methods of `owner`, and return the hooks. If `owner` has these hooks already, return them.

    If the calling code has a target, a hook calls the function in `redirected` with the target and the method's arguments.
    Otherwise it calls the method itself.
    """

    def hook(below: Callable[..., object], redirect: Callable[..., object]) -> Callable[..., object]:
        def method(*args: Any, **kwargs: Any) -> object:
            target = _find_target()
            return below(*args, **kwargs) if target is None else redirect(target, *args, **kwargs)

        return method

    present: MethodHooks | None = getattr(getattr(owner, next(iter(redirected))), _MARK, None)
    return present or MethodHooks(owner, **{n: hook(getattr(owner, n), f) for n, f in redirected.items()})


def _write(name: str, target: Cell, text: str) -> int:
    if not isinstance(text, str):
        raise TypeError(f"write() argument must be str, not {type(text).__name__}")
    target.write(name, text)
    return len(text)


def _publish(
    target: Cell,
    data: Mapping[str, object],
    metadata: Mapping[str, object] | None = None,
    *_: object,
    **more: Any,
) -> None:
    display_id = (more.get("transient") or {}).get("display_id")
    target.publish(Bundle(data, metadata, display_id, replaces=bool(more.get("update"))))


def _clear(target: Cell, *args: bool, **kwargs: bool) -> None:
    if target.may_be_cleared:
        target.clear(*args, **kwargs)


def _publish_value(hook: Any, target: Cell) -> None:
    message, hook.msg = hook.msg, None
    content = (message or {}).get("content") or {}
    if content.get("data"):
        target.publish(Bundle(content["data"], content.get("metadata"), None))


def _write_traceback(target: Cell, _: object, __: object, stb: str | list[str]) -> None:
    target.write("stderr", (stb if isinstance(stb, str) else "\n".join(stb)) + "\n")


# --- Threads without a context.


@dataclass(eq=False)
class _Redirection:
    """The redirection of one tool or run. `outer` is the target outside of it: for a tool, the target of the tool's run."""

    target: Cell
    outer: Cell | None
    earlier: WeakSet[threading.Thread] = field(
        default_factory=lambda: WeakSet(t for t in threading.enumerate() if t.name != IDLE_THREAD)
    )
    """The threads that were already working when the redirection began."""


_entered: list[_Redirection] = []
_owned: WeakKeyDictionary[threading.Thread, Cell] = WeakKeyDictionary()
"""A thread that still runs after its tool has ended -> the target of the tool."""
_NOT_OF_A_TOOL = ("asyncio_", "ThreadPoolExecutor", "toolloop-late", "toolloop-import", "toolloop-show")
"""Prefixes of the names of threads that do not belong to a tool: threads of pools, and threads of this package."""


def _find_innermost() -> _Redirection | None:
    """Return the redirection that is inside all others. Return None if there is none, or if tools run in parallel."""
    outer = {id(each.outer) for each in _entered if each.outer is not each.target}
    innermost = [each for each in _entered if id(each.target) not in outer]
    return innermost[0] if len(innermost) == 1 else None


def _find_target() -> Cell | None:
    """Return the target of the calling code's context; if `_target` has no value, the target of the thread's tool, or None."""
    with suppress(LookupError):
        return _target.get()
    thread, innermost = threading.current_thread(), _find_innermost()
    if innermost is None or thread in _owned:
        return _owned.get(thread)
    by_python = not thread.name.startswith("Dummy-")  # a "Dummy" thread belongs to the kernel
    return innermost.target if by_python and thread not in innermost.earlier else None


def _redirect_threads_left(redirection: _Redirection) -> None:
    """Let threads that outlive their tool keep the tool's target. The hooks stay until these threads have ended."""
    # If the class of a thread is a subclass of Thread, the thread belongs to a library (such as tqdm's monitor). It may run as
    # long as the kernel, so we leave it out.
    plain = (threading.Thread, threading.Timer)
    plain_threads = [t for t in threading.enumerate() if type(t) in plain or t.name == TOOL_THREAD]
    left = [
        t for t in plain_threads if t not in redirection.earlier and not t.name.startswith(_NOT_OF_A_TOOL)
    ]
    if not left:
        return
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

    threading.Thread(target=wait, name="toolloop-late", daemon=True).start()
    redirected.wait(1.0)


# --- The running cell, or the terminal.


def _find_running_cell() -> Cell:
    kernel = get_kernel()
    if kernel is None:
        return _Terminal()
    parent = kernel.get_parent("shell")
    # A widget's callback has no cell. So its output goes to the cell that began last. But if an Output widget shows the
    # output of the callback, the output goes to this widget.
    has_no_cell = is_in_callback(kernel) and last_cell.request and not _is_shown_by_widget(parent)
    return _KernelCell(last_cell.request if has_no_cell else parent)


class _Terminal(Cell):
    """A terminal with IPython, or plain Python: output goes where it would go without us."""

    can_update = False

    def publish(self, bundle: Bundle) -> None:
        if get_shell() is not None:
            get_shell().display_pub.publish(data=dict(bundle))
        elif "text/plain" in bundle:
            sys.stdout.write(f"{bundle['text/plain']}\n")

    @contextmanager
    def outputs(self) -> Iterator[None]:
        yield

    @contextmanager
    def outputs_of_run(self, *, may_be_cleared: bool) -> Iterator[None]:
        yield


def _is_shown_by_widget(message: Message) -> bool:
    """Return True if an Output widget shows the output whose parent is this message."""
    # Only an Output widget has `msg_id`: the id of the message whose output the widget shows.
    return any(getattr(widget, "msg_id", None) == get_id(message) for widget in list(find_widgets().values()))


class _KernelCell(Cell):
    """A cell of a notebook. Its output goes to this cell, even if another cell is running.

    For this, it has copies of the kernel's output objects. The parent of the copies is always this cell.
    If `%%capture` or a test has replaced one of ipykernel's output objects, the replacement itself is used, not a copy of it.
    """

    def __init__(self, request: Message) -> None:
        self.cell_id = (request.get("metadata") or {}).get("cellId")
        self.execution = get_id(request)
        # JupyterLab's Output widget (jupyterlab_widgets 3) ignores `update_display_data` messages.
        self.can_update = not (request and _is_shown_by_widget(request))
        # In ipykernel >= 6.23, an output object finds its parent in a context variable. In a context where this variable has
        # no value, it uses a default. We make the copies in a temporary context, so later no context has a value of the
        # variable. Therefore the default applies in all threads and tasks.
        self._streams = {n: copy_context().run(_copy_stream, n, request) for n in ("stdout", "stderr")}
        self._publisher, self._is_copied = copy_context().run(_copy_publisher, request)
        self._updates = get_id(request), self._publisher
        """(the id of an execute request, the publisher whose messages have this request as their parent). Updates use this
        publisher. When a later cell has begun, `_find_publisher_of_updates` replaces both."""
        flush_streams()  # so that earlier prints of the cell appear first

    def write(self, name: str, text: str) -> None:
        self._streams[name].write(text)

    def flush(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def publish(self, bundle: Bundle) -> None:
        self.flush()  # so that earlier prints appear first
        transient = {} if bundle.display_id is None else {"display_id": bundle.display_id}
        publisher = self._find_publisher_of_updates() if bundle.replaces else self._publisher
        with self._pass_hooks():
            publisher.publish(
                data=dict(bundle), metadata=dict(bundle.metadata), transient=transient, update=bundle.replaces
            )

    def clear(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002
        self.flush()
        with self._pass_hooks():
            self._publisher.clear_output(wait=wait)

    def _pass_hooks(self) -> AbstractContextManager[None]:
        """Return a context manager. The publisher must send each message inside it.

        A copied publisher flushes `sys.stdout` and `sys.stderr`. Inside, this object is the target, so its streams are flushed.
        A publisher that is no copy has a hook of this module. Inside, there is no target, so the hook lets the message pass.
        """
        return redirect_output(self if self._is_copied else None)

    def _find_publisher_of_updates(self) -> Any:
        """Return a publisher for updates. The parent of its messages is the cell that began last.

        A front-end finds the output by its display id. So does nbclient (0.5 to 0.11), but nbclient reads only messages whose
        parent is the cell that is running now.
        """
        request = last_cell.request
        if request and self._is_copied and get_id(request) != self._updates[0]:
            self._updates = get_id(request), copy_context().run(_copy_publisher, request)[0]
        return self._updates[1]


def _copy_stream(name: str, request: Message) -> Any:
    from ipykernel import iostream

    stream, stream_class = _find_stream(name), cast("Any", iostream.OutStream)
    if not isinstance(stream, stream_class):
        return stream
    # With watchfd=False, the copy does not redirect the file descriptors of the process.
    copied = stream_class(stream.session, stream.pub_thread, name, echo=stream.echo, watchfd=False)
    copied.set_parent(request)
    return copied


def _copy_publisher(request: Message) -> tuple[Any, bool]:
    """Return (a publisher, True if the publisher is a copy). The parent of a copy's messages is `request`."""
    from ipykernel import zmqshell

    publisher, publisher_class = get_shell().display_pub, cast("Any", zmqshell.ZMQDisplayPublisher)
    if not isinstance(publisher, publisher_class):
        return publisher, False
    copied = publisher_class(shell=get_shell())
    for name in ("session", "pub_socket", "topic"):
        setattr(copied, name, getattr(publisher, name))
    copied.set_parent(request)
    return copied, True
