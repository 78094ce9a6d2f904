"""Draw a tool call as one block.

The block is one line; the arguments, the prints and the result are folded behind the line.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...core.events import Approval, Decision, Scope, ToolCall, ToolResult
from ...core.results import describe, find_pictures
from ...core.text import count_same, duration, shorten, tell_clock, tell_duration
from ..html import (
    CALL,
    INLINE_CODE,
    NAME,
    block,
    counted,
    dim,
    esc,
    first_line,
    fold,
    highlight,
    in_a_line,
    inline,
    pre,
    put_style_behind,
    table,
    visible,
    without_gaps,
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
    as_text,
    find_bundle,
    get_picture_bytes,
    show_bundle,
    show_text,
    show_value,
    write_json,
)

_TEXT_LINES = 20
"""The plain text of a block, which diffs and terminals show, has at most this many lines of prints and result."""
_LAST_LINES = 3
"""While a call runs, at most this many of its last printed lines are shown."""
_NAME = 200
"""At most this many characters of the name of a tool or an argument are shown."""
_REASON = 2_000
"""At most this many characters of a decision and its reason are shown."""


def value_text(value: object) -> str:
    """Return an argument's value as JSON text. In JSON, the text "1" and the number 1 look different."""
    text = write_json(value)
    return shorten(f"<{type(value).__name__}: cannot be shown>", 200) if text is None else text


def short_arguments(arguments: Mapping[str, object], limit: int = 100) -> str:
    """Return the arguments in one line, such as `query="retry", path="src"`. The line has at most `limit` characters."""
    parts: list[str] = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else value_text(value)
        text = shorten(without_gaps(text[:2_000]), 48)
        text = value_text(text) if isinstance(value, str) else text
        parts.append(f"{shorten(str(name), 30)}={text}")
        if sum(map(len, parts)) > limit:
            break
    return shorten(", ".join(parts), limit)


def call_block(
    call: ToolCall,
    *,
    arguments: Mapping[str, object] | None = None,
    result: ToolResult | None = None,
    decision: Decision | None = None,
    outputs: Sequence[tuple[str, object]] = (),
    state: str = "done",
    value_name: str = "",
    input_name: str = "",
    note: str = "",
    brief: bool = False,
) -> Block:
    """Return the block of one tool call.

    Args:
        call: the tool call that the model asked for.
        arguments: the validated arguments. If None, the block shows the arguments that the model sent.
        result: the call's result, if it has one.
        decision: the decision about the call. If None, the block shows the decision in `result`.
        outputs: the tool's prints and displays: ("stdout" or "stderr", text) and ("display", MIME bundle).
        state: "waiting", "running" or "done".
        value_name: the expression for the whole result, such as "result.tool_results[2].value".
        input_name: the expression for the whole arguments.
        note: a text at the end of the line.
        brief: if true, return only the line of the call. This is for the early calls of a very long run, and for calls that are
            too large to keep.
    """
    given = call.input if arguments is None else arguments
    decision = decision or (result.decision if result is not None else None)
    shown = (
        show_value(result.value, _described(result), value_name) if result and not result.is_error else None
    )
    outputs = _without_result(outputs, result)
    sign = _sign(result, decision, state)
    decided = "" if decision is None else decision_text(decision)
    facts = [*_facts(result, decision, shown, sign), *([shorten(note, 120)] if note else [])]
    edited = decision.arguments if decision is not None else None
    name, inner = shorten(call.name, _NAME), short_arguments(given if edited is None else edited)
    in_full = " · ".join([shorten(first_line(decided, 200), 80), *facts] if decided else facts)
    in_short = " · ".join(filter(None, [in_a_word(decision), *facts]))
    line = (
        f'<span class="{sign.css}">{sign.mark}</span> <code class="tlj-name" style="{NAME}">{esc(name)}</code> '
        + (f'<code class="tlj-args">{esc(inner)}</code>' if inner else '<span class="tlj-args"></span>')
        + f' <span class="tlj-time">{inline(in_full if brief else in_short)}</span>'
    )
    text = f"{sign.mark} {in_a_line(name)}({in_a_line(inner)})  {in_a_line(in_full)}".rstrip()
    if brief:
        return Block(block("tlj-call", line, CALL), text)
    changes = _changes(given, decision)
    arguments_html = _arguments_html(given, changes, input_name)
    back = [] if result is None else [_show_result(result, shown, value_name)]
    room = OF_CALL - len(arguments_html) - sum(len(part.html) for part in back)
    parts = [*_displays(outputs, room), *back]
    by_whom = dim(inline(shorten(decided, _REASON))) if decided else ""
    body = arguments_html + by_whom + "".join(part.html for part in parts)
    html = fold(line, body, "tlj-call", opened=any(part.visual for part in parts))
    return Block(html, "\n".join([text, *_edit_lines(given, changes), *_text_lines(parts, value_name)]))


def progress_block(seconds: float, note: str = "", outputs: Sequence[tuple[str, object]] = ()) -> Block:
    """Return the block with the progress of a running call: the elapsed time, `note` ("3 of 10 files"), last prints, and
    displays.

    This block is below the block of the call. Only this block is drawn repeatedly. So the fold of the call stays open or
    closed, as the person has left it.
    """
    line = " · ".join([duration(seconds), *([shorten(note, 120)] if note else [])])
    prints = [str(data).rstrip() for kind, data in outputs if kind in ("stdout", "stderr")]
    displays = _displays([one for one in outputs if one[0] not in ("stdout", "stderr")], OF_CALL)
    if prints:
        last = "\n".join(prints[-1].splitlines()[-_LAST_LINES:])
        displays.append(show_text(shorten(last, MOST_CHARACTERS)))
    inner = dim(inline(line)) + "".join(shown.html for shown in displays)
    words = [f"    {in_a_line(line)}", *_text_lines(displays)]
    return Block(block("tlj-progress", inner, CALL), "\n".join(words))


def tell_question(approval: Approval | None) -> str:
    """Return a note with the question that a running tool asks; "" if `approval` only asks whether a tool may run."""
    return f"asked: {approval.question}" if approval is not None and approval.question else ""


def approval_record(approval: Approval, decision: Decision | None) -> Block:
    """Return the block of a request for approval and its decision.

    The block contains the style sheet, so it can be shown alone.
    """
    call = ToolCall(approval.call_id, approval.tool, approval.tool, approval.input)
    state = "waiting" if decision is None else "done"
    asked = tell_question(approval)
    record = call_block(call, arguments=approval.input, decision=decision, state=state, note=asked)
    return Block(put_style_behind(record.html), record.text)


class _Sign(NamedTuple):
    """How a call's line shows the call's state: a mark, the mark's CSS class, and a word ("" if the mark alone is clear)."""

    mark: str
    css: str
    word: str = ""


_SIGNS = {
    "done": _Sign("✓", "tlj-ok"),
    "failed": _Sign("✗", "tlj-bad", "failed"),
    "invalid": _Sign("✗", "tlj-bad"),
    "refused": _Sign("⊖", "tlj-ask", "refused"),
    "denied": _Sign("⊘", "tlj-ask"),
    "cancelled": _Sign("■", "", "cancelled"),
    "waiting": _Sign("?", "tlj-ask", "waiting for you"),
    "running": _Sign("●", "", "running"),
}


def _sign(result: ToolResult | None, decision: Decision | None, state: str) -> _Sign:
    if result is not None:
        return _SIGNS[find_status(result, decision)]
    if decision is not None and not decision.allowed:
        return _SIGNS["denied"]
    return _Sign("○", "") if state == "done" else _SIGNS[state]


def _facts(
    result: ToolResult | None, decision: Decision | None, shown: Shown | None, sign: _Sign
) -> list[str]:
    word = [sign.word] if sign.word else []
    if result is None:
        return word
    facts = [took] if result.ran and (took := tell_duration(result.seconds)) else []
    if result.is_error:
        if decision is not None and not decision.allowed:
            return facts
        reason = join_reason(_described(result))
        return [*facts, f"{sign.word}: {reason}" if word else reason]
    size = shown.size if shown else ""
    if result.pictures:
        size = f"{size}, seen by the model" if size else ""
    elif result.cut:
        size = f"{size or counted(result.full_length, 'character')}, {counted(len(result.output), 'character')} to the model"
    return [*facts, size] if size else facts


def join_reason(message: str) -> str:
    """Return an error message in one line: its first line.

    If this first line ends in ":", the lines of the list below it are added.
    """
    first, *rest = [line.strip() for line in message[:2_000].splitlines() if line.strip()] or [""]
    listed = "; ".join(line.removeprefix("- ") for line in rest) if first.endswith(":") else ""
    return shorten(f"{first} {listed}".rstrip(), 100)


def _displays(outputs: Sequence[tuple[str, object]], room: int) -> list[Shown]:
    """Draw the tool's prints and displays.

    `room` is the allowed number of characters of HTML. A note replaces each output that would exceed this number.
    """
    left_out = len(outputs) - MOST_OUTPUTS
    if left_out > 0:
        half = MOST_OUTPUTS // 2
        more = ("note", f"… {counted(left_out, 'more display is', 'more prints and displays are')} not kept")
        outputs = [*outputs[:half], more, *outputs[-half:]]
    displays = []
    for kind, data in outputs:
        shown = _output(kind, data)
        if len(shown.html) > room:
            shown = _note(
                f"… {shown.size or 'a display'}: not kept, since the outputs of this call are too large"
            )
        else:
            room -= len(shown.html)
        displays.append(shown)
    return displays


def _note(text: str) -> Shown:
    return Shown(dim(inline(text)), in_a_line(text))


# --- arguments, and a person's edits of them ---

_REMOVED = object()
"""The value in the place of an argument that a person has removed."""


def _changes(given: Mapping[str, object], decision: Decision | None) -> dict[str, object]:
    """Return the arguments that a person has changed, with their new values.

    The value of a removed argument is `_REMOVED`.
    """
    edited = decision.arguments if decision is not None else None
    if edited is None:
        return {}
    return {
        name: edited.get(name, _REMOVED)
        for name in dict.fromkeys([*given, *edited])
        if name not in given or name not in edited or value_text(given[name]) != value_text(edited[name])
    }


def _arguments_html(given: Mapping[str, object], changes: Mapping[str, object], expression: str) -> str:
    """Return the HTML of the arguments, as a table.

    All values together have room for `OF_ARGUMENTS` characters of HTML. From the first argument that does not fit, whole
    arguments are left out, and the last row has their number. Arguments that a person has changed are always shown.
    """
    rows, left_out, room = [], 0, OF_ARGUMENTS
    for name in dict.fromkeys([*given, *changes]):
        if name in changes:
            value = _change_html(given.get(name, _REMOVED), changes[name])
        else:
            value = argument_html(given[name])
        room -= len(value)
        if room >= 0 or name in changes:
            rows.append((f"<code>{esc(shorten(str(name), _NAME))}</code>", value))
        else:
            left_out += 1
    if left_out:
        more = counted(left_out, "more argument") + (f": {expression}" if expression else "")
        rows.append(("<code>…</code>", inline(more)))
    return table(rows)


def _change_html(before: object, after: object) -> str:
    """Return the HTML of a person's change of one argument. The changed places are marked."""
    if before is _REMOVED:
        return f"<span>added by a person:</span> {argument_html(after)}"
    if after is _REMOVED:
        return f"{argument_html(before)} <span>(removed by a person)</span>"
    old, new = _texts_of_change(before, after)
    if "\n" not in old + new and len(old) + len(new) <= 2 * _SHORT_CHANGE:
        return (
            f'<del class="td"><code style="{INLINE_CODE}">{esc(old)}</code></del> → '
            f'<ins class="ti"><code style="{INLINE_CODE}">{esc(new)}</code></ins> {dim("edited by a person", "span")}'
        )
    marked = pre("".join(_marked_pieces(old, new)))
    return f"{dim('edited by a person', 'div')}{marked}{fold('with the edits', argument_html(after))}"


def _marked_pieces(old: str, new: str) -> Iterator[str]:
    """Yield the changed places as HTML, each with a little text around it.

    Their total length is limited, since a notebook saves them.
    """
    room = MOST_CHARACTERS
    for one, other in _compare(old, new):
        if one == other:
            yield esc(_without_middle(one, _CONTEXT, "as they were"))
            continue
        gone, made = (_without_middle(text, _CONTEXT * 10, "not shown") for text in (one, other))
        room -= len(gone) + len(made)
        if room < 0:
            yield "\n… more changes"
            return
        yield f'<del class="td">{esc(gone)}</del>' if gone else ""
        yield f'<ins class="ti">{esc(made)}</ins>' if made else ""


_SHORT_CHANGE = 60
"""A change is shown as "old → new" if the two values have on average at most this many characters."""
_CONTEXT = 120
"""At most this many unchanged characters are shown before and after a changed place."""
_MOST_COMPARED = 2_000
"""Two texts are compared word by word if, from the first to the last difference, they have at most this many words together.

If they have more, everything from the first to the last difference is shown as one changed place.
"""
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


def _texts_of_change(before: object, after: object) -> tuple[str, str]:
    """Return both values as text.

    Long strings stay unchanged. Other values become JSON. If one of the two JSON texts is long, both have several lines.
    """
    if isinstance(before, str) and isinstance(after, str):
        return (
            (value_text(before), value_text(after))
            if len(before) + len(after) <= _SHORT_CHANGE
            else (before, after)
        )
    indent = 2 if max(len(value_text(before)), len(value_text(after))) > _SHORT_CHANGE else None
    return write_json(before, indent) or value_text(before), write_json(after, indent) or value_text(after)


def _compare(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Split both texts into pieces, and yield them as pairs (old piece, new piece).

    Where nothing was changed, both pieces are equal. Words are never split.
    """
    one, other = _WORDS.findall(old), _WORDS.findall(new)
    start = count_same(one, other)
    end = count_same(one[start:][::-1], other[start:][::-1])
    same, left, right = one[:start], one[start : len(one) - end], other[start : len(other) - end]
    yield "".join(same), "".join(same)
    if len(left) + len(right) > _MOST_COMPARED:
        yield "".join(left), "".join(right)
    else:
        for _, a, b, c, d in difflib.SequenceMatcher(None, left, right).get_opcodes():
            yield "".join(left[a:b]), "".join(right[c:d])
    yield "".join(one[len(one) - end :]), "".join(one[len(one) - end :])


def _without_middle(text: str, most: int, why: str) -> str:
    """Return a short text unchanged. Of a long text, return the beginning and the end.

    The beginning and the end have `most` characters each. Between the two is a line with the number of omitted characters,
    followed by `why`.
    """
    if len(text) <= 3 * most:
        return text
    left_out = counted(len(text) - 2 * most, "character")
    return f"{text[:most]}\n… {left_out} {why} …\n{text[-most:]}"


def _edit_lines(given: Mapping[str, object], changes: Mapping[str, object]) -> list[str]:
    """Return a person's changes as lines for the plain text of a block: one line for each changed argument."""
    lines = []
    for name, after in changes.items():
        before = given.get(name, _REMOVED)
        old, new = ("" if value is _REMOVED else value_text(value) for value in (before, after))
        # If a value is long, the shown part begins shortly before the first difference.
        start = max(count_same(old, new) - 20, 0) if max(len(old), len(new)) > 80 else 0
        old, new = (shorten("…" * bool(start) + text[start:], 80) for text in (old, new))
        old = "(not given)" if before is _REMOVED else old
        new = "(left out)" if after is _REMOVED else new
        changed = in_a_line(f"{shorten(str(name), _NAME)}: {old} → {new}")
        lines.append(f"    edited by a person: {changed}")
    return lines


def argument_html(value: object) -> str:
    """Return one argument as HTML.

    A long string is shown as plain text, any other value as JSON. A value that is too long for a saved notebook is shortened.
    """
    if isinstance(value, str) and ("\n" in value or len(value) > 200):
        shown, more = take_beginning(value)
        return pre(esc(shown) + more)
    text = value_text(value)
    if len(text) > 200:
        return show_text(write_json(value, 2) or text, language="json").html
    # The style allows a line break at any character. Otherwise the table's cell would be as wide as the longest word, and
    # could be wider than the page.
    return f'<code style="{INLINE_CODE}">{highlight(text, "json")}</code>'


# --- the result ---


def _described(result: ToolResult) -> str:
    """Return the text of the call's value or error.

    The tool's prints, and notes about a person's edits, are not part of this text.
    """
    return result.output if result.returned is None else result.returned


def _without_result(
    outputs: Sequence[tuple[str, object]], result: ToolResult | None
) -> list[tuple[str, object]]:
    """Return the outputs, but leave out displays of the value that the tool returns.

    Otherwise, a tool with `display(df); return df` would show `df` twice.
    """
    displays = [data for kind, data in outputs if kind == "display" and isinstance(data, Mapping)]
    if (
        result is None
        or result.is_error
        or not displays
        or isinstance(result.value, (str, int, float, type(None)))
    ):
        return list(outputs)
    figures = [id(drawn) for drawn in find_pictures(result.value)]
    same = [id(data) for data in displays if id(getattr(data, "figure", None)) in figures]
    if len(same) < len(displays):
        value = list(result.value.values()) if isinstance(result.value, dict) else result.value
        several = value if isinstance(value, (list, tuple)) else [value]
        wanted = [best for value in several[:MOST_PARTS] if (best := _best(find_bundle(value)))]
        same += [id(data) for data in displays if _best(data) in wanted]
    return [(kind, data) for kind, data in outputs if id(data) not in same]


def _best(bundle: Mapping[str, object]) -> object:
    """Return the data of a MIME bundle that a person would see: the picture's bytes, the SVG, the HTML or the Markdown.

    If this data is equal in two bundles, both bundles look the same.
    """
    return (
        get_picture_bytes(bundle)
        or bundle.get("image/svg+xml")
        or bundle.get("text/html")
        or bundle.get("text/markdown")
    )


def _output(kind: str, data: object) -> Shown:
    match kind:
        case "display":
            return show_bundle(data) if isinstance(data, Mapping) else Shown("", "")
        case "item":
            return show_value(data, describe(data, 2_000).text)
        case "note":
            return _note(str(data))
    shown = show_text(str(data))
    label = dim("printed" if kind == "stdout" else "printed to stderr")
    return Shown(label + shown.html if shown.html else "", shown.text)


_WHOLE = "… the whole result: "


def _show_result(result: ToolResult, shown: Shown | None, expression: str) -> Shown:
    """Show the result of a call: the value in `shown`, or the error if `shown` is None.

    If the model got a different text, this text is added in a fold.
    """
    got = show_text(result.output).html
    if shown is None:
        trace = fold("traceback", show_text(result.traceback).html) if result.traceback else ""
        return Shown(got + trace, as_text(result.output))
    html, text = shown.html, shown.text
    if expression and result.cut and visible(expression) not in text:
        html += dim(f"{_WHOLE}<code>{esc(expression)}</code>")
        text = f"{text}\n{_WHOLE}{visible(expression)}".lstrip("\n")
    if count := len(result.pictures):
        html += fold(f"what the model got, with {'the picture' if count == 1 else f'{count} pictures'}", got)
    elif result.output and (shown.visual or (result.cut and as_text(result.output) != shown.text)):
        html += fold("what the model got", got)
    return dataclasses.replace(shown, html=html, text=text)


def _text_lines(parts: Sequence[Shown], expression: str = "") -> list[str]:
    """Return the text of the parts as lines for the plain text of a block. At most `_TEXT_LINES` lines are returned."""
    lines = [line for part in parts if part.text for line in part.text.rstrip("\n").split("\n")]
    if len(lines) > _TEXT_LINES:
        # If a part is shortened, its last line only gives the number of omitted lines. So this last line is not counted.
        left_out = sum(part.lines_left_out - 1 for part in parts if part.lines_left_out)
        where = f": {visible(expression)}" if expression else ""
        hidden = len(lines) - _TEXT_LINES + 2 + left_out
        lines = [*lines[: _TEXT_LINES - 2], f"… {counted(hidden, 'more line')}{where}"]
    return ["    " + shorten(line, 400) for line in lines]


# --- a decision: short on a call's line, complete in the part that is folded behind the line ---

_DECIDED = {
    "click": "by click",
    "code": "by code, without a click",
    "prompt": "at the prompt",
    "policy": "by the policy",
    "callback": "by on_approval",
    "stream": "by the program",
    "unattended": "as nobody is there",
    "stop": "by Stop",
}


def tell_why(approval: Approval) -> str:
    """Return why a person is asked: "asked because …"; "" if the only reason is that the run's permissions are 'ask'."""
    return f"asked because {approval.why}" if approval.why not in ("", "permissions are 'ask'") else ""


REACH: Mapping[Scope, str] = {"run": "this run", "session": "this session"}
REACH_OF_ROWS: Mapping[Scope, str] = {"run": "this row", "session": "all rows"}
"""For each scope, the words on the card that say where an approval is valid.

`REACH` is for a single run, `REACH_OF_ROWS` for a rows run.
"""


def decision_text(decision: Decision) -> str:
    """Return a decision as text, for example "approved by click 14:02:11, all calls in this run"."""
    scope = {"call": "", "run": ", all calls in this run", "session": ", all calls in this session"}[
        decision.scope
    ]
    reason = f": {decision.reason}" if decision.reason and decision.by != "unattended" else ""
    said = filter(None, (_word(decision), _DECIDED.get(decision.by, decision.by), tell_clock(decision.at)))
    return f"{' '.join(said)}{scope}{reason}"


def in_a_word(decision: Decision | None) -> str:
    """Return the decision in a few words, for the line of a call; "" if a policy allowed the call.

    The part that is folded behind the line says who decided, and when.
    """
    if decision is None or (decision.allowed and not is_approval(decision)):
        return ""
    reason = "" if decision.allowed else first_line(decision.reason, 40)
    reason = "nobody is there" if decision.by == "unattended" else reason
    return f"{_word(decision)}: {reason}" if reason else _word(decision)


def _word(decision: Decision) -> str:
    if not decision.allowed:
        return "denied"
    return "approved" if decision.arguments is None else "approved with edits"
