"""Rows that ask a person: one row asks at a time, and the others go on. What a person can allow for all rows. What happens if
nobody is there.
"""

from __future__ import annotations

import asyncio

import pytest

from toolloop_jupyter import amap
from toolloop_jupyter.core.events import Approval, Rows
from toolloop_jupyter.core.rows import RowsOptions, RowsRun
from toolloop_jupyter.core.session import build_config
from toolloop_jupyter.teaching import ModelOfRow, ScriptedModel, call

pytestmark = pytest.mark.timeout(30)


class Desk:
    """A person who is asked about the calls of rows. The object notes each question and each call that ran."""

    def __init__(self, *, total: int, asking: int, permissions: object = "ask", concurrency: int = 2) -> None:
        """The first `asking` rows of `total` call the tool `send`."""
        self.asked: list[int] = []
        self.open, self.most = 0, 0

        def send(n: int) -> str:
            """Send."""
            return "sent"  # the tool's closure has no value that changes: such a value would be a part of what was allowed

        def model(row) -> ScriptedModel:
            return ScriptedModel(*[call("send", n=row["n"])] * (row["n"] < asking), "Done.")

        config = build_config(model=ModelOfRow(model), tools=[send], permissions=permissions)
        rows = [{"n": n} for n in range(total)]
        self.run = RowsRun(config, "{{n}}", rows, RowsOptions(concurrency=concurrency), ask=self.ask)

    async def decide(self, approval: Approval, row: int) -> None:
        approval.allow(by="click")

    async def ask(self, approval: Approval) -> None:
        row = int(approval.row.removeprefix("row ").removesuffix(f" of {self.run.total}"))
        self.asked.append(row)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        await self.decide(approval, row)
        self.open -= 1


def ran(rows: Rows) -> list[int]:
    """The rows in which the tool ran."""
    return [row.number for row in (*rows, *rows.cut) if any(one.ran for one in row.result.tool_results)]


async def test_one_request_at_a_time():
    """If many rows want to ask, only one asks at a time. Each question has the row's number, and the allowed calls run."""
    desk = Desk(total=10, asking=10, concurrency=4)
    rows = await desk.run.collect()
    assert desk.most == 1
    assert sorted(desk.asked) == ran(rows) == list(range(10))
    assert {result.decision.by for row in rows for result in row.result.tool_results} == {"click"}


async def test_a_request_that_waits_stops_no_other_row():
    """More rows wait for the person than may run at the same time. Meanwhile, all rows that ask nobody end."""
    desk = Desk(total=12, asking=4, concurrency=2)

    async def wait(approval: Approval, row: int) -> None:
        while desk.run.progress.done < 8:  # noqa: ASYNC110 - as a person looks
            await asyncio.sleep(0.005)
        approval.allow(by="click")

    desk.decide = wait
    rows = await asyncio.wait_for(desk.run.collect(), 20)
    assert len(rows) == 12
    assert ran(rows) == [0, 1, 2, 3]


async def test_allowed_for_all_rows():
    """The scope "session" holds for every row, even for rows that already wait to ask."""
    desk = Desk(total=10, asking=10, concurrency=5)

    async def allow_all(approval: Approval, row: int) -> None:
        assert "session" in approval.scopes
        while desk.run.progress.running < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        approval.allow(by="click", scope="session")

    desk.decide = allow_all
    rows = await desk.run.collect()
    assert len(desk.asked) == 1
    assert ran(rows) == list(range(10))
    assert {result.decision.scope for row in rows for result in row.result.tool_results} == {"session"}


async def test_a_denial_is_for_its_row():
    """If a call is denied, the model of that row is told. The person is asked about the other rows, and they run."""
    desk = Desk(total=3, asking=3)

    async def deny_one(approval: Approval, row: int) -> None:
        if row == 1:
            approval.deny("not this one", by="click")
        else:
            approval.allow(by="click", scope="run")  # this allows only this row's call

    desk.decide = deny_one
    rows = await desk.run.collect()
    assert sorted(desk.asked) == [0, 1, 2]
    assert ran(rows) == [0, 2]
    assert "not this one" in rows[1].result.tool_results[0].output
    assert rows.failed == []


async def test_nobody_is_there():
    """If nobody can be asked, a policy that asks denies the call."""

    def send(n: int) -> str:
        """Send."""
        raise AssertionError

    rows = await amap(
        "{{row}}", ["a"], model=ScriptedModel(call("send", n=1), "x"), tools=[send], permissions={"*": "ask"}
    )
    assert rows[0].result.tool_results[0].decision.by == "unattended"


async def test_a_callback_is_asked_for_one_row_at_a_time():
    """`on_approval` can decide, too. It runs in a separate thread."""
    open_now, most = 0, 0

    def send(n: int) -> str:
        """Send."""
        return "sent"

    async def decide(approval: Approval) -> bool:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.002)
        open_now -= 1
        return True

    model = ScriptedModel(call("send", n=1), "x")
    rows = await amap(
        "{{row}}", list("abcdef"), model=model, tools=[send], permissions="ask", on_approval=decide
    )
    assert (most, rows.failed) == (1, [])


async def test_a_stop_while_somebody_is_asked():
    """A stop while a person is asked ends the run at once. The stop denies the request, and nothing runs."""
    desk = Desk(total=3, asking=3)
    requests: list[Approval] = []

    async def leave_open(approval: Approval, row: int) -> None:
        requests.append(approval)
        desk.run.cancel()
        await approval.wait()

    desk.decide = leave_open
    rows = await asyncio.wait_for(desk.run.collect(), 5)
    assert (list(rows), ran(rows)) == ([], [])
    assert [one.decision.by for one in requests] == ["stop"]
    assert sorted(row.number for row in rows.cut) == [0, 1, 2]
