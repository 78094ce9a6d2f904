"""The parts of a transcript: each function takes what happened and gives back a `Block`, safe HTML and plain text.

A block is one cell output. It is static, stands alone, and says the same in both forms; nothing of what it quotes
can run, load, or end the block. Calls of tools are in `calls`, values in `values`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...core.events import FileChange, Result, Retry
from ...core.text import plain
from ..html import (
    BLOCK,
    CALL,
    DIM,
    NAME,
    STYLE,
    SUMMARY,
    counted,
    esc,
    first_line,
    highlight,
    inline,
    markdown_html,
    pre,
    shorten,
)

LONGEST_TEXT = 200_000
"""Characters of one text of the model; the whole one is in the Result."""
_MOST_TOOLS = 50
_LAST_WORDS = 160
"""Characters that are shown of a thought while it grows."""
WIDGET = "application/vnd.jupyter.widget-view+json"
"""The MIME type of a reference to a widget, which a front-end shows instead of the other forms in a bundle."""


@dataclass(frozen=True)
class Block:
    """One cell output: `html` is self-contained and inert, `text` is for terminals, diffs and code hosts."""

    html: str
    text: str


def head(
    model: str,
    tools: Sequence[str],
    permissions: str | None = None,
    output: str | None = None,
    session: str | None = None,
    prompt: str = "",
    tape: str = "",
) -> Block:
    """The line above a run: with which model, tools, permissions, output model and session.

    `output` is the name of the output model. `tape` says what is recorded or replayed ("replayed from lesson.jsonl"). `prompt` is shown only where the cell does not (a run shown again).
    Carries the style sheet of the run.
    """
    facts = [(inline(model), model)] if (model := shorten(model, 200)) else []
    if tools:
        shown = [shorten(name, 200) for name in tools[:_MOST_TOOLS]]
        more = f" and {len(tools) - _MOST_TOOLS:,} more" if len(tools) > _MOST_TOOLS else ""
        names = " ".join(f"<code>{esc(name)}</code>" for name in shown)
        label = "tool" if len(tools) == 1 else "tools"
        facts.append((f"{label} {names}{more}", f"tools {', '.join(shown)}{more}"))
    if permissions and permissions != "full":
        facts.append((inline(permissions), permissions))
    for label, value in (("output", output), ("session", session)):
        if value:
            facts.append((f"{label} <code>{esc(value)}</code>", f"{label} {value}"))
    if tape:
        facts.append((inline(tape), tape))
    html = f'{STYLE}<div class="tlj tlj-head" style="{BLOCK};{DIM}">{" · ".join(shown for shown, _ in facts)}</div>'
    text = " · ".join(in_a_line(words) for _, words in facts)
    if not prompt:
        return Block(html, text)
    prompt = _within(prompt, "result.prompt", 10_000)
    asked = f'<div style="{BLOCK};white-space:pre-wrap;font-weight:600">{inline(prompt)}</div>'
    quoted = "\n".join(f"> {line}".rstrip() for line in plain(prompt).rstrip().split("\n"))
    return Block(f'{html}<div class="tlj">{asked}</div>', f"{text}\n{quoted}")


def text_block(text: str) -> Block:
    """What the model says, in markdown."""
    text = _within(text, "result.text")
    return Block(written(markdown_html(text)), plain(text).strip())


def written(body: str) -> str:
    """HTML of model text, as it stands on the page."""
    return f'<div class="tlj tlj-text" style="{BLOCK}" dir="auto">{body}</div>'


def reasoning_block(text: str, *, streaming: bool = False) -> Block:
    """The model's reasoning, folded behind its first words; while it is `streaming`, its last words in a line."""
    if streaming:
        last = text[-_LAST_WORDS:].rstrip().rpartition("\n")[2].strip()
        line = f'<span>thinking…</span> <span class="tlj-args">{inline(last)}</span>'
        return Block(
            f'<div class="tlj tlj-reason" style="{CALL};{DIM}">{line}</div>', f"(thinking…) {plain(last)}"
        )
    text = _within(text, "result.events")
    start = first_line(plain(text), 80)
    html = (
        f'<details class="tlj tlj-call tlj-reason" style="{CALL}"><summary style="{SUMMARY}">'
        f'<span style="{DIM}">thought</span> <span class="tlj-args" style="{DIM}">{inline(start)}</span></summary>'
        f'<div style="{BLOCK};{DIM}" dir="auto">{markdown_html(text)}</div></details>'
    )
    return Block(html, f"(thought) {plain(text).strip()}")


_MARKS = {"info": ("", "·"), "warning": ("tlj-ask", "⚠"), "error": ("tlj-bad", "✗")}


def notice(text: str, kind: str = "info") -> Block:
    """One line of our own (or quoted) words: `kind` is "info", "warning" or "error"."""
    text = _within(text, "result.error", 10_000)
    css, mark = _MARKS[kind]
    dim = f";{DIM}" if kind == "info" else ""
    html = (
        f'<div class="tlj tlj-notice" style="{BLOCK}{dim}"><span class="{css}">{mark}</span> '
        f'<span style="white-space:pre-wrap">{inline(text)}</span></div>'
    )
    return Block(html, f"{mark} " + plain(text).replace("\n", "\n  "))


def retry_block(retry: Retry) -> Block:
    """A model call that failed and is tried again, or whose second try says something else."""
    error = shorten(retry.error, 500)
    if retry.discard:
        return notice(f"the answer begins again: {error}", "warning")
    return notice(f"model call failed, try {retry.attempt + 1}: {error.rstrip('.')}.", "warning")


_FILE_MARKS = {"created": "+", "modified": "~", "deleted": "-"}


def files_block(files: Iterable[FileChange], note: str = "") -> Block:
    """The files of the sandbox that changed, each with its diff folded; `note` stands beside one without a diff."""
    parts, lines = [], []
    for change in files:
        mark, path = _FILE_MARKS[change.kind], shorten(change.path, 1_000)
        name = f'<code class="tlj-name" style="{NAME}">{esc(path)}</code>'
        title = f"<span>{mark}</span> {name} <span>{change.kind}</span>"
        lines.append(f"{mark} {in_a_line(path)} {change.kind}")
        if not change.diff:
            binary = "" if change.diff == "" or change.kind == "deleted" else " (binary)"
            beside = f' <span style="{DIM}">{inline(note)}</span>' if note else binary
            parts.append(f'<div style="{CALL}">{title}{beside}</div>')
            continue
        shown, left_out = take_beginning(change.diff)
        more = f"… {left_out}: result.files" if left_out else ""
        parts.append(
            f'<details class="tlj-call tlj" style="{CALL}"><summary style="{SUMMARY}">{title}</summary>'
            f"{pre(highlight(shown, 'diff') + esc(more))}</details>"
        )
        lines += ["    " + shorten(line, 400) for line in plain(shown + more).splitlines()[:40]]
    return Block(f'<div class="tlj tlj-files" style="{BLOCK}">{"".join(parts)}</div>', "\n".join(lines))


def in_a_line(text: str) -> str:
    """A name in plain text: one with line breaks in it must not write lines of its own, which would look like ours."""
    return plain(text).replace("\n", "\u240a")


def _within(text: str, where: str, most: int = LONGEST_TEXT) -> str:
    """A text, or its beginning and what has all of it."""
    return (
        text
        if len(text) <= most
        else f"{text[:most]}\n\n… {counted(len(text) - most, 'more character')}: {where}"
    )


def duration(seconds: float) -> str:
    """Write seconds as "0.31 s" below ten of them, as "0:21" or "1:02:03" from there."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def money(cost: float | None) -> str:
    """US dollars with as many digits as tell something; says so when nobody told the price."""
    if cost is None:
        return "cost not reported"
    if cost == 0:
        return "$0"
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}" if cost >= 0.0001 else f"${cost:.2g}"


def clock(at: float) -> str:
    """Local time of day of a moment in seconds since the epoch."""
    return time.strftime("%H:%M:%S", time.localtime(at))


_STOPS = {
    "done": "done",
    "max_turns": "stopped: limit of tool calls (max_turns) reached",
    "timeout": "stopped: out of time",
    "cancelled": "stopped",
    "runtime_error": "failed",
    "max_model_calls": "stopped: limit of model calls reached",
    "max_cost": "stopped: cost limit reached",
}


def foot(result: Result, name: str | None = None, *, picture: str = "") -> Block:
    """The line below a run: why it stopped, calls, tokens, cost, time, and the expression that has its outcome.

    `name` is the notebook's variable that holds `result`; `picture` is HTML that is folded behind the line.
    """
    stop = _STOPS.get(result.stop_reason, result.stop_reason)
    facts = [counted(result.usage.calls, "model call")]
    if result.calls:
        facts.append(_calls(result))
    facts += [counted(result.usage.total_tokens, "token"), money(result.cost)]
    if result.spans:
        facts.append(duration(max(span.end for span in result.spans)))
    expression = ""
    if name:
        expression = f"{name}.output" if result.output is not None else f"{name}.text"
    css = "" if result.stop_reason == "done" else ' class="tlj-bad"'
    items = [f"<span{css}>{inline(stop)}</span>", *(inline(fact) for fact in facts)]
    words = [stop, *facts]
    if expression:
        items.append(f"<code>{esc(expression)}</code>")
        words.append(in_a_line(expression))
    line = " · ".join(items)
    if picture:
        html = (
            f'<details class="tlj tlj-foot" style="{BLOCK}"><summary style="{SUMMARY};{DIM}" title="unfold the timeline">'
            f"{line}</summary>{picture}</details>"
        )
    else:
        html = f'<div class="tlj tlj-foot" style="{BLOCK};{DIM}">{line}</div>'
    return Block(html, " · ".join(words))


def _calls(result: Result) -> str:
    errors = sum(1 for one in result.tool_results if one.is_error)
    decisions = [approval.decision for approval in result.approvals]
    allowed = sum(1 for decision in decisions if decision and decision.allowed)
    denied = sum(1 for decision in decisions if decision and not decision.allowed)
    notes = [
        f"{number} {word}"
        for number, word in (
            (errors - denied, "error" if errors - denied == 1 else "errors"),
            (allowed, "approved"),
            (denied, "denied"),
        )
        if number > 0
    ]
    return counted(len(result.calls), "tool call") + (f" ({', '.join(notes)})" if notes else "")


OF_CALL = 4_000_000
"""Characters of HTML of one call: the largest picture that is kept, and as much as one reads beside it."""
OF_ARGUMENTS = 200_000
"""Characters of HTML of the arguments of one call."""
MOST_OUTPUTS = 100
"""Prints and displays of one call: the first and the last of them."""
MOST_CHARACTERS = 10_000
MOST_LINES = 200


def take_beginning(text: str) -> tuple[str, str]:
    """The beginning of a long text, ending in a newline, and what is left out ("" when nothing is)."""
    lines = text.split("\n")
    if len(text) <= MOST_CHARACTERS and len(lines) <= MOST_LINES:
        return text, ""
    shown = "\n".join(lines[:MOST_LINES])
    if len(shown) > MOST_CHARACTERS:
        shown = shown[:MOST_CHARACTERS]
        return shown + "\n", counted(len(text) - len(shown), "more character")
    return shown + "\n", counted(len(lines) - MOST_LINES, "more line")
