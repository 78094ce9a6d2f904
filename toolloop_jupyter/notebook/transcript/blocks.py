"""Draw the parts of a transcript as blocks. The module `calls` draws tool calls, and the module `values` draws values.

A block is one output of a cell. It is static and does not need the other outputs. Text that a block quotes cannot run code, load
anything, or close the block's HTML.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...core.events import OWN_MODELS, Decision, FileChange, Result, Retry, ToolResult, Usage
from ...core.text import list_some, shorten, tell_duration, write_duration
from ..html import (
    BLOCK,
    CALL,
    DIM,
    NAME,
    STYLE,
    SUMMARY,
    block,
    dim,
    esc,
    fold,
    highlight,
    inline,
    mark_hidden_in_prose,
    pre,
    put_in_a_line,
    render_markdown,
    tell_count,
)

LONGEST_TEXT = 200_000  # a block shows at most this many characters of a text; the Result has the whole text
_MOST_TOOLS = 50
_FIRST_WORDS = 80  # the most characters of the model's reasoning that stay visible when the rest is folded
_LAST_WORDS = 160  # the most characters of the model's reasoning that are shown while it is streamed
WIDGET = "application/vnd.jupyter.widget-view+json"
"""The MIME type of a reference to a widget. A front-end with widgets shows the widget instead of a bundle's HTML or text."""


@dataclass(frozen=True)
class Block:
    """One output of a cell: inert `html`, and the same content as plain `text` for terminals, diffs and sites such as GitHub."""

    html: str
    text: str


def draw_head(
    model: str,
    tools: Sequence[str],
    permissions: str | None = None,
    output: str | None = None,
    session: str | None = None,
    prompt: str = "",
    tape: str = "",
    filled: Sequence[str] = (),
) -> Block:
    """Return the line above a run, with the style sheet. `prompt` is shown below the line.

    `output` is the name of the output model. `tape` says what is recorded or replayed ("replayed from lesson.jsonl"). Each
    item of `filled` names a variable whose text is in the prompt, and the length of the text ("df: 1,234 characters").
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
    if filled:
        with_values = f"with {list_some([shorten(one, 200) for one in filled], 20)}"
        facts.append((inline(with_values), with_values))
    line = "tlj-head" if facts else ""  # an empty line gets no border below it
    html = STYLE + block(line, " · ".join(shown for shown, _ in facts), f"{BLOCK};{DIM}")
    text = " · ".join(put_in_a_line(words) for _, words in facts)
    if not prompt:
        return Block(html, text)
    prompt = _cut_to(prompt, "result.prompt", 10_000)
    asked = f'<div style="{BLOCK};white-space:pre-wrap;font-weight:600">{inline(prompt)}</div>'
    quoted = "\n".join(f"> {line}".rstrip() for line in mark_hidden_in_prose(prompt).rstrip().split("\n"))
    return Block(f'{html}<div class="tlj">{asked}</div>', f"{text}\n{quoted}")


def remove_style(block: Block) -> Block:
    """Return the block without the style sheet at its beginning, because a later block of a finished run has the sheet."""
    return Block(block.html.removeprefix(STYLE), block.text)


def draw_text(text: str, *, streaming: bool = False) -> Block:
    """Return the block of a Markdown text of the model. While the text is streamed, the block has no plain text.

    So each of the many updates has half the bytes.
    """
    text = _cut_to(text, "result.text")
    body = render_markdown(text, streaming=streaming)
    html = f'<div class="tlj tlj-text" style="{BLOCK}" dir="auto">{body}</div>'
    return Block(html, "" if streaming else mark_hidden_in_prose(text).strip())


def draw_reasoning(text: str, *, streaming: bool = False) -> Block:
    """Return the block of the model's reasoning: its first words, and the rest folded; while streaming, its last words."""
    if streaming:
        last = text[-_LAST_WORDS:].rstrip().rpartition("\n")[2].strip()
        line = f'<span>thinking…</span> <span class="tlj-args">{inline(last)}</span>'
        return Block(block("tlj-reason", line, f"{CALL};{DIM}"), f"(thinking…) {mark_hidden_in_prose(last)}")
    text = _cut_to(text, "result.events")
    beginning, rest = _split_beginning(text)
    title = f'{dim("thought", "span")} <span class="tlj-args" style="{DIM}">{inline(beginning)}</span>'
    body = f'<div style="{BLOCK};{DIM}" dir="auto">{render_markdown(rest)}</div>'
    html = fold(title, body, "tlj-call tlj-reason") if rest else block("tlj-reason", title, CALL)
    return Block(html, f"(thought) {mark_hidden_in_prose(text).strip()}")


def _split_beginning(text: str) -> tuple[str, str]:
    """Split the model's reasoning into (the first words, for the title of the fold; the rest, for the fold)."""
    line, _, rest = text.strip().partition("\n")
    if line.startswith(("```", "~~~")):
        return "", text
    if len(line) <= _FIRST_WORDS:
        return line, rest.strip("\n")
    cut = line.rfind(" ", 1, _FIRST_WORDS)
    cut = _FIRST_WORDS if cut < 0 else cut
    return line[:cut], text.strip()[cut:].lstrip(" ")


_MARKS = {"info": ("", "·"), "warning": ("tlj-ask", "⚠"), "error": ("tlj-bad", "✗")}


def draw_notice(text: str, kind: str = "info") -> Block:
    """Return a block with the message `text`. `kind` is "info", "warning" or "error"."""
    text = _cut_to(text, "result.error", 10_000)
    css, mark = _MARKS[kind]
    line = f'<span class="{css}">{mark}</span> <span style="white-space:pre-wrap">{inline(text)}</span>'
    html = block("tlj-notice", line, f"{BLOCK};{DIM}" if kind == "info" else BLOCK)
    return Block(html, f"{mark} " + mark_hidden_in_prose(text).replace("\n", "\n  "))


def draw_retry(retry: Retry) -> Block:
    """Return the line about a repeated model call, about a fallback model, or about an answer that was not accepted."""
    error = shorten(retry.error, 500)
    if retry.of_answer:
        return draw_notice(error, "warning" if retry.attempt else "info")
    if retry.model:
        return draw_notice(f"{error.removesuffix('.')}. {retry.model} is asked instead.", "warning")
    if retry.discard:
        return draw_notice(f"the answer begins again: {error}", "warning")
    wait = f" in {retry.wait:.3g} s" if retry.wait else ""
    again = f"The call is tried again{wait} (try {retry.attempt + 1})."
    return draw_notice(f"model call failed: {error.removesuffix('.')}. {again}", "warning")


def draw_status(state: str, facts: Iterable[str], *, is_waiting: bool) -> str:
    """Return the HTML of what a run does now: a mark in a colour that says whether the run waits for a person, and the facts."""
    items = "".join(f" <span>{inline(fact)}</span>" for fact in facts)
    return f'<span class="{"tlj-ask" if is_waiting else "tlj-ok"}">●</span> <b>{inline(state)}</b>{items}'


def draw_running(state: str, usage: Usage, cost: float | None, seconds: float) -> str:
    """Return the status of a run for its toolbar: the state, the time, and what the run has spent so far."""
    facts = [write_duration(seconds, whole=True)]
    if usage.calls:
        tokens = tell_count(usage.total_tokens, "token")
        facts.append(f"{tell_count(usage.calls, 'model call')} · {tokens} · {tell_cost(cost)}")
    status = draw_status(state, facts, is_waiting="waiting" in state)
    return f'<div class="tlj tlj-status">{status}</div>'


_FILE_MARKS = {"created": "+", "modified": "~", "deleted": "-"}


def draw_file(change: FileChange, note: str = "") -> Block:
    """Return the block of a changed sandbox file, with its diff folded. If there is no diff, the block shows `note`."""
    mark, path = _FILE_MARKS[change.kind], shorten(change.path, 1_000)
    name = f'<code class="tlj-name" style="{NAME}">{esc(path)}</code>'
    title = f"<span>{mark}</span> {name} <span>{change.kind}</span>"
    text = f"{mark} {put_in_a_line(path)} {change.kind}"
    if not change.diff:
        binary = "" if change.diff == "" or change.kind == "deleted" else " (binary)"
        beside = f" {dim(inline(note), 'span')}" if note else binary
        return Block(block("tlj-files", f'<div style="{CALL}">{title}{beside}</div>'), text)
    shown, more = take_beginning(change.diff, "result.files")
    diff = fold(title, pre(highlight(shown, "diff") + esc(more)), "tlj-call")
    lines = ["    " + shorten(line, 400) for line in mark_hidden_in_prose(shown + more).splitlines()[:40]]
    return Block(block("tlj-files", diff), "\n".join([text, *lines]))


def _cut_to(text: str, where: str, most: int = LONGEST_TEXT) -> str:
    """Shorten `text` to `most` characters. A last line then says how much is left out. `where` says where the whole text is."""
    shown, more = take_beginning(text, where, most, most)
    return f"{shown}\n{more}" if more else text


def tell_cost(cost: float | None) -> str:
    """Return a cost in US dollars as text; "cost not reported" if `cost` is None. Smaller amounts get more digits."""
    if cost is None:
        return "cost not reported"
    if cost >= 1:
        return f"${cost:,.2f}"
    if cost >= 0.01:
        return f"${cost:.4f}".removesuffix("00")
    if cost < 1e-6:
        return "less than $0.000001" if cost > 0 else "$0"
    return f"${cost:.{1 - math.floor(math.log10(cost))}f}".rstrip("0")  # two significant digits


_STOPS = {
    "done": ("done", ""),
    "max_turns": ("stopped: limit of tool calls (max_turns) reached", "tlj-ask"),
    "timeout": ("stopped: out of time", "tlj-ask"),
    "cancelled": ("stopped", ""),
    "runtime_error": ("failed", "tlj-bad"),
    "max_model_calls": ("stopped: limit of model calls reached", "tlj-ask"),
    "max_cost": ("stopped: cost limit reached", "tlj-ask"),
}
_NO_FIT = ("failed: the answer does not fit output", "tlj-bad")


def tell_tokens(usage: Usage) -> list[str]:
    """Return [the number of tokens]; [input tokens, output tokens] if the provider has read some tokens from its cache."""
    if not usage.cache_read_tokens:
        return [tell_count(usage.total_tokens, "token")]
    read = f"{usage.cache_read_tokens:,} of them from cache"
    return [f"{tell_count(usage.input_tokens, 'token')} in, {read}", f"{usage.output_tokens:,} out"]


def name_models(result: Result) -> Mapping[str, str]:
    """Map the name of each model in a run's spans to the name that a person knows.

    The name of a scripted or recorded model in a span is different in each kernel.
    """
    fallbacks = (event.model for event in result.events if isinstance(event, Retry) and event.model)
    titles = iter([result.model, *fallbacks])
    names = dict.fromkeys(span.name for span in result.spans if span.kind == "model")
    titles_by_name = {name: next(titles, "") for name in names}
    return {
        name: title if title and name.startswith(OWN_MODELS) else name
        for name, title in titles_by_name.items()
    }


def draw_run_end(result: Result, name: str | None = None, *, picture: str = "") -> Block:
    """Return the line below a run: why it stopped, its calls, tokens, cost and time, and the expression for its answer.

    `name` is the notebook's variable that holds `result`. `picture`, the timeline as HTML, is folded behind the line. So is
    the style sheet, because sites that render the block as Markdown show the text of a `<style>` element.
    """
    stop, css = _STOPS.get(result.stop_reason, (result.stop_reason, "tlj-bad"))
    is_missing = result.output is None and result.text.strip() != "null"  # "null" may be a valid output
    if result.stop_reason == "done" and result.output_attempts and is_missing:
        stop, css = _NO_FIT
    words = [stop]
    if result.usage.calls or result.events or result.stop_reason != "runtime_error":
        words.append(tell_count(result.usage.calls, "model call"))
        words += [_count_calls(result)] if result.calls else []
        words += [*tell_tokens(result.usage), tell_cost(result.cost)]
    names = name_models(result)
    answered = dict.fromkeys(one.name for one in result.spans if one.kind == "model" and not one.is_error)
    words += [f"answered by {names[one]}" for one in answered if one != next(iter(names))]
    if result.spans and (took := tell_duration(max(span.end for span in result.spans))):
        words.append(took)
    expression = (f"{name}.output" if result.output is not None else f"{name}.text") if name else ""
    style = BLOCK if result.events else f"{BLOCK};border-top:0"  # the head has a border already
    return draw_foot(words, css, expression, ("the timeline", picture), style)


def draw_foot(
    facts: Sequence[str], css: str, expression: str, folded: tuple[str, str], style: str = BLOCK
) -> Block:
    """Return the last line of one run, or of the runs for the rows of a table.

    `facts`: the words of the line; `css` is the class of the first ones. `expression`: Python code for the answer, or "". `folded`:
    (a title, the HTML that is folded behind the line together with the style sheet); without HTML, nothing is folded.
    """
    items = ["", *map(inline, facts[1:]), *([f"<code>{esc(expression)}</code>"] if expression else [])]
    # A coloured text is not dimmed, because it would be too pale to read.
    shade = DIM if not css else "font-size:90%"
    line = f'<span class="{css}" style="{shade}">{inline(facts[0])}</span>{dim(" · ".join(items), "span")}'
    title, inner = folded
    html = block("tlj-foot", line, style)
    if inner:
        html = (
            f'<details class="tlj tlj-foot" style="{style}"><summary style="{SUMMARY}" title="unfold {title}">'
            f"{line}</summary>{inner}{STYLE}</details>"
        )
    return Block(html, " · ".join(map(put_in_a_line, [*facts, *([expression] if expression else [])])))


def _count_calls(result: Result) -> str:
    """Return the number of tool calls as text, with the numbers of errors, approvals, denials and cancelled calls."""
    asked = {one.call_id: one.decision for one in result.approvals}
    words = Counter[str]()
    for one in result.tool_results:
        first = asked.pop(one.id, None)
        decision = one.decision or first
        words[find_status(one, decision)] += 1
        words["approved"] += is_approval(decision)
    words.update("approved" if decision.allowed else "denied" for decision in asked.values() if decision)
    errors = words["failed"] + words["invalid"] + words["refused"]
    counts = [(errors, "error" if errors == 1 else "errors")]
    counts += [(words[word], word) for word in ("approved", "denied", "cancelled")]
    notes = ", ".join(f"{number} {word}" for number, word in counts if number)
    return tell_count(len(result.calls), "tool call") + (f" ({notes})" if notes else "")


def find_status(result: ToolResult, decision: Decision | None) -> str:
    """Return the status of a call: "denied" if the decision denied the call, else the status of the call's result."""
    return "denied" if decision is not None and not decision.allowed else result.status


def is_approval(decision: Decision | None) -> bool:
    """Return True if a call was approved. Return False if it was denied, or if a policy allowed it without a question."""
    return decision is not None and decision.allowed and decision.by != "policy"


OF_CALL = 4_000_000  # limit for a call's HTML, in characters: the largest picture (MOST_IMAGE) and some text
OF_ARGUMENTS = 200_000  # the same for a call's arguments; arguments that a person has changed do not count
MOST_OUTPUTS = (
    100  # the most prints and displays of a call; if there are more, the ones in the middle are left out
)
MOST_CHARACTERS = 10_000
MOST_LINES = 200


def take_beginning(
    text: str, where: str = "", most: int = MOST_CHARACTERS, most_lines: int = MOST_LINES
) -> tuple[str, str]:
    """Return (the beginning of `text`, a line that says how much is left out; "" if nothing is).

    `where` says where the whole text is.
    """
    lines = text.split("\n")
    if len(text) <= most and len(lines) <= most_lines:
        return text, ""
    shown = "\n".join(lines[:most_lines])
    left_out = tell_count(len(lines) - most_lines, "more line")
    if len(shown) > most:
        shown = shown[:most]
        left_out = tell_count(len(text) - len(shown), "more character")
    return shown + "\n", f"… {left_out}" + (f": {where}" if where else "")
