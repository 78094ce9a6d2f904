"""A live kernel, which a test uses as a front-end does. Nothing here can hang, because each wait has a time limit.

    with LiveKernel() as kernel:
        run = kernel.submit("await something_with_a_button()")
        kernel.click("Approve")
        kernel.wait(run)
        assert run.status == "ok"

By default, comm messages go to the main shell, as from VS Code, Colab and plain clients. With `kernel.create_subshell()` and the
argument `subshell=`, they go to a subshell, as from JupyterLab 4.4 and later. The kernel may run any Python that has ipykernel
(`LiveKernel(python=...)`), also an ipykernel much older than the client. It starts in a new folder, with a new IPython folder, so
that neither the source tree nor a person's profile has an effect.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

WIDGET = "application/vnd.jupyter.widget-view+json"
PATIENCE = 120.0
"""The most seconds of a wait. They are enough for a very busy machine. Only a failure takes so long."""
TRANSPORT = "ipc" if os.name == "posix" else "tcp"
"""The kernel uses sockets in its own folder. A TCP port would be chosen first, and bound by the kernel after its start. In
between, a server of another test could take the port, and the kernel would end.
"""
QUIET = {
    "JPY_SESSION_NAME": "",  # a Jupyter server sets this for its own kernels, and a test may run in such a kernel
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # prevents the debugger's note about frozen modules at every start
    "PYTHON_COLORS": "0",
}


class KernelTimeout(AssertionError):
    """Raised if a wait ends without success. The message says what has happened instead."""


class KernelDied(AssertionError):
    """Raised if the kernel's process ends during a wait."""


@dataclass
class Output:
    """One output of a cell, as a front-end shows it now, with all updates."""

    kind: str
    """stream, display_data, execute_result or error."""
    data: dict[str, Any] = field(default_factory=dict)
    """The MIME bundle; for a stream, {"name", "text"}; for an error, {"ename", "evalue", "traceback"}."""
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    updates: int = 0
    """How many times the output was updated in place."""

    @property
    def text(self) -> str:
        """The output as a viewer without HTML shows it."""
        if self.kind == "error":
            return "\n".join(self.data["traceback"])
        return self.data.get("text" if self.kind == "stream" else "text/plain", "")


@dataclass
class Execution:
    """One cell that was sent. `status` is "" until the reply comes, then "ok", "error" or "aborted"."""

    code: str
    msg_id: str
    outputs: list[Output] = field(default_factory=list)
    status: str = ""
    reply: dict[str, Any] = field(default_factory=dict)
    sent: float = field(default_factory=time.monotonic)
    began: float | None = None
    """The time at which the kernel said that it is busy with the cell (monotonic clock, seconds)."""
    ended: float | None = None
    """The time at which the kernel said that it is idle after the cell."""
    clear_next: bool = False

    @property
    def done(self) -> bool:
        return bool(self.status) and (self.ended is not None or self.status == "aborted")

    @property
    def seconds(self) -> float:
        """The seconds from busy to idle; 0.0 for a cell that did not run. (The kernel says "busy" for an aborted cell, too.)"""
        if self.began is None or self.ended is None or self.status == "aborted":
            return 0.0
        return self.ended - self.began

    def stream(self, name: str = "stdout") -> str:
        return "".join(o.data["text"] for o in self.outputs if o.kind == "stream" and o.data["name"] == name)

    @property
    def stdout(self) -> str:
        return self.stream("stdout")

    @property
    def stderr(self) -> str:
        return self.stream("stderr")

    @property
    def text(self) -> str:
        """All outputs as plain text."""
        return "\n".join(output.text for output in self.outputs)

    @property
    def html(self) -> str:
        return "\n".join(output.data.get("text/html", "") for output in self.outputs)

    @property
    def value(self) -> str | None:
        """The text of the cell's value (`Out[n]`), or None."""
        return next((o.text for o in self.outputs if o.kind == "execute_result"), None)

    @property
    def error(self) -> str | None:
        """The cell's error as `Name: message`, or None."""
        found = next((o.data for o in self.outputs if o.kind == "error"), None)
        return None if found is None else f"{found['ename']}: {found['evalue']}"


@dataclass
class Widget:
    """A comm of ipywidgets, with the state that the kernel sent last."""

    comm_id: str
    state: dict[str, Any]
    open: bool = True

    @property
    def model(self) -> str:
        return str(self.state.get("_model_name", ""))

    @property
    def description(self) -> str:
        return str(self.state.get("description", ""))


class _ThisSpec(KernelSpecManager):
    """Offers one kernel: a Python executable. The kernels that are installed on the machine do not count."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        python = self.parent.python
        argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
        return KernelSpec(argv=argv, display_name=python, language="python", interrupt_mode="signal")


class _Manager(KernelManager):
    python = sys.executable


class LiveKernel:
    """See the module. `messages` has everything that came on the iopub channel. `widgets` has every comm: id -> widget."""

    def __init__(
        self,
        python: str | os.PathLike[str] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | None] | None = None,
        start_timeout: float = PATIENCE,
    ) -> None:
        """Describe the kernel; `start()` starts it. None in `env` removes a variable."""
        self.python = str(python or sys.executable)
        self.cwd, self.env, self.start_timeout = cwd, dict(env or {}), start_timeout
        self.executions: dict[str, Execution] = {}
        self.widgets: dict[str, Widget] = {}
        self._displayed: set[str] = set()
        """The ids of the widgets that an output of any cell has shown."""
        self._clicks: set[str] = set()
        self._idle: set[str] = set()
        """The ids of the messages that were clicks, and the ids of all messages that the kernel has handled."""
        self.messages: list[dict[str, Any]] = []
        self.replies: dict[str, dict[str, Any]] = {}
        self.prompts: list[str] = []
        """The prompts of `input()`, in order."""
        self.on_input: Callable[[str], str] | None = None
        """Answers a cell's `input()`. Without it, such a cell waits, and the wait for the cell raises KernelTimeout."""
        self.info: dict[str, Any] = {}
        self._home: str = ""

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> LiveKernel:
        self._home = tempfile.mkdtemp(prefix="live-kernel-")
        wanted = {**os.environ, "IPYTHONDIR": f"{self._home}/ipython", **QUIET, **self.env}
        env = {name: value for name, value in wanted.items() if value is not None}
        self.manager = _Manager(connection_file=f"{self._home}/kernel.json", transport=TRANSPORT)
        self.manager.python = self.python
        self.manager.kernel_spec_manager = _ThisSpec(parent=self.manager)
        self.manager.start_kernel(env=env, cwd=str(self.folder))
        try:
            self.client = self.manager.blocking_client()
            self.client.start_channels()
            self.client.wait_for_ready(timeout=self.start_timeout)
            self._poller = zmq.Poller()
            for channel in self._channels():
                self._poller.register(channel.socket, zmq.POLLIN)
            self.info = self.request("kernel_info_request", {})
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the kernel's process at once, and close everything."""
        with contextlib.suppress(AttributeError):  # start() failed before this was set
            self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> LiveKernel:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        return bool(self.manager.is_alive())

    @property
    def pid(self) -> int:
        """The id of the kernel's process."""
        return int(self.manager.provisioner.pid)

    @property
    def folder(self) -> Path:
        """The folder in which the kernel was started."""
        return Path(self.cwd or self._home)

    def interrupt(self) -> None:
        """Do what the button ■ does: send SIGINT."""
        self.manager.interrupt_kernel()

    # --- cells --------------------------------------------------------------------------------------------

    def submit(
        self,
        code: str,
        *,
        allow_stdin: bool = False,
        stop_on_error: bool = True,
        silent: bool = False,
        subshell: str | None = None,
    ) -> Execution:
        """Send a cell, and return at once. Several cells wait in the kernel's queue, as after Run All."""
        content = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": stop_on_error,
        }
        message = self._message("execute_request", content, subshell)
        execution = Execution(code, message["header"]["msg_id"])
        self.executions[execution.msg_id] = execution
        self.client.shell_channel.send(message)
        return execution

    def wait(self, *executions: Execution, timeout: float = PATIENCE) -> None:
        """Wait until these cells are done. Raises KernelTimeout, which has their outputs so far."""
        self.wait_until(lambda: all(e.done for e in executions), timeout, "the end of " + _shown(executions))

    def execute(self, code: str, timeout: float = PATIENCE, **options: Any) -> Execution:
        """Send a cell, and wait for its end."""
        execution = self.submit(code, **options)
        self.wait(execution, timeout=timeout)
        return execution

    def run_all(self, *cells: str, timeout: float = PATIENCE, **options: Any) -> list[Execution]:
        """Send all cells without waiting, and then wait for all."""
        executions = [self.submit(cell, **options) for cell in cells]
        self.wait(*executions, timeout=timeout)
        return executions

    # --- waiting ------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], Any], timeout: float = PATIENCE, what: str = "") -> Any:
        """Handle messages until `condition()` is true, and return its value. Raises KernelTimeout after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            left = deadline - time.monotonic()
            if left <= 0:
                raise KernelTimeout(f"waited {timeout} s for {what or condition}; {self._state()}")
            if not self._pump(min(left, 0.1)) and not self.alive:
                raise KernelDied(
                    f"the kernel's process ended while waiting for {what or condition}; {self._state()}"
                )
        return value

    def wait_for_text(self, text: str, timeout: float = PATIENCE) -> Execution:
        """Wait until an output of any cell contains `text`. Return the Execution of this cell."""

        def found() -> Execution | None:
            return next((e for e in self.executions.values() if text in e.text or text in e.html), None)

        return self.wait_until(found, timeout, f"an output with {text!r}")

    def settle(self, seconds: float = 0.3) -> None:
        """Handle all messages that come within `seconds`. A test can then check that something did not happen."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._pump(left)

    # --- widgets ------------------------------------------------------------------------------------------

    def open_widgets(self, model: str = "") -> list[Widget]:
        """Return the open widgets, oldest first: all, or those of one model such as "ButtonModel"."""
        return [w for w in self.widgets.values() if w.open and (not model or w.model == model)]

    def on_page(self) -> set[str]:
        """Return the ids of the widgets that an output shows, and of all widgets inside them."""
        shown: set[str] = set()
        left = list(self._displayed)
        while left:
            one = left.pop()
            if one in self.widgets and one not in shown:
                shown.add(one)
                children = self.widgets[one].state.get("children", ())
                left += [child.removeprefix("IPY_MODEL_") for child in children]
        return shown

    def button(self, label: str, timeout: float = PATIENCE) -> Widget:
        """Wait for a button that a person can click (on the page, open, enabled), with `label` in its description.

        Return the newest one. A button that was just made is not on the page yet, and may be disabled before it is.
        """

        def found() -> Widget | None:
            on_page = self.on_page()
            fitting = [
                b
                for b in self.open_widgets("ButtonModel")
                if label in b.description and not b.state.get("disabled") and b.comm_id in on_page
            ]
            return fitting[-1] if fitting else None

        while True:
            button: Widget = self.wait_until(found, timeout, f"a button with {label!r}")
            if self._clicks <= self._idle:
                return button
            # An earlier click may disable this button soon; or the earlier click's callback waits for a click on this button.
            self.settle(0.05)
            if found() is button:
                return button

    def click(self, label: str, *, timeout: float = PATIENCE, subshell: str | None = None) -> Widget:
        """Wait for a button with `label` in its description, and click the newest one."""
        button = self.button(label, timeout)
        self.click_widget(button, subshell=subshell)
        return button

    def click_widget(self, widget: Widget, *, subshell: str | None = None) -> None:
        """Click exactly this button, even if it is closed (a late click)."""
        sent = self.send_comm(widget, {"method": "custom", "content": {"event": "click"}}, subshell=subshell)
        self._clicks.add(sent)

    def set_state(self, widget: Widget, subshell: str | None = None, **state: Any) -> None:
        """Change a widget's state, as a person does: `set_state(text, value="new")`."""
        self.send_comm(widget, {"method": "update", "state": state, "buffer_paths": []}, subshell=subshell)
        widget.state.update(state)

    def send_comm(self, widget: Widget, data: Mapping[str, Any], *, subshell: str | None = None) -> str:
        """Send a comm message. Return its id: it is the parent of all messages that follow from it."""
        message = self._message("comm_msg", {"comm_id": widget.comm_id, "data": dict(data)}, subshell)
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    # --- other requests -----------------------------------------------------------------------------------

    def request(
        self, kind: str, content: Mapping[str, Any], *, timeout: float = PATIENCE, control: bool = False
    ) -> dict[str, Any]:
        """Send any request, such as `complete_request`. Return the content of the reply."""
        return self.wait_for_reply(self.send(kind, content, control=control), timeout)

    def send(self, kind: str, content: Mapping[str, Any], *, control: bool = False) -> str:
        """Send any request, and return its message id at once."""
        message = self._message(kind, content)
        (self.client.control_channel if control else self.client.shell_channel).send(message)
        return str(message["header"]["msg_id"])

    def wait_for_reply(self, msg_id: str, timeout: float = PATIENCE) -> dict[str, Any]:
        return self.wait_until(lambda: self.replies.get(msg_id), timeout, f"the reply to message {msg_id}")[
            "content"
        ]

    @property
    def has_subshells(self) -> bool:
        return "kernel subshells" in self.info.get("supported_features", [])

    def create_subshell(self) -> str:
        """Make a subshell, a second shell thread of ipykernel 7. Return its id."""
        assert self.has_subshells, f"this kernel has no subshells: {self.info.get('banner', '')!r}"
        return str(self.request("create_subshell_request", {}, control=True)["subshell_id"])

    def delete_subshell(self, subshell: str) -> None:
        self.request("delete_subshell_request", {"subshell_id": subshell}, control=True)

    # --- inside -------------------------------------------------------------------------------------------

    def _message(self, kind: str, content: Mapping[str, Any], subshell: str | None = None) -> dict[str, Any]:
        message: dict[str, Any] = self.client.session.msg(kind, dict(content))
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        return message

    def _channels(self) -> list[Any]:
        c = self.client
        return [c.iopub_channel, c.shell_channel, c.stdin_channel, c.control_channel]

    def _pump(self, seconds: float) -> bool:
        """Wait for a message, and handle it. Return whether one came before the time limit.

        Only one message is handled, so that a condition sees each state of the kernel, however late this process reads it.
        """
        ready = dict(self._poller.poll(max(0, int(seconds * 1000) or 1)))
        for channel in self._channels():
            if channel.socket in ready and channel.msg_ready():
                self._handle(channel.get_msg(timeout=0))
                return True
        return bool(ready)

    def _handle(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        parent = message["parent_header"].get("msg_id", "")
        if kind == "input_request":
            self.prompts.append(content["prompt"])
            if self.on_input is not None:
                self.client.input(self.on_input(content["prompt"]))
        elif kind.endswith("_reply"):
            self.replies[parent] = message
            if parent in self.executions:
                self.executions[parent].status, self.executions[parent].reply = content["status"], content
        else:
            self.messages.append(message)
            if content.get("execution_state") == "idle":
                self._idle.add(parent)
            if WIDGET in content.get("data", {}):
                self._displayed.add(content["data"][WIDGET]["model_id"])
            if kind.startswith("comm_"):
                self._comm(kind, content)
            elif kind == "update_display_data":
                self._update(content)
            elif parent in self.executions:
                self._output(self.executions[parent], kind, content)

    def _comm(self, kind: str, content: dict[str, Any]) -> None:
        comm_id, data = content["comm_id"], content.get("data", {})
        if kind == "comm_open":
            self.widgets[comm_id] = Widget(comm_id, dict(data.get("state", {})))
        elif comm_id in self.widgets:
            widget = self.widgets[comm_id]
            if kind == "comm_close":
                widget.open = False
            elif data.get("method") in ("update", "echo_update"):
                widget.state.update(data.get("state", {}))

    def _update(self, content: dict[str, Any]) -> None:
        """Replace each output with this display id, in all cells."""
        display_id = content["transient"]["display_id"]
        for execution in self.executions.values():
            for output in execution.outputs:
                if output.display_id == display_id:
                    output.data, output.metadata = content["data"], content["metadata"]
                    output.updates += 1

    def _output(self, execution: Execution, kind: str, content: dict[str, Any]) -> None:
        if kind == "status":
            if content["execution_state"] == "busy":
                execution.began = time.monotonic()
            elif content["execution_state"] == "idle":
                execution.ended = time.monotonic()
            return
        if kind == "clear_output":
            execution.clear_next = bool(content["wait"])
            if not content["wait"]:
                execution.outputs.clear()
            return
        if kind not in ("stream", "error", "display_data", "execute_result"):
            return
        if execution.clear_next:
            execution.outputs.clear()
            execution.clear_next = False
        last = execution.outputs[-1] if execution.outputs else None
        if (
            kind == "stream"
            and last is not None
            and last.kind == "stream"
            and last.data["name"] == content["name"]
        ):
            last.data["text"] += content["text"]
        elif kind in ("stream", "error"):
            execution.outputs.append(Output(kind, dict(content)))
        else:
            shown = content.get("transient", {}).get("display_id")
            execution.outputs.append(Output(kind, content["data"], content["metadata"], shown))

    def _state(self) -> str:
        running = [e for e in self.executions.values() if not e.done]
        buttons = [b.description for b in self.open_widgets("ButtonModel")]
        last = "\n".join(self._tell(message) for message in self.messages[-30:])
        return f"open buttons: {buttons}; cells not done: {_shown(running)}; the last messages:\n{last}"

    def _tell(self, message: dict[str, Any]) -> str:
        """Return a line for an error message: the kind of a message, the cell that it answers, and what is in it."""
        parent = self.executions.get(message["parent_header"].get("msg_id", ""))
        cell = repr(parent.code.strip()[:30]) if parent else "no cell"
        return f"  {message['msg_type']} for {cell}: {str(message['content'])[:200]}"


def _shown(executions: Any) -> str:
    """Return cells as text for an error message: the beginning of their code, and the end of their outputs."""
    cells = [f"{e.code.strip()[:60]!r} (status {e.status!r}, put out {e.text[-2000:]!r})" for e in executions]
    return ", ".join(cells) or "none"
