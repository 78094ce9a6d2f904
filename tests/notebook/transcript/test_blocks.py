"""The blocks of a run, in HTML and in text; and a whole run that is shown from its Result."""

from __future__ import annotations

import base64
import enum
import re
from dataclasses import dataclass

import pydantic
import pytest

from support.calls import asked_about, draw_call
from toolloop_jupyter.core.events import Approval, Decision
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
from toolloop_jupyter.core.text.plain import write_duration
from toolloop_jupyter.notebook.html.style import STYLE
from toolloop_jupyter.notebook.transcript import steps
from toolloop_jupyter.notebook.transcript.blocks import (
    MOST_CHARACTERS,
    MOST_LINES,
    OF_CALL,
    draw_file,
    draw_head,
    draw_notice,
    draw_reasoning,
    draw_run_end,
    draw_text,
    tell_cost,
)
from toolloop_jupyter.notebook.transcript.calls import draw_approval, draw_progress
from toolloop_jupyter.notebook.transcript.diagram import draw_timeline
from toolloop_jupyter.notebook.transcript.steps import OF_RUN, write_markdown
from toolloop_jupyter.notebook.transcript.values import draw_answer, show_value

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def words(page):
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)).strip()


def call(**arguments):
    return ToolCall("c1", "search", "search", arguments)


def result_of(events=(), **changes):
    given = {
        "text": "All done.",
        "output": None,
        "files": [],
        "events": list(events),
        "usage": Usage(3000, 204, 4),
        "cost": 0.0058,
        "stop_reason": "done",
        "session_id": "s",
        "model": "demo",
        "prompt": "Review this.",
    }
    return Result(**{**given, **changes})


def test_a_fallback_is_shown():
    """If a fallback model is asked, a line names it. If it has answered, the last line names it, too."""
    retry = Retry(1, "openai/a failed: out of order.", model="openai/b")
    assert steps.draw_retry(retry).text.endswith("openai/a failed: out of order. openai/b is asked instead.")
    spans = [Span("model", "openai/a", 0, 1, is_error=True), Span("model", "openai/b", 1, 2)]
    assert " · answered by openai/b · " in draw_run_end(result_of(spans=tuple(spans))).text
    assert "answered by" not in draw_run_end(result_of(spans=tuple(spans[1:]))).text
    assert "answered by" not in draw_run_end(result_of(spans=(spans[1], spans[0]))).text


def test_a_scripted_fallback_goes_by_the_name_that_a_person_knows():
    """The last line and the timeline have the same name for a fallback model as the line that says who is asked instead."""
    spans = [
        Span("model", "toolloop/scripted-1", 0, 1, is_error=True),
        Span("model", "toolloop/scripted-2", 1, 2),
    ]
    run = result_of([Retry(1, "first failed", model="second")], model="first", spans=tuple(spans))
    assert " · answered by second · " in draw_run_end(run).text
    assert [line.split()[1] for line in draw_timeline(run).text.splitlines()[1:3]] == ["first", "second"]


def test_the_last_line_says_what_came_from_the_cache():
    """If a provider has read input tokens from its cache, the last line says how many. Otherwise it has only the number of
    all tokens.
    """
    told = draw_run_end(result_of(usage=Usage(15_020, 300, 2, 12_304, None))).text
    assert "2 model calls · 15,020 tokens in, 12,304 of them from cache · 300 out · " in told
    for read in (None, 0):
        assert "15,320 tokens · " in draw_run_end(result_of(usage=Usage(15_020, 300, 2, read))).text


def test_head_states_the_facts():
    """Model, tools, permissions, output and session are in one line, with the style sheet."""
    block = draw_head("demo", ["a", "b"], "ask", "Review", "mine")
    assert block.text == "demo · tools a, b · ask · output Review · session mine"
    assert words(block.html) == "demo · tools a b · ask · output Review · session mine"
    assert block.html.startswith(STYLE)


def test_head_of_an_unknown_run_is_short():
    """The line leaves out what is not known. If nothing is known, there is no border below the empty line."""
    assert draw_head("", (), None).text == ""
    assert "tlj-head" not in draw_head("", (), None).html.removeprefix(STYLE)
    assert "tlj-head" in draw_head("demo", (), None).html.removeprefix(STYLE)


def test_a_call_is_one_line():
    """The line has mark, name, arguments, time and size. The rest is folded."""
    block = draw_call(
        call(query="retry", limit=3), result=ToolResult("c1", "x", value=["a", "b"], seconds=0.31, ran=True)
    )
    assert block.text.splitlines()[0] == '✓ search(query="retry", limit=3)  0.31 s · ["a", "b"]'
    assert block.html.startswith("<details")
    assert " open>" not in block.html


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ([0, 1, 2, 3], "[0, 1, 2, 3]"),
        ({"found": True}, '{"found": true}'),
        ([], "0 items"),
        (list(range(500)), "500 items"),
        ([float("nan")], "[NaN]"),
        (["line\nline"], '["line\\nline"]'),
    ],
)
def test_a_short_list_stands_in_the_row_itself(value, size):
    """A list or dict of a few characters is shown in the line, in place of its size. For a longer one, the line has its size."""
    block = draw_call(call(), result=ToolResult("c1", "x", value=value, seconds=0.31, ran=True))
    assert block.text.splitlines()[0] == f"✓ search()  0.31 s · {size}"


def test_a_row_has_the_arguments_that_ran():
    """If a person has edited a call, its line has the new value. Below it, the old value is shown beside the new one."""
    decision = Decision(True, arguments={"count": 12}, by="click")
    block = draw_call(call(count=10), result=ToolResult("c1", "12 ordered", ran=True), decision=decision)
    assert block.text.startswith("✓ search(count=12)  approved with edits")
    assert "edited by a person: count: 10 → 12" in block.text
    assert "count=12" in block.html.partition("</summary>")[0]


def test_a_failed_call_says_what_went_wrong():
    """The error is in the line. The traceback is folded below it."""
    failed = ToolResult(
        "c1", "KeyError: 'x'", is_error=True, traceback="Traceback …\nKeyError: 'x'", ran=True
    )
    block = draw_call(call(), result=failed)
    assert block.text.splitlines()[0].startswith("✗ search()  0.00 s · failed: KeyError: 'x'")
    assert "Traceback" in block.html
    assert "traceback" in words(block.html)


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Decision(True, by="click", at=0.0), "approved by click"),
        (Decision(True, by="click", scope="run"), "all calls in this run"),
        (Decision(False, "wrong table", by="click"), "wrong table"),
        (Decision(False, "", by="unattended"), "denied because nobody is there"),
        (Decision(True, by="policy"), "approved by the policy"),
    ],
)
def test_the_decision_stays(decision, said):
    """The block of a call says who decided what, when and why."""
    for block in (
        draw_call(call(x=1), decision=decision),
        draw_approval(asked_about(call(x=1), decision)),
    ):
        assert said in block.text
        assert said in words(block.html)
        assert re.search(r"\d\d:\d\d:\d\d", block.text)


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Decision(True, by="policy", reason="permissions['search'] is 'full'"), "0.00 s"),
        (Decision(True, by="click"), "approved · 0.00 s"),
        (Decision(True, by="callback"), "approved · 0.00 s"),
        (Decision(True, arguments={"x": 2}, by="click"), "approved with edits · 0.00 s"),
        (Decision(False, "wrong table", by="click"), "denied: wrong table · 0.00 s"),
    ],
)
def test_the_line_of_a_call_is_short(decision, said):
    """The line has a word for a person's decision, and none for a policy's. The rest is in the fold."""
    html = draw_call(call(x=1), decision=decision, note="0.00 s").html
    line, _, fold = html.partition("</summary>")
    assert (
        re.search(r'class="tlj-time">(.*?)</span>', line)[1].removesuffix("</span>").replace("running · ", "")
        == said
    )
    assert re.search(r"(approved|denied).*\d\d:\d\d:\d\d", words(fold))


def test_blanks_push_nothing_out_of_the_line():
    """In the line of a call, very many blanks are replaced by their number. In the fold, they are unchanged."""
    block = draw_call(call(command="ls" + " " * 130 + "; rm -rf ~"))
    assert 'command="ls⟨130 blanks⟩; rm -rf ~"' in block.text
    assert "ls⟨130 blanks⟩; rm -rf ~" in words(block.html)
    assert "ls" + " " * 130 + "; rm" in block.html


def test_edits_are_shown():
    """The block shows the argument that the model sent, and the argument after a person's edit."""
    decision = Decision(True, arguments={"line": 58, "new": True}, by="click")
    shown = words(draw_call(call(line=57, gone=1), decision=decision).html)
    assert "57 → 58 edited by a person" in shown
    assert "removed by a person" in shown
    assert "added by a person: true" in shown


def test_a_long_text_that_was_edited_stands_before_and_after():
    """For a long text that a person changed, the block has the text before and after, and the whole new text in a fold.

    A text that is too long to keep begins shortly before the first difference. All quoted text is inert.
    """
    for much in (100, 5000):
        before = "Dear supplier, " + "as ever. " * much + "Send <b>10</b> pens.\n" + "Regards. " * 200
        after = before.replace("10", "12")
        made = draw_call(call(note=before), decision=Decision(True, arguments={"note": after}, by="click"))
        old, new = (
            re.search(f'<{tag} class="t.">(.*?)</{tag}>', made.html, re.DOTALL)[1] for tag in ("del", "ins")
        )
        assert "Send &lt;b&gt;10&lt;/b&gt; pens.\nRegards." in old
        assert new == old.replace("10", "12")
        assert old.startswith("Dear supplier" if much == 100 else "…")
        assert "with the edits" in made.html
        line = next(line for line in made.text.splitlines() if "edited by a person" in line)
        assert "<b>10</b> pens" in line
        assert "<b>12</b> pens" in line


def test_two_changes_that_are_far_apart():
    """If there is very much text between two changes, the record has both changes, and leaves out the text between them."""
    before = "Send 10 pens." + " As ever." * 5000 + " Send 20 pads." + " Regards." * 5000
    after = before.replace("10", "12").replace("20", "24")
    made = draw_call(call(note=before), decision=Decision(True, arguments={"note": after}, by="click"))
    old, new = (
        re.search(f'<{tag} class="t.">(.*?)</{tag}>', made.html, re.DOTALL)[1] for tag in ("del", "ins")
    )
    assert old.startswith("Send 10 pens.")
    assert "Send 20 pads." in old
    assert new == old.replace("10", "12").replace("20", "24")
    line = next(line for line in made.text.splitlines() if "edited by a person" in line)
    assert "20 pads" in line
    assert "24 pads" in line
    assert len(old) < 11_000


def test_changes_of_a_huge_text_are_bounded():
    """However much of a text a person has changed, the record of the change stays small."""
    before, after = ("".join(f"{word}{n} \n" for n in range(100_000)) for word in ("a", "b"))
    made = draw_call(call(note=before), decision=Decision(True, arguments={"note": after}, by="click"))
    assert len(made.html) < 60_000
    words_changed = (
        " ".join(f"a{n} {'b' * 3000}" for n in range(900)),
        " ".join(f"c{n} {'d' * 3000}" for n in range(900)),
    )
    made = draw_call(
        call(note=words_changed[0]), decision=Decision(True, arguments={"note": words_changed[1]})
    )
    assert len(made.html) < 60_000


def test_arguments_are_in_full_below():
    """The line shortens a long argument. The fold has the whole argument, and shows 1 and "1" differently."""
    block = draw_call(call(long="x" * 300, one=1, text="1"))
    assert "x" * 300 not in block.text
    assert "x" * 300 in block.html
    assert "&quot;1&quot;" in block.html


def test_what_a_tool_printed_and_displayed_is_kept():
    """stdout, stderr and displays are in the block of the call, without colour codes."""
    outputs = [
        ("stdout", "\x1b[32mgreen\x1b[0m"),
        ("stderr", "careful"),
        ("display", {"text/html": "<b>bold</b>"}),
    ]
    block = draw_call(call(), outputs=outputs)
    assert "green" in block.text
    assert "[32m" not in block.html
    assert "<b>bold</b>" in block.html
    assert "careful" in block.html


def test_a_long_result_is_cut_and_names_the_whole():
    """The saved file has the beginning of the result, and the expression for the whole result. It also says how much the
    model got.
    """
    text = "line\n" * 5000
    made = ToolResult("c1", text[:2000], value=text, full_length=len(text), ran=True)
    block = draw_call(call(), result=made, value_name="r.tool_results[0].value")
    assert len(block.html) < 4 * MOST_CHARACTERS
    assert "more lines: r.tool_results[0].value" in block.html
    assert "r.tool_results[0].value" in block.text.splitlines()[-1]
    assert "2,000 characters to the model" in block.text


@pytest.mark.parametrize("line", ["x\n", "x" * 99 + "\n"])
def test_the_lines_that_are_left_out_are_counted(line):
    """The text form has 18 lines, and the number of the omitted lines. This holds for a text with very many lines, and for
    one with long lines.
    """
    block = draw_call(call(), result=ToolResult("c1", "…", value=line * 299 + "end", ran=True))
    assert block.text.splitlines()[-1] == "    … 282 more lines"


def test_a_brief_call_is_a_line_alone():
    """For the early steps of a very long run, the block is only one line."""
    block = draw_call(call(x=1), result=ToolResult("c1", "y" * 5000, value="y" * 5000, ran=True), brief=True)
    assert len(block.html) < 700
    assert "<details" not in block.html


@pytest.mark.parametrize(
    ("state", "mark", "said"),
    [("running", "●", "running"), ("waiting", "?", "waiting for you"), ("done", "○", "")],
)
def test_a_call_on_its_way(state, mark, said):
    """A call that runs shows its time and progress. A call that waits for a person says so."""
    block = draw_call(call(), state=state)
    assert block.text.startswith(f"{mark} search()")
    assert said in block.text


def test_the_progress_of_a_call():
    """Below a running call are its time, its progress, its last printed lines, and its displays."""
    printed = "".join(f"line {n}\n" for n in range(50))
    table = {"text/html": "<table><tr><td>cell</td></tr></table>", "text/plain": "a table"}
    block = draw_progress(1.5, "3 of 10", [("stdout", printed), ("display", table)])
    assert block.text.split("\n")[0].strip() == "1.50 s · 3 of 10"
    assert "line 47\n    line 48\n    line 49" in block.text
    assert "line 46" not in block.html
    assert "<td>cell</td>" in block.html
    assert "<details" not in block.html, "it is written again and again: nothing in it is to be opened"


# -- rich values ---------------------------------------------------------------------------------------------------


class Picture:
    def _repr_png_(self):
        return PNG


class Broken:
    def _repr_html_(self):
        raise RuntimeError("no")

    def __repr__(self):
        return "Broken()"


class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": "<table><tr><td>1</td></tr></table>", "application/javascript": "alert(1)"}


def test_a_picture_is_data():
    """A PNG is kept as data and shown at once."""
    block = draw_call(call(), result=ToolResult("c1", "a picture", value=Picture(), ran=True))
    assert 'src="data:image/png;base64,' in block.html
    assert " open>" in block.html
    assert "what the model got" in block.html


def test_a_broken_display_falls_back(capsys):
    """If an object's display code fails, the text that the model got is shown, and nothing is printed."""
    shown = show_value(Broken(), "Broken()")
    assert "Broken()" in shown.html
    assert capsys.readouterr() == ("", "")


def test_a_bundle_is_taken_at_its_best_safe_form():
    """HTML is cleaned and shown. A script is never shown."""
    shown = show_value(Bundle(), "x")
    assert "<td>1</td>" in shown.html
    assert "alert" not in shown.html


def test_a_table_is_a_table():
    """A DataFrame is shown as a table of limited size, with its shape in the line. Its text form is the text that the model
    got.
    """
    pandas = pytest.importorskip("pandas")
    shown = show_value(pandas.DataFrame({"a": range(5000), "b": "$x$"}), "the text")
    assert shown.size == "5,000 × 2"
    assert shown.html.count("<tr>") < 100
    assert shown.text == "the text"
    assert "$x" not in shown.html.replace("<span>$</span>", "")


def test_a_figure_is_a_picture():
    """A matplotlib figure is shown without the inline backend, too."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    figure.subplots().plot([1, 2])
    assert "data:image/png;base64," in show_value(figure, "Figure").html


def test_a_figure_whose_png_is_large_is_shown():
    """A photograph would have a large PNG, so it becomes a JPEG."""
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(9, 9))
    numpy = pytest.importorskip("numpy")
    figure.add_axes((0, 0, 1, 1)).imshow(numpy.random.default_rng(1).random((900, 900, 3)))
    shown = show_value(figure, "Figure")
    assert (shown.visual, "data:image/jpeg;base64," in shown.html) == (True, True)


def test_plain_data_is_readable():
    """A list of texts is shown as lines, a dict as JSON, and an empty value as such."""
    assert show_value(["a", "b"], "x").text == "a\nb"
    assert '"k": [' in show_value({"k": [1]}, "x").text
    assert show_value(None, "None").size == "nothing"
    assert show_value([], "[]").size == "0 items"


def test_cyclic_data_is_told_by_its_text():
    """Data that JSON cannot represent is shown as the text that the model got."""
    cyclic = []
    cyclic.append(cyclic)
    assert show_value(cyclic, "[[...]]").text == "[[...]]"


def test_many_lines_are_bounded():
    """Only a limited number of lines of a list is kept, with the number of all lines."""
    shown = show_value([f"row {n}" for n in range(100_000)], "x", "r.value")
    assert shown.size == "100,000 items"
    assert shown.html.count("\n") <= MOST_LINES + 2


# -- answer and foot -----------------------------------------------------------------------------------------------


class Verdict(enum.Enum):
    YES = "yes"


@dataclass
class Place:
    file: str
    line: int


class Review(pydantic.BaseModel):
    summary: str
    verdict: Verdict
    places: list[Place]
    tags: list[str]
    extra: Place | None = None
    costs: str = "$5 and $6"


REVIEW = Review(
    summary="Off by one", verdict=Verdict.YES, places=[Place("a.py", 1), Place("b.py", 2)], tags=["x"]
)


def test_an_output_is_a_table_of_its_fields():
    """The table includes nested models and lists. The model's raw text is folded below it."""
    block = draw_answer('{"summary": "raw"}', REVIEW)
    shown = words(block.html)
    for part in (
        "Review",
        "summary Off by one",
        "verdict yes",
        "file line a.py 1 b.py 2",
        "extra —",
        "as the model wrote it",
    ):
        assert part in shown, part
    assert "summary: Off by one" in block.text
    assert "  - file: a.py\n    line: 1" in block.text


def test_an_answer_without_output_is_its_text():
    """Without `output=`, the answer is shown as Markdown, like any text."""
    assert "<strong>b</strong>" in steps.render(result_of([Text("**b**")]))[1].html


def test_deep_output_ends():
    """Deeper than a few levels, an output is shown as text."""
    deep = current = {}
    for _ in range(50):
        current["x"] = current = {}
    assert draw_answer("", deep).html.count("<table") < 10


def test_the_foot_has_the_totals():
    """The last line has the stop reason, calls, tokens, cost, time, and the expression for the answer."""
    asked = Approval("search", {})
    asked._decide(Decision(True, by="click"))
    events = [call(), asked, ToolResult("c1", "x"), call(), ToolResult("c1", "no", is_error=True)]
    spans = (Span("model", "m", 0.0, 21.0),)
    block = draw_run_end(result_of(events, spans=spans), "review")
    assert block.text == (
        "done · 4 model calls · 2 tool calls (1 error, 1 approved) · 3,204 tokens · $0.0058 · 0:21 · review.text"
    )
    assert words(block.html).replace("$ ", "$") == block.text


def test_unknown_cost_is_not_zero():
    """If the price is not known, the last line says so."""
    assert "cost not reported" in draw_run_end(result_of(cost=None)).text
    assert tell_cost(0.0) == "$0"
    assert tell_cost(12.345) == "$12.35"
    assert tell_cost(0.00004) == "$0.00004"
    assert tell_cost(0.000013) == "$0.000013"
    assert tell_cost(0.00999) == "$0.01"
    assert tell_cost(1e-9) == "less than $0.000001"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.31, "0.31 s"), (9.999, "10.00 s"), (21, "0:21"), (3723, "1:02:03")]
)
def test_durations(seconds, said):
    """A short duration has hundredths of a second. A long one is written like a clock."""
    assert write_duration(seconds) == said


def test_files_carry_their_diff():
    """The block of a changed file has the kind of the change, and the diff in a fold."""
    block = draw_file(FileChange("a.py", "modified", "-x\n+y\n"))
    assert "~ a.py modified" in block.text
    assert 'class="ti"' in block.html
    assert draw_file(FileChange("p.png", "created", None)).text == "+ p.png created"


def test_the_time_line_has_a_bar_for_each_span():
    """The bars are text of the same width, in HTML and in text."""
    spans = (Span("model", "m", 0.0, 1.0), Span("tool", "search", 1.0, 4.0))
    asked, *lines, scale = draw_timeline(result_of(spans=spans)).text.splitlines()
    assert asked == "? you ask"
    assert scale.split(maxsplit=1) == ["0", "4.00 s"]
    assert len(scale.rstrip()) == lines[0].rindex("·") + 1, "it ends where the bars end"
    assert len(lines) == 2
    assert lines[0].count("█") * 2 < lines[1].count("█")
    assert len({len(re.sub(r"[^█·]", "", line)) for line in lines}) == 1


# -- a whole run ---------------------------------------------------------------------------------------------------


def events_of_a_run():
    asked = Approval("search", {"q": 1}, call_id="c1")
    asked._decide(Decision(True, by="click"))
    return [
        Reasoning("hm"),
        Text("I'll "),
        Text("look."),
        call(q="1"),
        asked,
        ToolResult("c1", "found", value="found", ran=True),
        Text("All done."),
    ]


def test_a_run_is_shown_again_whole():
    """Prompt, reasoning, text, the call with its decision, answer and last line are shown in this order."""
    text = steps.make_bundle(steps.render(result_of(events_of_a_run()), "r"))["text/plain"]
    wanted = [
        "> Review this.",
        "(thought) hm",
        "I'll look.",
        "✓ search(q=1)",
        "approved by click",
        "All done.",
        "r.text",
    ]
    places = [text.index(part) for part in wanted]
    assert places == sorted(places)
    assert text.count("All done.") == 1


def test_a_run_that_failed_says_why():
    """The error is above the last line."""
    text = steps.make_bundle(
        steps.render(result_of([], text="", stop_reason="runtime_error", error="key refused"))
    )["text/plain"]
    assert "✗ key refused" in text
    assert "failed" in text


def test_discarded_text_is_not_shown_again():
    """Text that a retry has discarded is not shown."""
    events = [Text("Half an ans"), Retry(1, "reset", "Half an ans"), Text("Whole answer.")]
    text = steps.make_bundle(steps.render(result_of(events, text="Whole answer.")))["text/plain"]
    assert "Half an ans" not in text
    assert text.count("Whole answer.") == 1


def test_a_thousand_steps_stay_small():
    """Of a thousand steps, the last hundred are shown in full. Each earlier step is one line."""
    events = []
    for n in range(1000):
        events += [
            ToolCall(str(n), "f", "f", {"n": n}),
            ToolResult(str(n), "x" * 3000, value="x" * 3000, ran=True),
        ]
    blocks = steps.render(result_of(events))
    # The last line has the timeline in its fold.
    assert sum("<details" in block.html for block in blocks[:-1]) == 100
    assert len(steps.make_bundle(blocks)["text/html"]) < 1_500_000


def test_markdown_of_a_run():
    """The prompt is quoted. The prompt, the model's text, the calls and the last line are in code fences."""
    page = write_markdown(result_of(events_of_a_run()), "r")
    assert page.startswith("```text\ndemo · tools search · ask\n```\n\n> ```text\n> Review this.\n> ```\n\n")
    assert "```text\nI'll look.\n```" in page
    assert "```text\n✓ search(q=1)" in page


def test_a_bundle_has_only_safe_types():
    """A bundle has no type that a front-end would execute, or render by rules of its own."""
    assert set(steps.make_bundle([draw_notice("x"), draw_notice("y")])) == {"text/html", "text/plain"}


def test_dark_pages_have_colours_of_their_own():
    """The style sheet has selectors for the dark pages of JupyterLab, VS Code and Colab."""
    for mark in ('[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]'):
        assert mark in STYLE


def big_picture(size=2_000_000):
    return {"image/png": PNG[:16] + bytes(size), "text/plain": "a picture"}


def test_one_call_holds_so_much_and_no_more():
    """Thirty pictures, thousands of alternating prints, two hundred arguments: the block has a limited size, and says what is
    left out.
    """
    name = "r.tool_results[0].value"
    asked = ToolCall("1", "f", "f", {f"x{n}": "v" * 9_000 for n in range(200)})
    prints = [("stdout" if n % 2 else "stderr", f"{n} " + "v" * 5_000) for n in range(3_000)]
    pictures = [("display", big_picture(2_000_000 + n)) for n in range(30)]
    made = ToolResult("1", "x", value=[BigPicture() for _ in range(20)])
    for outputs in (prints, pictures, [*pictures, *prints]):
        block = draw_call(asked, result=made, outputs=outputs, value_name=name, input_name="r.calls[0].input")
        assert len(block.html) < OF_CALL + 100_000
        assert "not kept" in words(block.html)
        assert "more in the whole result: r.tool_results[0].value" in words(block.html)
        assert "more arguments: r.calls[0].input" in words(block.html)
    prints_only = draw_call(asked, result=ToolResult("1", "x", value="x"), outputs=prints).html
    assert "0 vvv" in prints_only
    assert "2999 vvv" in prints_only, "the first and the last prints are kept"
    assert "2,900 more prints and displays" in prints_only


def test_markdown_says_how_it_ended():
    """The Markdown of a failed run says that it failed. The diffs of its files are in code fences."""
    change = FileChange("a.py", "modified", "-# x\n+# y\n")
    run = result_of([change], error="server exploded", stop_reason="runtime_error", files=[change])
    fences = re.findall(r"^```text\n(.*?)\n```$", write_markdown(run), re.DOTALL | re.MULTILINE)
    assert fences[0] == "demo"
    assert "✗ server exploded" in fences
    assert any("+# y" in fence for fence in fences)


def test_what_a_person_changed_is_never_left_out():
    """An edited argument is in the record, however many other arguments there are."""
    given = {f"x{n}": "v" * 9_000 for n in range(200)}
    edited = Decision(True, "", {**given, "x199": "mine"}, "click")
    assert "mine" in draw_call(ToolCall("1", "f", "f", given), decision=edited).html


class BigPicture:
    def _repr_png_(self):
        return big_picture()["image/png"]


def test_a_run_holds_so_much_and_no_more():
    """For many large calls and thousands of changed files, the record has a limited size, and says where the rest is."""
    calls = [ToolCall(str(n), "draw", "draw", {}) for n in range(30)]
    results = [ToolResult(one.id, "x", value=BigPicture(), ran=True) for one in calls]
    files = [FileChange(f"file{n}", "created", "+x\n") for n in range(5_000)]
    run = result_of([*(event for pair in zip(calls, results, strict=True) for event in pair), *files])
    blocks = steps.render(run, "r")
    assert sum(len(block.html) for block in blocks) < OF_RUN + 200_000
    text = steps.join_blocks(blocks).text
    assert "too large to keep in the output of the run: r.tool_results[29].value" in text
    assert "4,800 more changed files: r.files" in text


@pytest.mark.parametrize("name", ["x" * 1_000_000, "a\nb"])
def test_a_name_is_a_name(name):
    """A tool, an argument or a file may have a name of a megabyte, or of two lines. The name still takes only one line."""
    blocks = [
        draw_call(ToolCall("1", name, name, {name: 1}), result=ToolResult("1", "ok", value=None)),
        draw_file(FileChange(name, "created", None)),
        draw_head(name, [name], name[:100], name[:100], name[:100]),
    ]
    for block in blocks:
        assert len(block.html) < 10_000
        assert len(block.text) < 2_000
        assert "\nb" not in block.text


def test_what_is_left_out_of_a_long_text_is_said():
    """The model's text, a prompt, a notice and a diff of megabytes are cut, and a line at the cut says so."""
    long = "word " * 400_000
    for block, where in [
        (draw_text(long), "result.text"),
        (draw_reasoning(long), "result.events"),
        (draw_notice(long), "result.error"),
        (draw_head("m", [], prompt=long), "result.prompt"),
        (draw_file(FileChange("x", "modified", "+" + long)), "result.files"),
    ]:
        assert len(block.html) < 250_000
        assert len(block.text) < 250_000
        assert f"characters: {where}" in block.html


def test_a_quoted_prompt_ends_with_its_words():
    """In a quoted prompt, a last line break and empty lines become no lines of blanks."""
    assert draw_head("m", [], prompt="Do it.\n\nNow.\n\n").text == "m\n> Do it.\n>\n> Now."


# -- what went otherwise -------------------------------------------------------------------------------------------

APPROVED = Decision(True, by="click", at=0.0)


def make_result(status, decision=None, **more):
    """Return the result of a call that has no value."""
    return ToolResult("c1", "Why.", is_error=True, status=status, decision=decision, **more)


@pytest.mark.parametrize(
    ("status", "decision", "line"),
    [
        ("failed", None, "✗ search()  0.00 s · failed: Why."),
        ("invalid", None, "✗ search()  Why."),
        ("refused", None, "⊖ search()  refused: Why."),
        ("cancelled", None, "■ search()  cancelled: Why."),
        ("denied", Decision(False, "no", by="click", at=0.0), "⊘ search()  denied by click"),
    ],
)
def test_each_end_of_a_call_has_its_mark_and_word(status, decision, line):
    """Failed, refused, cancelled and denied calls have different marks and words, in HTML and in text."""
    block = draw_call(call(), result=make_result(status, decision, ran=status == "failed"))
    assert block.text.startswith(line)
    assert words(block.html).startswith(line[:10].replace("()", "").strip())
    assert ("tlj-bad" in block.html) == (status in ("failed", "invalid"))


@pytest.mark.parametrize("status", ["cancelled", "refused"])
def test_a_call_that_was_cut_keeps_its_decision(status):
    """If the run ended before a call was over, the call's line still says that a person has approved it."""
    block = draw_call(call(), result=make_result(status, APPROVED))
    assert "approved by click" in block.text
    assert f"approved · {status}: Why." in words(block.html)


def test_the_foot_counts_what_the_rows_say():
    """The last line counts the same decisions as the calls' lines: an approval of all calls counts for each call, a policy's
    permission for none. A policy's "deny" is a denial, and a stop is not an error.
    """
    decisions = [APPROVED, APPROVED, Decision(True, by="policy")]
    events = [event for one in decisions for event in (call(), ToolResult("c1", "x", decision=one))]
    events += [
        call(),
        make_result("denied", Decision(False, "not here", by="policy")),
        call(),
        make_result("cancelled"),
    ]
    rows = [block.text for block in steps.render(result_of(events))]
    assert sum("approved by click" in row for row in rows) == 2
    assert "5 tool calls (2 approved, 1 denied, 1 cancelled)" in rows[-1]


@pytest.mark.parametrize(
    ("stop", "css"), [("done", ""), ("cancelled", ""), ("max_turns", "tlj-ask"), ("runtime_error", "tlj-bad")]
)
def test_stop_is_no_error(stop, css):
    """Only a failure is red."""
    html = draw_run_end(result_of(stop_reason=stop)).html
    assert re.findall("tlj-ask|tlj-bad", html) == ([css] if css else [])


def test_a_run_that_failed_at_once_says_only_that():
    """If no tool was called, no calls are counted, and there is no second border below the head's border."""
    block = draw_run_end(result_of(usage=Usage(), cost=0.0, stop_reason="runtime_error"))
    assert block.text == "failed"
    assert "border-top:0" in block.html
    assert "border-top:0" not in draw_run_end(result_of([Text("x")], stop_reason="runtime_error")).html


def test_output_that_never_fits_is_a_failure():
    """If the answer does not fit the output, the last line says so. An output that is None counts as valid."""
    assert draw_run_end(result_of(output_attempts=3)).text.startswith(
        "failed: the answer does not fit output · "
    )
    assert draw_run_end(result_of(output_attempts=1, text="null")).text.startswith("done")
    assert draw_run_end(result_of(output_attempts=1, output=1)).text.startswith("done")


def test_answers_that_begin_anew_stand_apart():
    """Each answer that was tried for `output=` is a text of its own."""
    events = [Text("no"), Text("pe"), Retry(1, "answer 1 does not fit", of_answer=True), Text("no")]
    first, told, second = [block.text for block in steps.render(result_of(events))][1:4]
    assert (first, second) == ("nope", "no")
    assert "answer 1 does not fit" in told


def test_a_short_result_is_shown_itself():
    """A short result is shown in place of the number of its characters."""
    for value, said in [("sunny", "sunny"), (8, "8"), (" ", "1 character"), ("x" * 41, "41 characters")]:
        made = ToolResult("c1", str(value), value=value, ran=True)
        assert draw_call(call(), result=made).text.split("\n")[0] == f"✓ search()  0.00 s · {said}"


def test_what_hides_is_shown_in_text_as_on_the_page():
    """A call with `a<U+202E>b` is recorded with this name of the hidden character, not as `ab`: in the line, an edit, a
    result, an answer and an output.
    """
    hidden, shown = "a\u202eb\x1bc", "a⟨U+202E⟩b␛c"
    edited = Decision(True, "", {"x": hidden + "!"}, "click")
    made = ToolResult("c1", hidden, value=hidden, ran=True)
    for block in (
        draw_call(call(x=hidden), result=made, decision=edited),
        draw_text(hidden),
        draw_notice(hidden),
        draw_answer("", {"x": hidden}),
        draw_head(hidden, [hidden]),
    ):
        assert shown in block.text
        assert shown in words(block.html)
        assert "ab" not in block.text


@pytest.mark.parametrize(
    "text", ["Short.", "One line.\nAnother.", "word " * 60, "x" * 300, "```python\nx = 1\n```", "a\n\nb\n\nc"]
)
def test_an_opened_thought_does_not_repeat_its_beginning(text):
    """The line has the first words of a thought, and the fold has the rest. Together they are the thought, and no word is
    there twice.
    """
    said = words(draw_reasoning(text).html).removeprefix("thought ")
    assert re.sub(r"\s", "", said) == re.sub(r"```(python)?|\s", "", text)
