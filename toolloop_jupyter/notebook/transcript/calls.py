"""The step of one tool call, and its block: one line, behind which the arguments, the prints and the result are folded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.events import Approval, Decision, Scope, ToolCall, ToolResult
from ...core.execution import MISSING
from ...core.results import describe, find_pictures
from ...core.text import count_same, shorten, tell_clock, tell_duration, write_duration
from ..html import (
    CALL,
    INLINE_CODE,
    NAME,
    block,
    count_long_gaps,
    dim,
    esc,
    fold,
    highlight,
    inline,
    mark_hidden,
    pre,
    put_in_a_line,
    put_style_behind,
    table,
    take_first_line,
    tell_count,
)
from .blocks import (
    MOST_CHARACTERS,
    MOST_OUTPUTS,
    OF_ARGUMENTS,
    OF_CALL,
    Block,
    find_status,
    is_approval,
    take_beginning,
)
from .values import (
    MOST_PARTS,
    Shown,
    find_bundle,
    get_picture_bytes,
    show_bundle,
    show_text,
    show_value,
    write_json,
)

# A block has at most this much of a call: lines of prints and result in its plain text, the last printed lines of a running call,
# characters of a name, characters of a decision and its reason.
_TEXT_LINES, _LAST_LINES, _NAME, _REASON = 20, 3, 200, 2_000


@dataclass(eq=False)
class CallStep:
    """A tool call, from the model's request to the result."""

    call: ToolCall
    index: int = 0
    """The number of the call in the run, from 0. A question that a running tool asks has the number of this tool's call."""
    approval: Approval | None = None
    result: ToolResult | None = None
    is_over: bool = False  # True if the call has a result, or if no result will come
    is_brief: bool = (
        False  # True if the call is shown as one line, for example because many later calls have ended
    )

    @property
    def arguments(self) -> Mapping[str, object]:
        """The arguments in the request for approval. Without a request, the arguments that the model sent."""
        return self.call.input if self.approval is None else self.approval.input

    @property
    def decision(self) -> Decision | None:
        """The decision in the result; else the decision on the request. They differ if a call was allowed and later refused."""
        if self.result is not None and self.result.decision is not None:
            return self.result.decision
        return None if self.approval is None else self.approval.decision

    @property
    def state(self) -> str:
        """The status of the call's result; if there is none, "denied", "waiting" (for a decision), "running" or "over"."""
        if self.result is not None:
            return find_status(self.result, self.decision)
        if self.decision is not None and not self.decision.allowed:
            return "denied"
        if self.is_over or (self.decision is not None and self.question):
            return "over"
        return "running" if self.approval is None or self.approval.answered else "waiting"

    @property
    def question(self) -> str:
        """A note with the question that a running tool asks; "" if this is a call of the model."""
        return f"asked: {self.approval.question}" if self.approval and self.approval.question else ""


def draw_call(
    step: CallStep,
    outputs: Sequence[tuple[str, object]] = (),
    *,
    value_name: str = "",
    input_name: str = "",
    note: str = "",
) -> Block:
    """Return the block of a tool call. If `step.is_brief` is true, the block is only the line of the call.

    `outputs` are the tool's prints and displays: ("stdout" or "stderr", text) and ("display", MIME bundle). `value_name` and
    `input_name` are the expressions for the whole result and the whole arguments. `note` is a text at the end of the line.
    """
    result, decision, note = step.result, step.decision, note or step.question
    shown = None
    if result is not None and not result.is_error:
        shown = show_value(result.value, _get_description(result), value_name)
    mark, css, word = _SIGNS[step.state]
    decided = "" if decision is None else _tell_decision(decision)
    facts = [*_list_facts(step, shown, word), *([shorten(note, 120)] if note else [])]
    edited = decision.arguments if decision is not None else None
    name = shorten(step.call.name, _NAME)
    inner = shorten_arguments(step.arguments if edited is None else edited)
    in_full = " · ".join([take_first_line(decided, 80), *facts] if decided else facts)
    in_short = " · ".join(filter(None, [_tell_shortly(decision), *facts]))
    line = (
        f'<span class="{css}">{mark}</span> <code class="tlj-name" style="{NAME}">{esc(name)}</code> '
        + (f'<code class="tlj-args">{esc(inner)}</code>' if inner else '<span class="tlj-args"></span>')
        + f' <span class="tlj-time">{inline(in_full if step.is_brief else in_short)}</span>'
    )
    text = f"{mark} {put_in_a_line(name)}({put_in_a_line(inner)})  {put_in_a_line(in_full)}".rstrip()
    if step.is_brief:
        return Block(block("tlj-call", line, CALL), text)
    changes = _list_changes(step.arguments, edited)
    arguments = _draw_arguments(step.arguments, changes, input_name)
    back = [] if result is None else [_show_result(result, shown, value_name)]
    room = OF_CALL - len(arguments) - sum(len(part.html) for part in back)
    parts = [*_show_outputs(_leave_out_result(outputs, result), room), *back]
    by_whom = dim(inline(shorten(decided, _REASON))) if decided else ""
    body = arguments + by_whom + "".join(part.html for part in parts)
    html = fold(line, body, "tlj-call", opened=any(part.visual for part in parts))
    return Block(html, "\n".join([text, *_tell_changes(changes), *_list_text_lines(parts, value_name)]))


def draw_progress(seconds: float, note: str = "", outputs: Sequence[tuple[str, object]] = ()) -> Block:
    """Return the progress of a running call: the elapsed time, `note` ("3 of 10 files"), the last prints, and displays.

    Only this block is drawn repeatedly, not the block of the call above it. So the call's fold stays as the person has left it.
    """
    line = " · ".join([write_duration(seconds), *([shorten(note, 120)] if note else [])])
    prints = [str(data).rstrip() for kind, data in outputs if kind in ("stdout", "stderr")]
    parts = _show_outputs([one for one in outputs if one[0] not in ("stdout", "stderr")], OF_CALL)
    if prints:
        last = "\n".join(prints[-1].splitlines()[-_LAST_LINES:])
        parts.append(show_text(shorten(last, MOST_CHARACTERS)))
    html = dim(inline(line)) + "".join(part.html for part in parts)
    text = "\n".join([f"    {put_in_a_line(line)}", *_list_text_lines(parts)])
    return Block(block("tlj-progress", html, CALL), text)


def draw_approval(approval: Approval) -> Block:
    """Return the block of a request for approval and of its decision, if any. It is shown alone, so it has the style sheet."""
    call = ToolCall(approval.call_id, approval.tool, approval.tool, approval.input)
    record = draw_call(CallStep(call, approval=approval, is_over=approval.decision is not None))
    return Block(put_style_behind(record.html), record.text)


def write_value(value: object, indent: int | None = None) -> str:
    """Return an argument's value as JSON text. In JSON, the text "1" and the number 1 look different."""
    text = write_json(value, indent)
    return shorten(f"<{type(value).__name__}: cannot be shown>", 200) if text is None else text


def shorten_arguments(arguments: Mapping[str, object], limit: int = 100) -> str:
    """Return the arguments in one line, such as `query="retry", path="src"`. The line has at most `limit` characters."""
    parts: list[str] = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else write_value(value)
        text = shorten(count_long_gaps(text[:2_000]), 48)
        text = write_value(text) if isinstance(value, str) else text
        parts.append(f"{shorten(str(name), 30)}={text}")
        if sum(map(len, parts)) > limit:
            break
    return shorten(", ".join(parts), limit)


_SIGNS = {
    "done": ("✓", "tlj-ok", ""),
    "failed": ("✗", "tlj-bad", "failed"),
    "invalid": ("✗", "tlj-bad", ""),
    "refused": ("⊖", "tlj-ask", "refused"),
    "denied": ("⊘", "tlj-ask", ""),
    "cancelled": ("■", "", "cancelled"),
    "waiting": ("?", "tlj-ask", "waiting for you"),
    "running": ("●", "", "running"),
    "over": ("○", "", ""),
}
"""How a call's line shows the call's state: a mark, the mark's CSS class, and a word ("" if the mark alone is clear)."""


def _list_facts(step: CallStep, shown: Shown | None, word: str) -> list[str]:
    """List the facts at the end of a call's line: its time, its error or the size of its result."""
    result, words = step.result, [word] if word else []
    if result is None:
        return words
    facts = [took] if result.ran and (took := tell_duration(result.seconds)) else []
    if result.is_error:
        is_denied = step.decision is not None and not step.decision.allowed
        return facts if is_denied else [*facts, ": ".join([*words, join_reason(_get_description(result))])]
    size = shown.size if shown else ""
    if result.pictures:
        size = f"{size}, seen by the model" if size else ""
    elif result.cut:
        size = f"{size or tell_count(result.full_length, 'character')}, {tell_count(len(result.output), 'character')} to the model"
    return [*facts, size] if size else facts


def join_reason(message: str) -> str:
    """Return the first line of an error message. If this line ends in ":", the list below it is added."""
    first, *rest = [line.strip() for line in message[:2_000].splitlines() if line.strip()] or [""]
    listed = "; ".join(line.removeprefix("- ") for line in rest) if first.endswith(":") else ""
    return shorten(f"{first} {listed}".rstrip(), 100)


_DECIDED = {
    "click": "by click",
    "code": "by code, without a click",
    "prompt": "at the prompt",
    "policy": "by the policy",
    "callback": "by on_approval",
    "stream": "by the program",
    "unattended": "because nobody is there",
    "stop": "by Stop",
}


def tell_why(approval: Approval) -> str:
    """Return why a person is asked: "asked because …"; "" if the only reason is that the run's permissions are 'ask'."""
    return f"asked because {approval.why}" if approval.why not in ("", "permissions are 'ask'") else ""


_REACH: Mapping[Scope, str] = {"run": "this run", "session": "this session"}


def tell_reach(approval: Approval) -> Mapping[Scope, str]:
    """Return scope -> the words that say where an approval with this scope is valid, for the scopes wider than one call."""
    return {"run": "this row", "session": "all rows"} if approval.row else _REACH


def _tell_decision(decision: Decision) -> str:
    """Return a decision as text, for example "approved by click 14:02:11, all calls in this run"."""
    scope = "" if decision.scope == "call" else f", all calls in {_REACH[decision.scope]}"
    reason = f": {decision.reason}" if decision.reason and decision.by != "unattended" else ""
    words = (_name_decision(decision), _DECIDED.get(decision.by, decision.by), tell_clock(decision.at))
    return f"{' '.join(filter(None, words))}{scope}{reason}"


def _tell_shortly(decision: Decision | None) -> str:
    """Return the decision in a few words, for the line of a call; "" if a policy allowed the call."""
    if decision is None or (decision.allowed and not is_approval(decision)):
        return ""
    reason = "" if decision.allowed else take_first_line(decision.reason, 40)
    reason = "nobody is there" if decision.by == "unattended" else reason
    return ": ".join(filter(None, (_name_decision(decision), reason)))


def _name_decision(decision: Decision) -> str:
    if not decision.allowed:
        return "denied"
    return "approved" if decision.arguments is None else "approved with edits"


_SHORT_CHANGE = 120  # a change is shown in one line if both values together have at most this many characters
_Changes = Mapping[str, tuple[object, object]]


def _list_changes(given: Mapping[str, object], edited: Mapping[str, object] | None) -> _Changes:
    """Return the arguments that a person has changed: name -> (value before, value after).

    A value is MISSING if the argument was not given, or if the person has removed it.
    """
    if edited is None:
        return {}
    pairs = {name: (given.get(name, MISSING), edited.get(name, MISSING)) for name in {**given, **edited}}
    return {name: pair for name, pair in pairs.items() if write_value(pair[0]) != write_value(pair[1])}


def _draw_arguments(given: Mapping[str, object], changes: _Changes, expression: str) -> str:
    """Return the HTML of the arguments, as a table.

    The size of the HTML is limited (`OF_ARGUMENTS`). After the limit, only arguments are shown that a person has changed.
    """
    rows, left_out, room = [], 0, OF_ARGUMENTS
    for name in {**given, **changes}:
        value = _draw_change(*changes[name]) if name in changes else _draw_argument(given[name])
        room -= len(value)
        if room >= 0 or name in changes:
            rows.append((f"<code>{esc(shorten(str(name), _NAME))}</code>", value))
        else:
            left_out += 1
    if left_out:
        more = tell_count(left_out, "more argument") + (f": {expression}" if expression else "")
        rows.append(("<code>…</code>", inline(more)))
    return table(rows)


def _draw_argument(value: object) -> str:
    """Return one argument as HTML: a long string as plain text, any other value as JSON."""
    if isinstance(value, str) and ("\n" in value or len(value) > 200):
        shown, more = take_beginning(value)
        return pre(esc(shown) + more)
    text = write_value(value)
    if len(text) > 200:
        return show_text(write_value(value, 2), language="json").html
    # The style allows a line break at any character. Otherwise the table's cell would be as wide as the longest word, and
    # could be wider than the page.
    return f'<code style="{INLINE_CODE}">{highlight(text, "json")}</code>'


def _draw_change(before: object, after: object) -> str:
    """Return the HTML of a person's change of one argument: the value before and the value after."""
    if before is MISSING:
        return f"<span>added by a person:</span> {_draw_argument(after)}"
    if after is MISSING:
        return f"{_draw_argument(before)} <span>(removed by a person)</span>"
    old, new = write_value(before), write_value(after)
    if len(old) + len(new) <= _SHORT_CHANGE:
        return (
            f'<del class="td"><code style="{INLINE_CODE}">{esc(old)}</code></del> → '
            f'<ins class="ti"><code style="{INLINE_CODE}">{esc(new)}</code></ins> {dim("edited by a person", "span")}'
        )
    if isinstance(before, str) and isinstance(after, str):
        old, new = before, after
    old, new = _cut_to_changes(old, new, MOST_CHARACTERS)
    both = pre(f'<del class="td">{esc(old)}</del>\n<ins class="ti">{esc(new)}</ins>')
    return f"{dim('edited by a person', 'div')}{both}{fold('with the edits', _draw_argument(after))}"


def _tell_changes(changes: _Changes) -> list[str]:
    """Return a person's changes as lines for the plain text of a block."""
    lines = []
    for name, (before, after) in changes.items():
        texts = ["" if one is MISSING else write_value(one) for one in (before, after)]
        old, new = _cut_to_changes(texts[0], texts[1], 80)
        old = "(not given)" if before is MISSING else old
        new = "(left out)" if after is MISSING else new
        lines.append(
            f"    edited by a person: {put_in_a_line(f'{shorten(str(name), _NAME)}: {old} → {new}')}"
        )
    return lines


def _cut_to_changes(old: str, new: str, most: int) -> tuple[str, str]:
    """Shorten two values to about `most` characters each. Long values then begin shortly before their first difference.

    If the differences do not fit, the middle is left out, and the values end shortly after the last difference.
    """
    if max(len(old), len(new)) <= most:
        return old, new
    same = count_same(old, new)
    same_end = min(count_same(old[::-1], new[::-1]), min(len(old), len(new)) - same)
    start = max(same - 20, 0)

    def cut(text: str) -> str:
        changed = text[start : len(text) - max(same_end - 20, 0)]
        if len(changed) <= most or not (old and new):
            return shorten("…" * bool(start) + text[start:], most)
        return f"{'…' * bool(start)}{changed[: most // 2]} … {changed[-most // 2 :]}"

    return cut(old), cut(new)


# --- the tool's prints, its displays and its result -----------------------------------------------------------


def _get_description(result: ToolResult) -> str:
    """Return the text of the call's value or error, without the tool's prints, and without notes about a person's edits."""
    return result.output if result.returned is None else result.returned


def _leave_out_result(
    outputs: Sequence[tuple[str, object]], result: ToolResult | None
) -> list[tuple[str, object]]:
    """Leave out displays of the value that the tool returns. A tool with `display(df); return df` then shows `df` once."""
    displays = [data for kind, data in outputs if kind == "display" and isinstance(data, Mapping)]
    if result is None or result.is_error or not displays:
        return list(outputs)
    figures = [id(drawn) for drawn in find_pictures(result.value)]
    same = [id(data) for data in displays if id(getattr(data, "figure", None)) in figures]
    if len(same) < len(displays):
        value = list(result.value.values()) if isinstance(result.value, dict) else result.value
        several = value if isinstance(value, (list, tuple)) else [value]
        wanted = [best for one in several[:MOST_PARTS] if (best := _find_best_form(find_bundle(one)))]
        same += [id(data) for data in displays if _find_best_form(data) in wanted]
    return [(kind, data) for kind, data in outputs if id(data) not in same]


def _find_best_form(bundle: Mapping[str, object]) -> object:
    """Return the form in a MIME bundle that a person would see. If this form is equal in two bundles, both look the same."""
    kinds = ("image/svg+xml", "text/html", "text/markdown")
    return get_picture_bytes(bundle) or next(filter(None, map(bundle.get, kinds)), None)


def _show_outputs(outputs: Sequence[tuple[str, object]], room: int) -> list[Shown]:
    """Show the tool's prints and displays. A note replaces each one that does not fit into `room` characters of HTML."""
    left_out = len(outputs) - MOST_OUTPUTS
    if left_out > 0:
        half = MOST_OUTPUTS // 2
        more = (
            "note",
            f"… {tell_count(left_out, 'more display is', 'more prints and displays are')} not kept",
        )
        outputs = [*outputs[:half], more, *outputs[-half:]]
    parts = []
    for kind, data in outputs:
        shown = _show_output(kind, data)
        if len(shown.html) > room:
            size = shown.size or "a display"
            shown = _show_output(
                "note", f"… {size}: not kept, because the outputs of this call are too large"
            )
        else:
            room -= len(shown.html)
        parts.append(shown)
    return parts


def _show_output(kind: str, data: object) -> Shown:
    match kind:
        case "display":
            return show_bundle(data) if isinstance(data, Mapping) else Shown("", "")
        case "item":
            return show_value(data, describe(data, 2_000).text)
        case "note":
            return Shown(dim(inline(str(data))), put_in_a_line(str(data)))
    shown = show_text(str(data))
    label = dim("printed" if kind == "stdout" else "printed to stderr")
    return Shown(label + shown.html if shown.html else "", shown.text)


_WHOLE = "… the whole result: "


def _show_result(result: ToolResult, shown: Shown | None, expression: str) -> Shown:
    """Show the value in `shown`, or the error if `shown` is None. If the model got a different text, a fold has this text."""
    got = show_text(result.output)
    if shown is None:
        trace = fold("traceback", show_text(result.traceback).html) if result.traceback else ""
        return dataclasses.replace(got, html=got.html + trace)
    html, text = shown.html, shown.text
    if expression and result.cut and mark_hidden(expression) not in text:
        html += dim(f"{_WHOLE}<code>{esc(expression)}</code>")
        text = f"{text}\n{_WHOLE}{mark_hidden(expression)}".lstrip("\n")
    if count := len(result.pictures):
        html += fold(
            f"what the model got, with {'the picture' if count == 1 else f'{count} pictures'}", got.html
        )
    elif result.output and (shown.visual or (result.cut and got.text != shown.text)):
        html += fold("what the model got", got.html)
    return dataclasses.replace(shown, html=html, text=text)


def _list_text_lines(parts: Sequence[Shown], expression: str = "") -> list[str]:
    """Return the text of the parts as at most `_TEXT_LINES` lines for the plain text of a block."""
    lines = [line for part in parts if part.text for line in part.text.rstrip("\n").split("\n")]
    if len(lines) > _TEXT_LINES:
        # If a part is shortened, its last line only gives the number of omitted lines. So this last line is not counted.
        left_out = sum(part.lines_left_out - 1 for part in parts if part.lines_left_out)
        where = f": {mark_hidden(expression)}" if expression else ""
        hidden = len(lines) - _TEXT_LINES + 2 + left_out
        lines = [*lines[: _TEXT_LINES - 2], f"… {tell_count(hidden, 'more line')}{where}"]
    return ["    " + shorten(line, 400) for line in lines]
