"""One link to a server: the link opens an MCP client, sends calls, and closes the client. If the server ends, the connection may
open another link. All links of a connection share one log of the server's stderr.

Each link has a separate thread with an event loop. One task of this loop opens and closes the client. So nothing is nested in
the notebook's loop, and each cancel scope of anyio is entered and left in the same task.

Calls can come from any thread. They run as tasks on the link's loop. If a call is cancelled, the client sends the cancel message
of the protocol to the server. The thread is a daemon thread: when the interpreter ends, `close_all` waits for the thread, but
only for `CLOSING` seconds.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..core.events import HarnessError, Mistake
from ..core.execution import Outcome, attempt, attempt_apart, describe_error
from ..core.text import hide, make_text_plain, settle_lines
from .target import Target

if TYPE_CHECKING:
    from mcp import Client

THREAD = "toolloop-mcp"
HANDSHAKE = 30.0
"""How many seconds a server has to answer the handshake."""
CLOSING = 10.0
"""How many seconds `close` waits for the end of the server. The client waits 2 seconds for the end, and then kills the server."""
_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL, for processes that the server has started and that still run after its end."""
_TRIM = 1.0
"""Seconds between two checks of the size of the log file."""
_MOST_LOG = 10_000_000
"""If the log file has more bytes than this, it is emptied: a server may write without end."""
_TAIL = 20_000
"""How many bytes are read from the end of the log file. Earlier bytes are not used."""
_LAST_WORDS = 300
"""How many characters of the log's last lines an error message shows at most."""

_CLOSED = "the connection is closed"
_FIRST_WITH_LISTEN = "2026-07-28"
"""The first version of the protocol in which a client can listen for changes of the list of tools."""


class ServerError(Exception):
    """Raised if a server's tool reports an error, or if the server cannot answer."""


class ConnectionFailed(HarnessError, ServerError):
    """Raised if a server cannot be reached, or does not answer with valid MCP messages. The text is one line with the reason."""

    _shown_as = "toolloop"


class ServerLog:
    """The file with the stderr of one connection's server. A server that is started again writes to the same file."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="toolloop-mcp-", suffix=".log")
        os.close(handle)
        self._path = Path(name)
        self._last = ""
        """The last part of the file's text before the file was emptied or removed."""
        self.noise = 0
        """How many lines on the server's stdout were not MCP messages."""

    def open(self) -> TextIO:
        """Open the file for a server's process. After `trim` has emptied the file, the process goes on writing to it."""
        return self._path.open("a", encoding="utf-8")

    def trim(self) -> None:
        """Empty the file if it has more than _MOST_LOG bytes."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > _MOST_LOG:
                self._last = self._read()
                os.truncate(self._path, 0)

    def tail(self) -> str:
        """Return the last part of the log as plain text without API keys. This also works after `close`."""
        return hide(make_text_plain(settle_lines(self._last + self._read()))[-_TAIL:])

    def add_last_words(self, line: str) -> str:
        """Add the last lines of stderr to `line`, and the number of lines on stdout that were not MCP messages."""
        lines = [text.strip() for text in self.tail().splitlines() if text.strip()]
        if words := " / ".join(lines[-3:])[-_LAST_WORDS:]:
            line += f"; its last lines on stderr: {words}"
        if self.noise:
            line += f"; {self.noise} line{'s' * (self.noise > 1)} on its stdout were not MCP messages"
        return line

    def close(self) -> None:
        """Remove the file."""
        self._last = self.tail()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
                return file.read(_TAIL).decode("utf-8", "replace")
        except OSError:  # `close()` has removed the file
            return ""


class Link:
    """An MCP client on a separate thread. A link is opened once and closed once."""

    def __init__(
        self,
        target: Target,
        log: ServerLog,
        handshake: float,
        *,
        on_change: Callable[[], None],
        ask: Callable[[str, dict[str, Any]], Awaitable[tuple[str, dict[str, Any] | None]]],
    ) -> None:
        """`handshake`: seconds that the server has to answer. `on_change` is called on the link's thread when the server reports
        that its tools have changed. `ask` asks a person a question of the server (see `Asker.ask`).
        """
        self._target, self._log, self._handshake = target, log, handshake
        self._on_change, self._ask = on_change, ask
        self._opened: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancel: Callable[[], None] = lambda: None
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._status = 0
        """The HTTP status of the last request."""
        self.ended = False
        """True if the server is gone, or if the link was closed."""

    # --- from any thread ---

    def open(self) -> Client:
        """Start the thread, wait until the handshake is done, and return the client.

        Raises ConnectionFailed if the handshake fails, and Mistake if there is no package `mcp`.
        """
        try:  # the import is slow, so it comes before the server's time for the handshake begins
            from mcp import Client  # noqa: F401
        except ImportError as error:
            raise Mistake(
                f"connect() needs the package mcp, 2.x: pip install 'toolloop-jupyter[mcp]' ({error})"
            ) from None
        logger = logging.getLogger("mcp")
        # Keep the log lines out of the notebook: they are for the developers of `mcp`.
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        _open_links.add(self)
        self._thread.start()
        try:
            outcome = self._opened.result(self._handshake + CLOSING)
        except concurrent.futures.TimeoutError:  # a server of this notebook blocks the thread
            outcome = Outcome()
        except BaseException:
            self.close(wait=False)
            raise
        if self._client is None:
            self.close()
            why = f"did not answer the handshake within {self._handshake:g} s"
            if outcome.error is not None:
                why = f"cannot be connected to: {self.explain(outcome.error)}"
            raise ConnectionFailed(self._log.add_last_words(f"{self._target.title} {why}")) from None
        return self._client

    def close(self, *, wait: bool = True) -> None:
        """Close the server's input, and kill processes that do not end then. May be called from any thread, more than once.

        `wait`: return only after this has happened, or after CLOSING seconds.
        """
        self.ended = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is already closed
                self._loop.call_soon_threadsafe(lambda: self._cancel())  # noqa: PLW0108 - `_cancel` may still change
        if wait and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(CLOSING)

    async def run(self, work: Callable[[Client], Awaitable[object]]) -> Outcome:
        """Run `work(client)` on the link's thread. A cancel of the caller also cancels the work.

        If the link has ended, the work does not run, and the outcome's error is ConnectionError.
        """
        return await asyncio.wrap_future(self._begin(work))

    def run_sync(self, work: Callable[[Client], Awaitable[object]], timeout: float) -> Outcome:
        """Do the same as `run`, for code without `await`. The work is cancelled by Ctrl-C, and after `timeout` seconds."""
        future = self._begin(work)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            future.cancel()
            return Outcome(error=TimeoutError(f"{self._target.title} gave no answer within {timeout:g} s"))
        except concurrent.futures.CancelledError:  # the link has ended meanwhile
            return Outcome(error=ConnectionError(_CLOSED))
        except BaseException:
            future.cancel()
            raise

    def _begin(self, work: Callable[[Client], Awaitable[object]]) -> concurrent.futures.Future[Outcome]:
        client, loop = self._client, self._loop
        if not self.ended and client is not None and loop is not None:

            async def attempted() -> Outcome:
                return await attempt_apart(work(client))

            begun = attempted()
            try:
                return asyncio.run_coroutine_threadsafe(begun, loop)
            except RuntimeError:  # the loop was closed just now
                begun.close()
        closed: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        closed.set_result(Outcome(error=ConnectionError(_CLOSED)))
        return closed

    def is_lost(self, error: BaseException) -> bool:
        """Return True if `error`, which a call has raised, means that the server is gone."""
        if self.ended:
            return True
        import anyio
        from mcp_types import CONNECTION_CLOSED

        from mcp import MCPError

        if isinstance(error, MCPError):
            gone = self._target.kind == "http" and "session terminated" in str(error).lower()
            return error.code == CONNECTION_CLOSED or gone
        # `run_sync` raised this error: the server may still work on the call.
        if isinstance(error, TimeoutError):
            return False
        return isinstance(error, (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError))

    def explain(self, error: BaseException, limit: int = 300) -> str:
        """Describe the failure in one line. If the server refuses the API key, the line also names the variables to check."""
        if self._status in (401, 403):
            what = "the key" if self._status == 401 else "a request with this key"
            return f"the server refuses {what} (HTTP {self._status}); {self._target.key_place}"
        while (inner := getattr(error, "exceptions", None)) and len(inner) == 1:
            error = inner[0]
        status = f" (HTTP {self._status})" if self._status >= 300 else ""
        return hide(make_text_plain(describe_error(error, limit))).replace("\n", " ") + status

    # --- on the thread ---

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        finally:
            _open_links.discard(self)

    async def _live(self) -> None:
        """Open the client, serve calls and close the client. This one task enters and leaves all contexts of the client."""
        outcome = await attempt(self._serve())
        self.ended = True
        if not self._opened.done():
            self._opened.set_result(outcome)

    async def _serve(self) -> None:
        import anyio

        self._loop = asyncio.get_running_loop()
        with anyio.CancelScope(deadline=anyio.current_time() + self._handshake) as scope:
            self._cancel = scope.cancel
            async with self._make_client() as client:
                scope.deadline = math.inf
                # Switch off the client's check of results. The client would try each `pattern` in the server's schema, and a
                # regular expression can block Python for ever. `read_result` checks the results instead.
                client.session.validate_tool_result = _accept_result
                self._client = client
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, client)
                    self._opened.set_result(Outcome())
                    while not self.ended:
                        await anyio.sleep(_TRIM)
                        self._log.trim()
                    tasks.cancel_scope.cancel()

    async def _listen(self, client: Client) -> None:
        """Listen for changes of the list of tools. In older versions of the protocol, `_take_message` gets a message instead."""

        async def hear() -> None:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._on_change()

        tools = client.server_capabilities.tools
        if tools is not None and tools.list_changed and client.protocol_version >= _FIRST_WITH_LISTEN:
            await attempt(hear())  # a server may not offer this

    async def _take_message(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._on_change()

    def _make_client(self) -> Client:
        from mcp import Client

        target = self._target
        server: Any = target.server
        if target.kind == "stdio":
            server = self._start(target)
        elif target.kind == "http":
            server = self._ask_over_http(target)
        return Client(
            server,
            message_handler=self._take_message,
            elicitation_callback=self._elicit,
            list_roots_callback=self._list_roots if target.roots else None,
            cache=None,
        )

    async def _list_roots(self, _context: object) -> Any:
        """Return the folders in `roots=`. Without `roots=`, the server is told that the client does not support roots."""
        from mcp_types import ListRootsResult

        return ListRootsResult.model_validate({"roots": [{"uri": uri} for uri in self._target.roots]})

    async def _elicit(self, _context: object, asked: Any) -> Any:
        """Ask a person the server's question. Decline a question without a form, for example one that sends to a web page."""
        from mcp_types import ElicitResult

        if getattr(asked, "mode", "form") != "form":
            return ElicitResult(action="decline")
        action, content = await self._ask(asked.message, asked.requested_schema)
        return ElicitResult(action=action, content=content)

    @asynccontextmanager
    async def _ask_over_http(self, target: Target) -> AsyncIterator[Any]:
        """Open the streams to a server at an address. The client (mcp 2.3) follows redirects only to the same host."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def note(response: Any) -> None:
            if response.request.method == "POST":
                self._status = response.status_code

        timeout, hooks = httpx2.Timeout(30.0, read=300.0), {"response": [note]}
        async with (
            httpx2.AsyncClient(headers=dict(target.headers), timeout=timeout, event_hooks=hooks) as client,
            streamable_http_client(target.url, http_client=client) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _start(self, target: Target) -> AsyncIterator[tuple[Any, Any]]:
        """Start the server's process, and yield the streams to it. Afterwards, end all processes of the server's group."""
        import anyio
        from mcp.client.stdio import StdioServerParameters, stdio_client

        with tempfile.TemporaryDirectory(prefix="toolloop-mcp-") as folder, self._log.open() as errors:
            command, pid_file = target.command, Path(folder, "pid")
            if os.name == "posix":
                # The client (mcp 2.3) starts the server in a new process group, but does not give us the server's process id. If
                # the server ends by itself, the client does not end the processes that the server has started. `_end_group` ends
                # them, and needs this id. On Windows, the client's job object ends all processes.
                command = ("/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(pid_file), *command)
            parameters = StdioServerParameters(
                command=command[0],
                args=list(command[1:]),
                env=dict(target.env),
                cwd=target.cwd,
                encoding_error_handler="replace",
            )
            try:
                async with (
                    stdio_client(parameters, errors) as (read, write),
                    anyio.create_task_group() as tasks,
                ):
                    send, receive = anyio.create_memory_object_stream[Any](0)
                    tasks.start_soon(self._pass_on, read, send)
                    yield receive, write
                    tasks.cancel_scope.cancel()
                    receive.close()
            finally:
                with anyio.CancelScope(shield=True):
                    await _end_group(pid_file)

    async def _pass_on(self, read: Any, send: Any) -> None:
        """Pass the server's messages on to the client, and count the lines that are not messages."""
        async with send:
            async for message in read:
                if isinstance(message, Exception):
                    self._log.noise += 1
                else:
                    await send.send(message)
            self.ended = True


async def _accept_result(_name: str, _result: object) -> None: ...


async def _end_group(pid_file: Path) -> None:
    """End the processes of the server's group that still run. `pid_file` contains the server's process id."""
    try:
        group = int(pid_file.read_text())  # noqa: ASYNC240 - a few bytes
    except (OSError, ValueError):  # the server was not started, or this is Windows
        return
    for kind in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, kind)
            while time.monotonic() < deadline:
                await asyncio.sleep(0.02)
                os.killpg(group, 0)
            continue
        return


_open_links: set[Link] = set()
"""The links whose threads are running."""


@atexit.register
def close_all() -> None:
    """Close all open links in parallel when the kernel ends, so that no server is still running afterwards."""
    links = list(_open_links)
    for link in links:
        link.close(wait=False)
    for link in links:
        link.close()
