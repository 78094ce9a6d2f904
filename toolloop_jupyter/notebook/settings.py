"""The notebook's defaults: `%config ToolLoop.model = …`, `%toolloop --model …`, and the variable TOOLLOOP_MODEL."""

from __future__ import annotations

import os

from traitlets import Bool, Enum, Float, Integer, List, Unicode
from traitlets.config import Configurable

DEMO = "toolloop/demo"


class ToolLoop(Configurable):
    """Settings of `%%toolloop`; an option on a cell overrules them for that cell."""

    model = Unicode(
        "", help="LiteLLM's model name; empty: TOOLLOOP_MODEL, else the offline demonstration model."
    ).tag(config=True)
    tools = List(Unicode(), help="Names of the tools; empty: every function marked with @tool.").tag(
        config=True
    )
    permissions = Unicode("full", help="'full' or 'ask', or the name of a variable with a policy.").tag(
        config=True
    )
    output = Unicode("", help="Name of the pydantic model of the answer; empty: plain text.").tag(config=True)
    session = Unicode("", help="Name of the session that cells go on with; empty: each cell is alone.").tag(
        config=True
    )
    instructions = Unicode("", help="The system message; empty: none.").tag(config=True)
    max_turns = Integer(None, allow_none=True, help="Most tool calls in one run.").tag(config=True)
    timeout = Float(None, allow_none=True, help="Most seconds for one run.").tag(config=True)
    sandbox = Unicode("", help="Folder whose changed files are reported; confines nothing.").tag(config=True)
    api_base = Unicode("", help="Address of the provider or gateway.").tag(config=True)
    api_key = Unicode("", help="NAME of the variable that holds the key; never the key.").tag(config=True)
    on_unattended = Enum(["deny", "allow", "error"], "deny", help="Approvals when nobody is there.").tag(
        config=True
    )
    ask = Enum(
        ["auto", "card", "input"],
        "auto",
        help="How approvals are asked: a card with buttons, or a typed answer.",
    ).tag(config=True)
    keep_history = Bool(False, help="Keep the messages in the notebook as inert data.").tag(config=True)

    def default_model(self) -> str:
        """The model of a cell that names none."""
        return self.model or os.environ.get("TOOLLOOP_MODEL", "").strip() or DEMO
