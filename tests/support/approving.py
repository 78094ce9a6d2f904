"""Sessions that ask about their calls, and somebody who answers."""

from __future__ import annotations

from pydantic import BaseModel

from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.core.events import Approval
from toolloop_jupyter.teaching.scripted import ScriptedModel


class Item(BaseModel):
    name: str
    tags: list[str] = []


class Desk:
    """A session that asks about its tool `send`. The tool stores the arguments of its calls."""

    def __init__(self, *turns, tool=None, **options):
        self.ran = []

        def send(item: Item, count: int = 1, note: str = "as usual", to: list[str] = ["home"]) -> str:  # noqa: B006
            """Send something."""
            self.ran.append((item.model_dump(), count, note, to))
            return "sent"

        self.send = tool or send
        self.script = ScriptedModel(*turns, "Done.")
        self.session = aagent_session(
            Harness.TOOL_LOOP, model=self.script, tools=[self.send], **{"permissions": "ask", **options}
        )
        self.events = []

    async def run(self, decide, prompt="Go."):
        """Run a turn. `decide(approval)` answers each request, in place of a person."""
        async for event in self.session.astream(prompt):
            self.events.append(event)
            if isinstance(event, Approval) and not event.answered:
                decide(event)
        return self.events[-1].result


async def asked(session, scope="call", prompt="Go."):
    """Run a turn and allow every call. Return (tool, reason) of each request for approval."""
    seen = []
    async for event in session.astream(prompt):
        if isinstance(event, Approval) and not event.answered:
            seen.append((event.tool, event.why))
            event.allow(scope=scope, by="click")
    return seen


def session_of(functions, *turns, **options):
    model = ScriptedModel(*turns, "Done.", repeat_last=True)
    return aagent_session(
        Harness.TOOL_LOOP, model=model, tools=functions, **{"permissions": "ask", **options}
    )
