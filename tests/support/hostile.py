"""Makes every block and card with one hostile string in each place that a model's or a tool's text can reach. Reads the result."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from typing import Any

from support.calls import draw_call
from toolloop_jupyter.core.events import Approval, Decision, Row, Rows, RowsProgress, RowsSpeed
from toolloop_jupyter.core.events.events import (
    FileChange,
    Reasoning,
    Retry,
    Span,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.notebook.html.style import STYLE
from toolloop_jupyter.notebook.live.column import StreamingText
from toolloop_jupyter.notebook.transcript import steps
from toolloop_jupyter.notebook.transcript.blocks import (
    Block,
    draw_file,
    draw_head,
    draw_notice,
    draw_reasoning,
    draw_retry,
    draw_run_end,
    draw_text,
)
from toolloop_jupyter.notebook.transcript.calls import draw_approval, draw_progress
from toolloop_jupyter.notebook.transcript.diagram import draw_timeline
from toolloop_jupyter.notebook.transcript.rows import draw_finished_rows, draw_running_rows
from toolloop_jupyter.notebook.transcript.values import draw_answer, show_bundle, show_value
from toolloop_jupyter.notebook.widgets.approval_card import draw_error, draw_question, make_field_specs


class Displays:
    """A value whose display methods return the string, in each format."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.text


class Markdowns(Displays):
    _repr_html_ = None

    def _repr_markdown_(self) -> str:
        return self.text


class Svgs(Displays):
    def _repr_svg_(self) -> str:
        return self.text


@dataclass
class Model:
    """An answer with the string in a field, a list, a nested model and a name."""

    field: Any
    items: Any
    nested: Any = None


def approval(p: str) -> Approval:
    """Return a request for approval. Its name, arguments, description, source, schema and reason are the string."""
    schema = {"properties": {p: {"type": "string", "description": p}}}
    given = {p: p, "x": [p, {p: p}]}
    return Approval(p, given, call_id="1", description=p, source=p, schema=schema, question=p, row=p)


def run(p: str) -> Result:
    """Return a run in which every text is the string."""
    asked = approval(p)
    asked._decide(Decision(True, p, {p: p + "!"}, "click"))
    call = ToolCall("1", p, p, {p: p})
    events = [
        Text(p),
        Reasoning(p),
        call,
        asked,
        ToolResult("1", p, value=p, ran=True),
        Retry(1, p, p),
        Text(p),
    ]
    spans = (Span("model", p, 0.0, 1.0), Span("tool", p, 1.0, 2.0, is_error=True))
    files = [FileChange(p, "modified", p)]
    return Result(p, None, files, events, Usage(1, 2, 3), None, "runtime_error", p, p, p, p, spans)


def calls(p: str) -> dict[str, Block]:
    """Return a tool call in each state."""
    call = ToolCall("1", p, p, {p: p, "deep": {p: [p]}})
    made = ToolResult("1", p, value=p, ran=True, full_length=10_000_000)
    failed = ToolResult("1", p, is_error=True, traceback=p, ran=True)
    outputs = [("stdout", p), ("stderr", p), ("display", {"text/html": p, "text/plain": p})]
    denied = Decision(False, p, by="click")
    edited = Decision(True, p, {p: [p], "new": p}, "click", "run")
    asked = approval(p)
    asked._decide(denied)
    return {
        "call": draw_call(call, result=made, outputs=outputs, value_name=p),
        "call failed": draw_call(call, result=failed),
        "call denied": draw_call(call, result=failed, decision=denied),
        "call edited": draw_call(call, result=made, decision=edited),
        "call running": draw_call(call, state="running", note=p),
        "call progress": draw_progress(1.0, p, [*outputs, ("item", p), ("note", p)]),
        "call brief": draw_call(call, result=made, brief=True),
        "record": draw_approval(asked),
        **{
            kind.__name__: draw_call(call, result=ToolResult("1", p, value=kind(p)))
            for kind in (Displays, Markdowns, Svgs)
        },
        "list": draw_call(call, result=ToolResult("1", p, value=[p, p])),
        "dict": draw_call(call, result=ToolResult("1", p, value={p: p})),
    }


def rows(p: str) -> dict[str, Block]:
    """Return many rows, while they run and at their end. Their columns, cells, answers and errors are the string."""
    answers = (run(p), dataclasses.replace(run(p), output=Model(p, [p])))
    some = [
        Row(0, "0", {p: p, "deep": {p: [p]}, "value": Displays(p)}, answers[0]),
        Row(1, "1", {"text": p}, answers[1]),
        Row(2, "2", {"text": p}, answers[0], p),
    ]
    many = {n: dataclasses.replace(some[n % 3], number=n) for n in range(12)}
    progress = RowsProgress(12, 8, 4, last=tuple(some), speed=RowsSpeed(pause=1.0), message=p)
    return {
        "rows running": draw_running_rows(progress, p),
        "rows": draw_finished_rows(Rows(many, progress, message=p), p),
    }


@cache
def blocks(p: str) -> dict[str, Block]:
    """Return all blocks."""
    streaming = StreamingText()
    streaming.add(p)
    model = Model(p, [Model(p, [p]), Model(p, {p: p})], {p: [p, {p: p}]})
    return {
        "head": draw_head(p, [p, p], p, p, p, p),
        "text": draw_text(p),
        "thinking": draw_reasoning(p, streaming=True),
        "streaming": streaming.block(),
        "reasoning": draw_reasoning(p),
        **calls(p),
        "output": draw_answer(p, model),
        "output mapping": draw_answer(p, {p: p}),
        "file": draw_file(FileChange(p, "modified", p)),
        "file without a diff": draw_file(FileChange(p, "created", None), p),
        "retry": draw_retry(Retry(1, p, p)),
        "notice": draw_notice(p),
        "foot": draw_run_end(run(p), p),
        "timeline": draw_timeline(run(p)),
        **rows(p),
        **{f"render {n}": block for n, block in enumerate(steps.render(run(p), p))},
    }


def cards(p: str) -> dict[str, str]:
    """Return the HTML of the parts of the widgets."""
    asked = approval(p)
    specs = make_field_specs(asked.schema, asked.input)
    return {
        "card": draw_question(asked),
        "card error": draw_error(p),
        **{f"label {n}": spec.note_html for n, spec in enumerate(specs)},
    }


@cache
def pages(p: str) -> dict[str, str]:
    """Return the HTML of everything: name -> HTML."""
    shown = {
        "bundle md": show_bundle({"text/markdown": p}).html,
        "bundle tex": show_bundle({"text/latex": p}).html,
    }
    shown["bundle png"] = show_bundle({"image/png": p, "image/svg+xml": p, "text/html": p}).html
    shown["value"] = show_value(Displays(p), p, p).html
    return {**{name: block.html for name, block in blocks(p).items()}, **cards(p), **shown}


_VOID = {"br", "hr", "img", "col", "wbr"}
_TAGS = frozenset(
    """
    a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure hr i img ins kbd li mark
    ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul var
    """.split()  # noqa: SIM905 - reads better without quotation marks
)
_ATTRIBUTES = frozenset(
    """
    class style title href target rel src alt width height colspan rowspan scope align span start dir lang role open
    aria-level aria-label aria-live aria-hidden tabindex
    """.split()  # noqa: SIM905
)


class Reader(HTMLParser):
    """Reads a page, and lists what is wrong with it: elements, attributes, addresses, styles, tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.open: list[str] = []
        self.deepest = 0
        self.feed(page.replace(STYLE, ""))
        self.close()
        if self.open:
            self.problems.append(f"left open: {self.open}")

    def handle_starttag(self, tag, attrs):
        if tag not in _TAGS:
            self.problems.append(f"element {tag}")
        for name, value in attrs:
            self._attribute(tag, name, value or "")
        if tag not in _VOID:
            self.open.append(tag)
            self.deepest = max(self.deepest, len(self.open))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)  # in HTML, the slash of "<hr />" has no meaning

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes something else")

    def handle_comment(self, data):
        self.problems.append(f"comment {data!r}")

    handle_decl = handle_pi = unknown_decl = handle_comment

    def _attribute(self, tag, name, value):
        if name not in _ATTRIBUTES:
            self.problems.append(f"attribute {name} of {tag}")
        if name == "href" and not value.lower().startswith(("http://", "https://", "mailto:")):
            self.problems.append(f"link to {value!r}")
        if name == "href" and dict(self._attrs()).get("rel", "noopener noreferrer") != "noopener noreferrer":
            self.problems.append("link with an opener")
        if name == "src" and not value.startswith(
            ("data:image/png;base64,", "data:image/svg+xml;base64,", "data:image/jpeg")
        ):
            self.problems.append(f"picture from {value!r}")
        if name == "style" and any(
            word in value.lower() for word in ("url", "position", "expression", "\\", "import", "<")
        ):
            self.problems.append(f"style {value!r}")
        if name == "class" and not all(
            word.startswith(("tlj", "mathjax_", "tex2jax_")) or word in _TOKENS for word in value.split()
        ):
            self.problems.append(f"class {value!r}")

    def _attrs(self):
        return re.findall(r'(\w+)="([^"]*)"', self.get_starttag_text() or "")


_TOKENS = {"tc", "tk", "ts", "tm", "tf", "tb", "ti", "td", ""}
