"""Rows in an executor's workers give the same frame as rows on one loop. A worker may die. Some objects cannot be sent to a
worker.

The pools are real: processes of this machine, loky, and a Dask cluster of two processes.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Client

import pandas as pd
import pytest
from pydantic import BaseModel

import toolloop_jupyter as tl
from support import pace
from support.servers import answer, failure
from support.signals import KILL
from toolloop_jupyter import amap
from toolloop_jupyter.core.loop.turn import Spending
from toolloop_jupyter.core.rows import RowsOptions, RowsRun, workers
from toolloop_jupyter.core.session import build_config
from toolloop_jupyter.teaching import ModelOfRow, Recorder, Replay, ScriptedModel, call, end, error, text

cloudpickle = pytest.importorskip("cloudpickle", reason="tests send functions of their own")
pytestmark = pytest.mark.timeout(180)


class Label(BaseModel):
    label: str
    size: int


def look(word: str) -> str:
    """Look a word up."""
    return word.upper()


def label(messages: list[dict[str, object]]) -> Label:
    word = str(messages[-1]["content"])
    return Label(label=word, size=len(word))


def ask(messages: list[dict[str, object]]) -> object:
    return call("look", word=str(messages[-1]["content"]).split()[-1])


@pytest.fixture(scope="module", autouse=True)
def by_value():
    """The functions of this file are pickled by value, like those of a notebook, because no worker can import this file."""
    import sys

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        yield executor


@pytest.fixture(scope="module")
def dask():
    distributed = pytest.importorskip("distributed", reason="there is no Dask")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def loky():
    made = pytest.importorskip("loky", reason="there is no loky").get_reusable_executor(max_workers=2)
    yield made
    made.shutdown(wait=True, kill_workers=True)


@pytest.fixture
def executor(request):
    made = request.getfixturevalue(request.param)
    return made.get_executor() if request.param == "dask" else made


TABLE = pd.DataFrame(
    {"text": [f"word{n}" * (n % 3 + 1) for n in range(30)]}, index=[f"i{n % 7}" for n in range(30)]
)


@pytest.mark.parametrize("executor", ["pool", "loky", "dask"], indirect=True)
async def test_the_same_frame_as_on_one_loop(executor, tmp_path):
    """Functions, classes and models of a notebook work in workers. Answers, transcripts, keys and the store are as without an
    executor.
    """
    given = {"tools": [look], "output": Label, "concurrency": 3}
    here = await amap("Rate {{text}}", TABLE, model=ScriptedModel(ask, label, name="m"), **given)
    store = tmp_path / "rows.jsonl"
    there = await amap(
        "Rate {{text}}",
        TABLE,
        model=ScriptedModel(ask, label, name="m"),
        executor=executor,
        store=store,
        **given,
    )
    pd.testing.assert_frame_equal(there.frame.drop(columns="seconds"), here.frame.drop(columns="seconds"))
    assert isinstance(there[3].answer, Label)
    assert [one.output for one in there[3].result.tool_results] == ["WORD3"]
    assert [row.key for row in there] == [row.key for row in here]
    assert there.usage == here.usage
    again = await amap("Rate {{text}}", TABLE, model=ScriptedModel(name="m"), store=store, **given)
    assert again.progress.from_store == 30


@pytest.mark.parametrize("executor", ["pool", "loky"], indirect=True)
async def test_a_worker_that_dies(executor, tmp_path):
    """If a worker dies, its rows are run again, but not those that had come back, and the others go on."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def look_once(word: str) -> str:
        """Look."""
        with (marks / word).open("a") as file:
            file.write("x")
        if word == "word9" and len((marks / word).read_text()) == 1:
            os.kill(os.getpid(), KILL)
        return word.upper()

    def ask_once(messages):
        return call("look_once", word=str(messages[-1]["content"]).split()[-1])

    table = [{"text": f"word{n}"} for n in range(20)]
    rows = await amap(
        "Rate {{text}}",
        table,
        model=ScriptedModel(ask_once, label),
        tools=[look_once],
        output=Label,
        executor=executor,
        concurrency=2,
    )
    assert [row.answer.label for row in rows] == [f"WORD{n}" for n in range(20)]
    assert (marks / "word9").read_text() == "xx"


async def test_a_dask_worker_that_dies(dask):
    """If a worker of a cluster dies, its rows are run on another worker."""

    def slow(messages):
        time.sleep(0.05)
        return label(messages)

    pid = next(iter(dask.run(os.getpid).values()))
    killer = threading.Timer(1.0, os.kill, [pid, KILL])
    killer.start()
    rows = await amap(
        "{{text}}",
        [{"text": f"w{n}"} for n in range(80)],
        model=ScriptedModel(slow),
        output=Label,
        executor=dask.get_executor(),
        concurrency=2,
    )
    killer.join()
    assert rows.failed == []
    assert [row.answer.label for row in rows] == [f"w{n}" for n in range(80)]
    dask.wait_for_workers(2, timeout=60)


async def test_a_row_that_kills_its_worker(tmp_path):
    """If a row has killed three workers, it has failed, and the other rows have their answers."""

    def die(word: str) -> str:
        """Look."""
        if word == "w1":
            time.sleep(0.2)
            os.kill(os.getpid(), KILL)
        return word

    def ask_die(messages):
        return call("die", word=str(messages[-1]["content"]))

    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        rows = await amap(
            "{{row}}",
            ["w0", "w1", "w2"],
            model=ScriptedModel(ask_die, "ok"),
            tools=[die],
            executor=executor,
            concurrency=1,
        )
    assert [row.answer for row in rows] == ["ok", None, "ok"]
    assert "its worker was lost 3 times" in rows[1].error


async def test_rows_are_told_as_they_end(pool, monkeypatch, tmp_path):
    """A row comes back before its chunk has ended: here, each row waits until the row before it has come back."""
    monkeypatch.setattr(workers, "CHUNK", 4)
    seen: list[tuple[int, int]] = []

    @tl.tool(parallel=True)
    def wait_for(number: int) -> str:
        """Wait until the row of this number has come back."""
        while number >= 0 and not (tmp_path / str(number)).exists():
            time.sleep(0.01)
        return "It has."

    def model(row):
        return ScriptedModel(call("wait_for", number=row["n"] - 1), "x")

    config = build_config(model=ModelOfRow(model), tools=[wait_for])
    options = RowsOptions(executor=pool, concurrency=1)
    run = RowsRun(config, "{{n}}", [{"n": n} for n in range(4)], options)
    collecting = asyncio.ensure_future(run.collect())
    while len(seen) < 4:
        await asyncio.sleep(0.005)
        if len(run.rows) > len(seen):
            seen.append((len(seen), run.progress.running))
            (tmp_path / str(len(seen) - 1)).touch()
    await collecting
    assert seen == [(0, 3), (1, 2), (2, 1), (3, 0)]


async def test_without_a_connection_rows_come_with_their_chunk(pool, monkeypatch):
    """Workers on other machines cannot connect to this one: their rows come back with the chunk."""

    @contextmanager
    def receive_nothing(take):
        yield ("127.0.0.1", 9), b"x"

    monkeypatch.setattr(workers, "_receive_rows", receive_nothing)
    rows = await amap("{{row}}", list("abc"), model=ScriptedModel("x"), executor=pool)
    assert [row.answer for row in rows] == ["x"] * 3


async def test_the_demonstration_model(pool):
    """A model that is given only by its name works in a worker, too."""
    rows = await amap("Say hello to {{row}}", ["Ada", "Ben"], model="toolloop/demo", executor=pool)
    assert rows.failed == []
    assert {row.result.model for row in rows} == {"toolloop/demo"}


async def test_a_fallback_in_a_worker_has_the_runs_key(pool, serve):
    """A worker asks the second model at the run's address with the run's key, and no row shows the key."""
    server = serve(
        lambda received: failure(400, "no") if received.body["model"] == "first" else answer("Second.")
    )
    key = "sk-run-4711-0815-abcdef"
    rows = await amap(
        "{{row}}",
        ["a", "b", "c"],
        model="openai/first",
        api_base=server.base_url,
        api_key=key,
        options=tl.ToolLoopOptions(fallback=["openai/second"]),
        executor=pool,
    )
    assert [(row.answer, row.error) for row in rows] == [("Second.", None)] * 3
    asked = {(one.body["model"], one.headers["authorization"]) for one in server.requests}
    assert asked == {("first", f"Bearer {key}"), ("second", f"Bearer {key}")}
    assert key not in repr(rows)
    assert key not in str([row.result for row in rows])


async def test_failures_and_limits(pool):
    """A failed row is in the value. A refusal that all rows would get, and on_error="stop", end the run with one line."""
    failing = ModelOfRow(lambda row: ScriptedModel(error("bad", 400) if row["row"] == "b" else "x"))
    rows = await amap("{{row}}", list("abc"), model=failing, executor=pool)
    assert [row.error is None for row in rows] == [True, False, True]
    refused = await amap(
        "{{row}}",
        list("abcdefgh") * 20,
        model=ScriptedModel(error("no key", 401)),
        executor=pool,
        concurrency=1,
    )
    assert "no key" in refused.message
    assert len(refused) < 20
    stopped = await amap(
        "{{row}}",
        list("abcdefgh") * 50,
        model=ScriptedModel(error("bad", 400)),
        executor=pool,
        concurrency=1,
        on_error="stop",
    )
    assert stopped.message.startswith("stopped, because row")
    assert len(stopped) < 400


async def test_workers_have_the_budget_of_all_runs(pool, monkeypatch):
    """The cost of rows in workers counts for the budget of this process. A used-up budget ends the rows in workers, and none begins."""
    monkeypatch.setattr(tl.core.rows.run, "SPENDING", all_runs := Spending())
    all_runs.budget = 0.5
    priced = ScriptedModel(
        [text("x"), end("stop", usage={"prompt_tokens": 5, "completion_tokens": 1, "cost": 0.3})]
    )
    rows = await amap("{{row}}", list("abcdefgh") * 20, model=priced, executor=pool, concurrency=1)
    assert (all_runs.runs, all_runs.cost) == (len(rows), pytest.approx(0.3 * len(rows)))
    assert 2 <= len(rows) <= 40  # 160 rows in all: each chunk that has begun stops after two rows
    assert "the budget of $0.5 for all runs is used up" in rows.message
    rows = await amap("{{row}}", ["a"], model=priced, executor=pool)
    assert (len(rows), "is used up" in rows.message) == (0, True)


async def test_the_socket_for_rows_closes_at_once(monkeypatch):
    """The receiver of rows can be closed after its thread has ended, for example since a worker connected at that moment."""
    began, addresses = time.monotonic(), []
    with workers._receive_rows(print) as address:
        addresses.append(address)
    with monkeypatch.context() as patch:
        patch.setattr(workers.threading.Thread, "start", lambda thread: None)  # no thread accepts
        with workers._receive_rows(print) as address:
            addresses.append(address)
    assert time.monotonic() - began < 5
    for socket, key in addresses:
        with pytest.raises(OSError):
            Client(socket, None, key)


async def test_a_stop(pool):
    """A stop returns within half a second, whatever the workers do."""
    config = build_config(model=ScriptedModel("x", pace=3.0))
    run = RowsRun(config, "{{row}}", list("abcd") * 100, RowsOptions(executor=pool, concurrency=2))
    collecting = tl.core.rows.run.asyncio.ensure_future(run.collect())
    await tl.core.rows.run.asyncio.sleep(0.5)
    with pace.Pace() as here:
        began = time.monotonic()
        run.cancel()
        await collecting
        took = time.monotonic() - began
    assert took < 0.5 * here.slowdown
    assert run.rows.message == "the run was stopped"


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, word: str) -> str:
        """Look."""
        return word


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"permissions": "ask"}, "nobody can be asked in a worker"),
        ({"permissions": {"look": "full"}}, None),
        ({"permissions": {"other": "full"}}, "nobody can be asked in a worker"),
        ({"permissions": lambda call: "full"}, "nobody can be asked in a worker"),
        ({"permissions": {"*": "deny"}}, None),
        (
            {"tools": [tl.tool(name="locked")(Locked())]},
            "the tool 'locked' cannot be sent to a worker: TypeError: cannot pickle",
        ),
        ({"observer": "recorder"}, "an observer \\(or a recording\\) works only in this process"),
        (
            {"model": "replay"},
            "model cannot be sent to a worker: TypeError: a Replay works only in the process",
        ),
        ({"executor": ThreadPoolExecutor(1)}, "threads of this process do not make rows faster"),
        ({"executor": 4}, "executor must be a concurrent.futures.Executor, got int"),
    ],
)
def test_mistakes_before_the_start(pool, tmp_path, given, words):
    """Mistakes: a policy that asks, a part that cannot be pickled, an observer, and something that is not an executor of processes."""
    given, recorder = dict(given), Recorder(tmp_path / "tape")
    if "observer" in given:
        given["observer"] = recorder
    model: object = ScriptedModel("x")
    if given.pop("model", ""):
        recorder.record({"model": "m", "messages": []}, [(0.0, {"content": "x"})], {"finish_reason": "stop"})
        model = Replay(tmp_path / "tape")
    config = build_config(
        model=model, **{"tools": [look], **{k: v for k, v in given.items() if k != "executor"}}
    )
    options = RowsOptions(executor=given.get("executor", pool))
    if words is None:
        RowsRun(config, "{{row}}", ["a"], options)
        return
    host = tl.api.NOTEBOOK
    with pytest.raises((ValueError, TypeError), match=words):
        RowsRun(tl.core.rows.run.dataclasses.replace(config, host=host), "{{row}}", ["a"], options, ask=print)
