"""The cards of an MCP server in JupyterLab: the card of a call, and the form of a server's question. The server's words are
foreign text.
"""

from __future__ import annotations

import importlib.util

import pytest

from support.optional import optional
from system.browser.test_accessibility import dark

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = """%load_ext toolloop_jupyter
from typing import Annotated, Literal
from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field
from toolloop_jupyter.mcp import connect
from toolloop_jupyter.teaching import ScriptedModel, call

server = MCPServer("<b onclick=alert(1)>trips</b>", version="1.0")
ran = []

class Trip(BaseModel):
    city: str
    nights: Annotated[int, Field(ge=1)] = 2
    breakfast: bool = True
    room: Literal["single", "double"] = "double"

def ask() -> Elicit[Trip]:
    return Elicit("<img src=x onerror=alert(2)> Where to?", Trip)

@server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True),
             description="<script>alert(3)</script> Book a trip.")
def book(answer: Annotated[ElicitationResult[Trip], Resolve(ask)], person: str, note: str = "") -> str:
    ran.append((person, note, answer.action, getattr(answer, "data", None)))
    return f"<script>alert(4)</script> {answer.action}"

trips = connect(server)
model = ScriptedModel(call("book", person="Ada", note="<i>window</i>"), "It is booked.")
"""
RUN = "%%toolloop -m model -t trips --as run\nBook a trip for Ada."
FACTS = "print('RAN', ran)"


@pytest.fixture(autouse=True)
def client():
    """The official client, which is an extra."""
    optional(importlib.util.find_spec("mcp"), "the package mcp")


def both_themes(desk, name):
    """Take a picture of the card in light and in dark. Check that no foreign word is an element."""
    card = desk.page.locator(".tlj-card:visible")
    assert card.locator("script, img[src='x'], i, b[onclick]").count() == 0
    for theme in ("light", "dark"):
        dark(desk, theme == "dark")
        desk.screenshot(f"{name}-{theme}", card.first)
    dark(desk, False)
    return card


def test_a_call_and_a_question(jupyter, desk):
    """In a run with "full" permissions, the card of a call names the server and its claim. Then the server's question is a
    form.

    The answer reaches the server. Hostile words stay words, in the cards and in the record.
    """
    jupyter.notebook("mcp.ipynb", [SET_UP, RUN, FACTS])
    desk.open("mcp.ipynb")
    desk.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    desk.run_all()
    desk.see(desk.button("Approve"), "the card of the call")
    card = both_themes(desk, "mcp-call")
    words = card.first.inner_text()
    assert "the MCP server “<b onclick=alert(1)>trips</b> 1.0”" in words
    assert "nobody has checked: it only reads" in words
    assert "<i>window</i>" in words
    desk.click("Approve")

    desk.see(desk.button("Send"), "the card of the question")
    card = both_themes(desk, "mcp-question")
    words = card.first.inner_text()
    assert "<img src=x onerror=alert(2)> Where to?" in words
    assert "What you send goes to the server" in words
    assert "asked in call 1 of this run" in words
    form = card.locator(".tlj-form")
    form.get_by_label("city").fill("Rome")
    form.get_by_label("nights").fill("0")
    desk.click("Send")
    desk.see(card.locator("[role=alert] .tlj-bad"), "what does not fit the server's form is said")
    form.get_by_label("nights").fill("3")
    form.get_by_label("breakfast").uncheck()
    form.get_by_label("room").select_option("single")
    desk.click("Send")
    desk.wait_for("city='Rome', nights=3, breakfast=False, room='single'")
    desk.unfold()
    assert "<script>alert(4)</script> accept" in desk.text_of(1)
    strange = desk.cell(1).locator("script, img[src='x'], i, b[onclick]")
    assert strange.evaluate_all("all => all.map(e => e.outerHTML)") == []
    desk.screenshot("mcp-record")
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])
