"""Runs rows in the worker processes of an executor. A worker gets rows in chunks, and returns each row as one line of JSON.

A worker runs the rows of a chunk on its own event loop. Functions and classes can be sent to a worker. Pydantic's validators and
a notebook's kernel cannot be sent, so the worker builds the run's configuration again. A worker on this machine sends a row back
as soon as the row has ended. A worker on another machine cannot connect to this process: it returns the rows of a chunk together
when all of them have ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import os
import pickle
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, TypeAlias

from ..events import ArgumentInvalid, ArgumentTypeInvalid
from ..execution import Outcome, Raised, attempt, attempt_call, describe_error
from ..loop import Allowed, Config
from ..models import find_responder
from ..session import build_config
from ..text import hide
from .job import STOP_WAIT, Job, RunState, begin_row, finish_row
from .pace import Pace
from .store import encode_row

CHUNK = 4
"""A chunk has CHUNK times `concurrency` rows."""
MOST_CHUNKS = 256
"""The largest number of chunks that the executor has at the same time."""
MOST_LOST = 3
"""The largest number of tries for a row whose worker dies. In the last try, the row is sent alone."""
KeepLine: TypeAlias = Callable[[Mapping[str, Any], Job], Awaitable[None]]
"""A function that keeps a row which a worker has run. It gets the row's data and the row's job."""
Address: TypeAlias = tuple[Any, bytes]
"""Where workers on this machine send rows: (the address of a socket, the secret that a worker needs to connect)."""

_POOL = ("_max_workers", "_mp_context", "_initializer", "_initargs")
"""Attributes of a pool. With their values, another pool of the same kind can be made.

private: CPython 3.10 to 3.13 has all four, loky 3 has the first. A public way to copy a pool would replace them.
"""


class Workers:
    """Runs rows in the workers of an executor."""

    def __init__(
        self, executor: Any, config: Config, concurrency: int, max_cost: float | None, state: RunState
    ) -> None:
        """Pickle everything that the workers need.

        Raises ArgumentTypeInvalid if `executor` is not an executor, and ArgumentInvalid if the workers cannot run these rows.
        """
        if not isinstance(executor, Executor):
            hint = "; write client.get_executor()" if hasattr(executor, "get_executor") else ""
            raise ArgumentTypeInvalid(
                f"executor must be a concurrent.futures.Executor, got {type(executor).__name__}{hint}"
            )
        if isinstance(executor, ThreadPoolExecutor):
            raise ArgumentInvalid(
                "executor: threads of this process do not make rows faster; leave out executor, and set concurrency"
            )
        if config.approvals.may_ask(config.tools):
            raise ArgumentInvalid(
                'executor: nobody can be asked in a worker; write permissions="full", a mapping of "full" and "deny", or on_approval='
            )
        if config.observers:
            raise ArgumentInvalid(
                "executor: an observer (or a recording) works only in this process; leave out executor, or the observer"
            )
        # Only cloudpickle can send functions that a notebook defines. Dask and loky install it.
        cloudpickle = attempt_call(importlib.import_module, "cloudpickle")
        self._pickler: Any = pickle if isinstance(cloudpickle, Raised) else cloudpickle
        self._executor, self._is_renewed, self._state = executor, False, state
        self._chunk = CHUNK * concurrency
        self._takes_rows = config.route.answers is not None
        self._parcel = self._pack(config, concurrency, max_cost)
        self._jobs: dict[int, Job] = {}
        """Number of a row -> its job, for all rows that have been read but have not come back from a worker."""
        self._futures: set[Future[list[str]]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: set[asyncio.Future[None]] = set()
        self._alone = asyncio.Lock()
        """Locked during the last try of a row. The row may kill its worker, so only one row at a time is in its last try."""

    def _pack(self, config: Config, concurrency: int, max_cost: float | None) -> bytes:
        parts: dict[str, object] = {
            **{f"the tool {tool.name!r}": tool.function for tool in config.tools},
            "output": None if config.output is None else config.output.kind,
            "instructions": config.instructions,
            **vars(config.approvals),
            **vars(config.limits),
            "sandbox": config.sandbox,
            # The fallback models are left out here: "model" below has their routes and their API keys.
            "options": dataclasses.replace(config.options, fallback=()),
            "model": [(route, find_responder(route.model)) for route in config.routes],
        }
        for name, part in parts.items():
            if isinstance(made := attempt_call(self._pickler.dumps, part), Raised):
                raise ArgumentInvalid(
                    f"executor: {name} cannot be sent to a worker: {describe_error(made.error, 300)}"
                )
        packed: bytes = self._pickler.dumps([parts, len(config.tools), concurrency, max_cost])
        return packed

    @property
    def running(self) -> int:
        """The number of rows that have been read but have not come back from a worker."""
        return len(self._jobs)

    async def run(self, jobs: AsyncIterator[Job], keep: KeepLine) -> None:
        """Run the rows of `jobs`. If the run stops, rows that no worker has begun are not run."""
        state, work = self._state, asyncio.ensure_future(self._run(jobs, keep))
        work.add_done_callback(lambda _: state.wake())
        while not work.done() and not state.is_cut:
            await state.wait_for_change()
            if state.is_stopping:
                self._take_back()
        if not work.done():
            self._take_back()
            for task in self._tasks:
                task.cancel()  # the rows of these chunks are lost
            await asyncio.wait({work}, timeout=STOP_WAIT)
        if work.done() and not work.cancelled():
            work.result()

    async def _run(self, jobs: AsyncIterator[Job], keep: KeepLine) -> None:
        def take(text: str | bytes) -> None:
            """Keep the row in `text`. A row may come twice, alone and with its chunk: the second one is ignored."""
            line: dict[str, Any] = json.loads(text)
            if (job := self._jobs.pop(line["row"], None)) is not None:
                keeping = asyncio.ensure_future(keep(line, job))
                self._keeping.add(keeping)
                keeping.add_done_callback(self._keeping.discard)

        async def send(chunk: list[Job]) -> None:
            task = asyncio.ensure_future(self._run_chunk(chunk, address, take))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)
            if len(self._tasks) >= MOST_CHUNKS:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

        with _receive_rows(take) as address:
            chunk: list[Job] = []
            async for job in jobs:
                self._jobs[job.number] = job
                chunk.append(job)
                if len(chunk) == self._chunk:
                    await send(chunk)
                    chunk = []
            if chunk:
                await send(chunk)
            if self._tasks:
                await asyncio.wait(self._tasks)
            if self._keeping:
                await asyncio.wait(self._keeping)
        if self._is_renewed:
            self._executor.shutdown(wait=False)

    async def _run_chunk(
        self, chunk: Sequence[Job], address: Address, take: Callable[[str], object], lost: int = 0
    ) -> None:
        """Run one chunk. If the worker dies, the rows without a result are sent to a worker again. Each row has MOST_LOST tries.

        In the last try, each row is sent alone. `lost`: how many workers have died with these rows so far.
        """
        jobs = [job for job in chunk if job.number in self._jobs]
        if not jobs or self._state.is_stopping:
            return
        async with self._alone if lost + 1 == MOST_LOST else nullcontext():
            executor = self._executor
            outcome = await self._submit(jobs, address)
            if _is_lost(outcome.error):
                self._renew(executor)
        if outcome.error is None:
            for line in outcome.value:
                take(line)
        elif self._state.is_stopping:  # `_take_back` has cancelled the chunk
            return  # type: ignore[unreachable]  # the state has changed during `_submit`
        elif not _is_lost(outcome.error):
            why = f"the workers cannot run the rows: {describe_error(outcome.error, 500)}"
            self._state.end(hide(why), cut=True)
        elif lost + 1 < MOST_LOST:
            parts = [jobs] if lost == 0 else [[job] for job in jobs]
            await asyncio.gather(*(self._run_chunk(part, address, take, lost + 1) for part in parts))
        else:
            why = f"its worker was lost {MOST_LOST} times: {describe_error(outcome.error, 200)}"
            for job in jobs:
                take(json.dumps(encode_row(job.make_row(None, why))))

    async def _submit(self, jobs: Sequence[Job], address: Address) -> Outcome:
        """Run rows in a worker. Return an Outcome with the lines of the rows, or with the error."""
        sent = [dataclasses.replace(job, input=job.input if self._takes_rows else {}) for job in jobs]
        future = attempt_call(
            lambda: self._executor.submit(run_chunk, self._parcel, self._pickler.dumps(sent), address)
        )
        if isinstance(future, Raised):
            return Outcome(error=future.error)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        waiting = asyncio.wrap_future(future)
        return await attempt(waiting)

    def _take_back(self) -> None:
        """Cancel the chunks that no worker has begun. The other chunks run to their end."""
        for future in list(self._futures):
            future.cancel()

    def _renew(self, broken: Executor) -> None:
        """Replace a broken pool with a new pool of the same kind. Dask's executor stays, because its cluster has other workers."""
        if broken is not self._executor:
            return  # another chunk has replaced the pool already
        loky: Any = sys.modules.get("loky")
        pool: Any = broken
        if loky is not None and type(pool).__module__.startswith("loky"):
            self._executor = loky.get_reusable_executor(max_workers=getattr(pool, _POOL[0]))
        elif isinstance(pool, ProcessPoolExecutor):
            self._executor = ProcessPoolExecutor(*(getattr(pool, name) for name in _POOL))
            self._is_renewed = True


def _is_lost(error: BaseException | None) -> bool:
    """Return True if the error means that a worker has died. Return False for an error of the work itself."""
    return isinstance(error, BrokenExecutor) or type(error).__module__.startswith("distributed")


@contextmanager
def _receive_rows(take: Callable[[bytes], object]) -> Iterator[Address]:
    """Inside the `with` block, receive the finished rows of workers on this machine, each as one line of JSON.

    `take` is called with each line, on the running event loop. Yields the address to which the workers send the rows.
    """
    loop, key, is_closed = asyncio.get_running_loop(), os.urandom(32), threading.Event()
    listener = Listener(("127.0.0.1", 0), backlog=16, authkey=key)

    def read(connection: Connection) -> None:
        with connection, suppress(EOFError, OSError, RuntimeError):  # RuntimeError: the loop is closed
            while True:
                loop.call_soon_threadsafe(take, connection.recv_bytes())

    def accept() -> None:
        while not is_closed.is_set():
            came = attempt_call(listener.accept)
            if not isinstance(came, Raised):  # an error: a client without the secret, or a closed listener
                threading.Thread(target=read, args=(came,), name="toolloop-rows", daemon=True).start()

    threading.Thread(target=accept, name="toolloop-rows", daemon=True).start()
    try:
        yield listener.address, key
    finally:
        is_closed.set()
        # Connecting wakes the thread that waits in `accept`. Nothing is sent, because this thread may have ended already.
        woken = attempt_call(socket.create_connection, listener.address, 1.0)
        if not isinstance(woken, Raised):
            woken.close()
        listener.close()


# --- in a worker ------------------------------------------------------------------------------------------------

_worker = threading.local()
"""Holds one event loop for each thread of a worker."""


def run_chunk(parcel: bytes, packed: bytes, address: Address) -> list[str]:
    """Run rows in this worker and return their lines. If `address` can be reached, send each line there at once, too."""
    if not hasattr(_worker, "loop"):
        _worker.loop = asyncio.new_event_loop()  # connections stay open from one chunk to the next
    here = attempt_call(Client, address[0], None, address[1])
    connection = None if isinstance(here, Raised) else here
    try:
        made: list[str] = _worker.loop.run_until_complete(
            _run_jobs(pickle.loads(parcel), pickle.loads(packed), connection)  # noqa: S301 - our own process pickled it
        )
        return made
    finally:
        if connection is not None:
            connection.close()


async def _run_jobs(parcel: list[Any], jobs: list[Job], connection: Connection | None) -> list[str]:
    parts, tools, concurrency, max_cost = parcel
    state, places, allowed = RunState(), asyncio.Semaphore(concurrency), Allowed()
    pace = Pace(concurrency, max_cost, state)
    functions, keywords = list(parts.values())[:tools], dict(list(parts.items())[tools:])
    routes = tuple(route for route, _ in keywords.pop("model"))
    config = build_config(model=routes[0].answers or routes[0].model, tools=functions, **keywords)
    config = dataclasses.replace(config, routes=routes, gate=pace)
    lines: list[str] = []

    async def run(job: Job) -> None:
        async with places:
            if state.is_final or pace.find_limit():
                return
            row = await finish_row(begin_row(config, job, allowed), job, config)
            line = {**encode_row(row), "ends_all": state.is_final}
            lines.append(json.dumps(line, default=str))
            if connection is not None:
                attempt_call(connection.send_bytes, lines[-1].encode("utf-8", "backslashreplace"))

    await asyncio.gather(*map(run, jobs))
    return lines
