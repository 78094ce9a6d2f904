"""An OpenAI-compatible chat server in the test's process. It answers as its script says.

    with ScriptedServer([answer("Hello"), failure(429)]) as server:
        ... model="openai/stub", api_base=server.base_url ...
        assert server.requests[0].messages[-1]["content"] == "Hi"

Each POST gets the next entry of the script. The last entry answers all further requests. With `repeat_last=False`, a
further request gets status 500, and `stop()` fails. An entry is a dict (see `Entry`), or a function that gets the
`Received` request and returns an entry. The server has its own event loop in its own thread, on a random port of
127.0.0.1. So sync tests, async tests and other processes can use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


class Entry(TypedDict, total=False):
    """One answer. Without `status`, `body`, `raw` and `chunks`, it is a chat completion, streamed if the request asks for that."""

    content: str
    reasoning: str
    tool_calls: Sequence[Mapping[str, str]]
    """Tool calls, each with `id`, `name` and `arguments` (JSON text, sent unchanged)."""
    finish: str
    """The finish reason. By default, it is "tool_calls" or "stop"."""
    usage: Mapping[str, Any] | None
    """A usage in place of the default. None: no usage is sent. A stream has it only if the request asks for it."""
    chunks: Sequence[Mapping[str, Any] | str]
    """For streams: deltas, sent unchanged. A dict with `choices` is a whole chunk; a str is the data of an event."""
    status: int
    body: Any
    """A JSON body. It is sent in one piece, even if the request asks for a stream."""
    raw: str | bytes
    """The bytes of the body. The content type is in `headers`."""
    pieces: Sequence[bytes]
    """The bytes of a stream's body. Each piece is sent separately."""
    headers: Mapping[str, str]
    stall: float
    """Seconds before the first byte of the answer."""
    delay: float
    """Seconds after each streamed chunk."""
    hold_after: int
    """After this number of chunks, the stream waits for `release()`."""
    drop_after: int
    """After this number of chunks, the connection is cut, as by a network: no final chunk comes."""


@dataclass
class Received:
    """A request as it arrived. The names in `headers` are in lower case. `body` is the parsed JSON; {} if it is empty."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.monotonic)
    completed: bool = False
    """True if the whole answer was written."""
    abandoned: bool = False
    """True if the client closed the connection before the end of the answer."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body.get("messages", [])

    @property
    def tools(self) -> list[dict[str, Any]]:
        return self.body.get("tools") or []


Step = Entry | Callable[[Received], Entry]


def answer(content: str, **more: Any) -> Entry:
    """Return an entry: the model says `content`."""
    return Entry(content=content, **more)


def calls(*named: tuple[str, Mapping[str, Any]], content: str = "", **more: Any) -> Entry:
    """Return an entry: the model calls tools, each `(name, arguments)`, with the ids c1, c2, …"""
    listed = [
        {"id": f"c{n}", "name": name, "arguments": json.dumps(arguments)}
        for n, (name, arguments) in enumerate(named, 1)
    ]
    return Entry(content=content, tool_calls=listed, **more)


def failure(status: int, message: str = "scripted failure", **more: Any) -> Entry:
    """Return an entry: an error in OpenAI's form."""
    return Entry(status=status, body={"error": {"message": message, "type": "scripted"}}, **more)


_PORTS = iter(secrets.SystemRandom().sample(range(10_000, 32_000), 22_000))


def find_port() -> int:
    """Return a port of 127.0.0.1 for another process, one that the system gives to nobody (see `_listen`)."""
    for port in itertools.islice(_PORTS, 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no port from 10,000 to 32,000 could be had")


async def _listen(connected: Callable[..., Any]) -> asyncio.Server:
    """Listen on a port below those that the system gives away. A kernel of another test may have been promised one of these, and
    binds it only later. A process uses no port twice, because it remembers by the address what a server refuses.
    """
    for port in itertools.islice(_PORTS, 100):
        with contextlib.suppress(OSError):
            return await asyncio.start_server(connected, "127.0.0.1", port)
    raise RuntimeError("no port from 10,000 to 32,000 could be had")


class ScriptedServer:
    """See the module. `requests` has the requests so far. `errors` has the mistakes in the script."""

    def __init__(
        self,
        script: Sequence[Step] | Callable[[Received], Entry],
        *,
        delay: float = 0.0,
        repeat_last: bool = True,
    ) -> None:
        self.script, self.delay, self.repeat_last = script, delay, repeat_last
        self.requests: list[Received] = []
        self.errors: list[str] = []
        self.base_url = ""
        self._taken = 0
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._released: asyncio.Event
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Start to listen. Return the base URL, such as `http://127.0.0.1:40123/v1`."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="ScriptedServer", daemon=True)
        self._thread.start()
        if not ready.wait(10):
            raise TimeoutError("the scripted server did not start within 10 s")
        return self.base_url

    def stop(self) -> None:
        """Close all connections, and end the thread. Raises AssertionError if the script was wrong or too short."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(10)
            self._thread = None
        assert not self.errors, "the scripted server was asked for what it could not answer: " + "; ".join(
            self.errors
        )

    def __enter__(self) -> ScriptedServer:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.errors.clear()  # the failure of the test itself is more important
        self.stop()

    def wait_for_requests(self, count: int, timeout: float = 60.0) -> list[Received]:
        """Wait until `count` requests have arrived. Raises TimeoutError after `timeout` seconds."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"{len(self.requests)} of {count} requests arrived within {timeout} s")
            return list(self.requests)

    def release(self) -> None:
        """Let each stream go on that waits at `hold_after`, now or later."""
        self._loop.call_soon_threadsafe(self._released.set)

    # --- on the server's thread ---------------------------------------------------------------------------

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(ready))
        finally:
            self._loop.close()

    async def _serve(self, ready: threading.Event) -> None:
        self._stopping, self._released = asyncio.Event(), asyncio.Event()
        serving: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            serving.add(task)
            try:
                await self._connection(reader, writer)
            except asyncio.CancelledError:
                writer.transport.abort()  # stop() was called: asyncio's streams would log a cancelled handler as an error
            finally:
                serving.discard(task)

        server = await _listen(connected)
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await self._stopping.wait()
        server.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await read_request(reader)
                entry = self._take(request)
                reply = _Reply(request, reader, writer)
                try:
                    await self._answer(reply, entry)
                    request.completed = True
                except ConnectionError as error:
                    request.abandoned = not isinstance(error, _Dropped)
                    raise
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a client may close the connection at any time
        finally:
            writer.close()

    def _take(self, request: Received) -> Entry:
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        if request.method != "POST":
            return failure(404, f"{request.method} {request.path} is not scripted")
        try:
            entry = self._next(request)
            if "chunks" in entry and not request.body.get("stream"):
                raise ValueError(
                    "an entry with `chunks` answers a stream only; the request did not ask for one"
                )
            return entry
        except Exception as error:
            self.errors.append(f"request {len(self.requests)}: {error!r}")
            return failure(500, self.errors[-1])

    def _next(self, request: Received) -> Entry:
        if callable(self.script):
            return self.script(request)
        if self._taken >= len(self.script) and not self.repeat_last:
            raise LookupError(f"the script has only {len(self.script)} entries")
        step = self.script[min(self._taken, len(self.script) - 1)]
        self._taken += 1
        return step(request) if callable(step) else step

    async def _answer(self, reply: _Reply, entry: Entry) -> None:
        if entry.get("stall"):
            await reply.pause(entry["stall"])
        headers = dict(entry.get("headers", {}))
        if "raw" in entry:
            raw = entry["raw"]
            await reply.whole(
                entry.get("status", 200), raw.encode() if isinstance(raw, str) else raw, headers
            )
        elif "pieces" in entry:
            await reply.begin_stream(headers)
            for piece in entry["pieces"]:
                await reply.frame(piece)
                await asyncio.sleep(0)
            await reply.end_stream()
        elif "status" in entry or "body" in entry:
            await reply.json(
                entry.get("status", 200), entry.get("body", {"error": {"message": "scripted"}}), headers
            )
        elif reply.request.body.get("stream"):
            await self._stream(reply, entry, headers)
        else:
            await reply.json(200, {**reply.base("chat.completion"), **completion(entry)}, headers)

    async def _stream(self, reply: _Reply, entry: Entry, headers: dict[str, str]) -> None:
        await reply.begin_stream(headers)
        base = reply.base("chat.completion.chunk")
        delay = entry.get("delay", self.delay)
        for number, piece in enumerate([*deltas(entry), None]):
            if entry.get("hold_after") == number:
                await reply.pause(self._released)
            if entry.get("drop_after") == number:
                reply.writer.transport.abort()
                raise _Dropped
            if piece is not None:
                await reply.event(
                    piece if isinstance(piece, str) or "choices" in piece else chunk(base, piece)
                )
                if delay:
                    await reply.pause(delay)
        await reply.event(chunk(base, {}, finish_reason(entry)))
        usage = entry.get("usage", USAGE)
        if usage is not None and (reply.request.body.get("stream_options") or {}).get("include_usage"):
            await reply.event({**base, "choices": [], "usage": usage})
        await reply.event("[DONE]")
        await reply.end_stream()


class _Dropped(ConnectionError):
    """Raised if the script cuts the connection."""


async def read_request(reader: asyncio.StreamReader) -> Received:
    """Read one HTTP/1.1 request with a content length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    try:
        body = json.loads(raw) if raw else {}
    except ValueError:
        body = {}  # `raw` has it
    return Received(method, path, headers, raw, body)


@dataclass
class _Reply:
    """Writes one answer. Each method raises ConnectionError if the client has closed the connection."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def base(self, kind: str) -> dict[str, Any]:
        model = self.request.body.get("model", "scripted")
        return {
            "id": f"chatcmpl-{id(self.request):x}",
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }

    async def whole(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self._head(status, {"Content-Type": "text/plain", "Content-Length": str(len(data)), **headers})
        self.writer.write(data)
        await self._drain()

    async def json(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        await self.whole(status, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})

    async def begin_stream(self, headers: Mapping[str, str]) -> None:
        self._head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **headers})
        await self._drain()

    async def event(self, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        await self.frame(f"data: {text}\n\n".encode())

    async def frame(self, data: bytes) -> None:
        if data:  # an empty chunk would end the stream
            self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await self._drain()

    async def end_stream(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self._drain()

    async def pause(self, until: float | asyncio.Event) -> None:
        """Wait for some seconds, or for the event. End at once if the client closes the connection."""
        # While the client waits for an answer, it sends nothing; so a read only returns if it closes the connection.
        gone = asyncio.ensure_future(self.reader.read(1))
        over = asyncio.ensure_future(
            until.wait() if isinstance(until, asyncio.Event) else asyncio.sleep(until)
        )
        try:
            await asyncio.wait({gone, over}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not over.done():
                raise ConnectionResetError("the client went away")
        finally:
            gone.cancel()
            over.cancel()
            await asyncio.gather(gone, over, return_exceptions=True)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.writer.write(f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode())

    async def _drain(self) -> None:
        if self.writer.transport.is_closing():
            raise ConnectionResetError("the client went away")
        await self.writer.drain()


def finish_reason(entry: Entry) -> str:
    return entry.get("finish") or ("tool_calls" if entry.get("tool_calls") else "stop")


def chunk(base: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def deltas(entry: Entry) -> Iterator[Mapping[str, Any] | str]:
    """Yield the pieces of a streamed answer: words of the text, and arguments of calls in pieces of four characters."""
    if "chunks" in entry:
        yield from entry["chunks"]
        return
    yield {"role": "assistant", "content": None}
    yield from ({"reasoning_content": word} for word in words(entry.get("reasoning", "")))
    yield from ({"content": word} for word in words(entry.get("content", "")))
    for index, call in enumerate(entry.get("tool_calls", ())):
        function = {"name": call["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]}
        text = call["arguments"]
        for at in range(0, len(text), 4):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text[at : at + 4]}}]}


def words(text: str) -> list[str]:
    """Split `text` after its spaces."""
    pieces = text.split(" ")
    return [piece + " " for piece in pieces[:-1]] + [piece for piece in pieces[-1:] if piece]


def completion(entry: Entry) -> dict[str, Any]:
    """Return the answer as one JSON body."""
    message: dict[str, Any] = {"role": "assistant", "content": entry.get("content") or None}
    if entry.get("reasoning"):
        message["reasoning_content"] = entry["reasoning"]
    if entry.get("tool_calls"):
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in entry["tool_calls"]
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(entry)}
    usage = entry.get("usage", USAGE)
    return {"choices": [choice], **({} if usage is None else {"usage": usage})}
