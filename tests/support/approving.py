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
    """One tool that notes what it was called with, and a session that asks about it."""

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
        """One turn; `decide(approval)` is called for each request, in the place of a person."""
        async for event in self.session.astream(prompt):
            self.events.append(event)
            if isinstance(event, Approval) and not event.answered:
                decide(event)
        return self.events[-1].result


async def asked(session, scope="call", prompt="Go."):
    """Run a turn and allow everything; the (tool, why) of each request."""
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
