"""The widgets as a person uses them. Clicks come as comm messages, and no comm is left open."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import ClassVar

import ipywidgets
import pytest

from toolloop_jupyter.core.events import Approval
from toolloop_jupyter.core.events.events import Usage
from toolloop_jupyter.notebook.transcript import draw_running
from toolloop_jupyter.notebook.widgets import controls
from toolloop_jupyter.notebook.widgets.approval_card import ApprovalCard
from toolloop_jupyter.notebook.widgets.controls import Card, StepCard, Toolbar

comm = pytest.importorskip("comm", reason="ipywidgets 7 with ipykernel 6.17 has comms of its own")


class FakeComm(comm.base_comm.BaseComm):
    """A comm. The test is its other end."""

    all: ClassVar[list[FakeComm]] = []

    def __init__(self, *args, **kwargs):
        self.is_open, self.sent = True, []
        FakeComm.all.append(self)
        super().__init__(*args, **kwargs)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        self.sent.append((msg_type, data))
        if msg_type == "comm_close":
            self.is_open = False


@pytest.fixture(autouse=True)
def comms(monkeypatch):
    """Every comm that the test opens. The fixture fails if one of them is left open."""
    FakeComm.all = []
    monkeypatch.setattr(Card, "last_click", float("-inf"))  # no click of an earlier test counts
    monkeypatch.setattr(comm, "create_comm", lambda *args, **kwargs: FakeComm(*args, **kwargs))
    yield FakeComm.all
    assert FakeComm.all, "nothing was opened: the fixture does not see the widgets"
    left = [one.sent[0][1]["state"].get("_model_name") for one in FakeComm.all if one.is_open]
    assert not left, f"left open: {left}"


SCHEMA = {
    "properties": {
        "line": {"type": "integer", "description": "1-based"},
        "body": {"type": "string"},
        "kind": {"$ref": "#/$defs/Kind"},
        "urgent": {"type": "boolean"},
        "share": {"type": "number"},
        "tags": {"type": "array"},
        "note": {"type": "string"},
    },
    "$defs": {"Kind": {"enum": ["note", "issue"], "type": "string"}},
}
INPUT = {"line": 57, "body": "off by one", "kind": "note", "urgent": False, "share": 0.5, "tags": ["a"]}


def check(arguments):
    if not isinstance(arguments["line"], int) or arguments["line"] < 1:
        raise ValueError(f"line: must be at least 1, not {arguments['line']!r}")


@pytest.fixture
def make_card():
    """Make cards, which are finished at the end of the test. Returns (approval, card)."""
    cards = []

    def make(**options):
        approval = Approval(
            "post", INPUT, schema=SCHEMA, check=check, description="Post a comment.", source="def post(): ..."
        )
        cards.append(ApprovalCard(approval, **options))
        return approval, cards[-1]

    yield make
    for card in cards:
        card.finish()


def every(widget):
    """Yield a widget and all widgets inside it."""
    return [widget, *(found for child in getattr(widget, "children", ()) for found in every(child))]


def button(card, label):
    return next(w for w in every(card.widget) if isinstance(w, ipywidgets.Button) and label in w.description)


def click(card, label):
    """Click as a front-end does: send a message on the button's comm."""
    message = {"content": {"data": {"method": "custom", "content": {"event": "click"}}}, "buffers": []}
    button(card, label)._handle_msg(message)


def field(card, name):
    """Return the field of an argument in the edit form."""
    return next(one.input for one in card._form.fields if one.spec.name == name)


def texts(card):
    return " ".join(w.value for w in every(card.widget) if isinstance(w, ipywidgets.HTML))


async def test_approve_allows_as_shown(make_card):
    """A click on Approve allows this call alone, without edits. The decision is recorded as a click."""
    approval, card = make_card()
    click(card, "Approve")
    decision = approval.decision
    assert (decision.allowed, decision.by, decision.arguments, decision.scope) == (
        True,
        "click",
        None,
        "call",
    )
    assert await asyncio.wait_for(approval.wait(), 1) == (True, "")


async def test_deny_gives_the_reason(make_card):
    """A click on Deny denies the call, with the text of the reason field."""
    approval, card = make_card()
    next(w for w in every(card.widget) if type(w) is ipywidgets.Text).value = " wrong table "
    click(card, "Deny")
    assert (approval.decision.allowed, approval.decision.reason) == (False, "wrong table")


async def test_approve_all_of_this_tool(make_card):
    """The choice "all calls" widens the approval to this run or, if there is a session, to this session. It names the tool."""
    approval, card = make_card()
    choice = next(w for w in every(card.widget) if isinstance(w, ipywidgets.Dropdown))
    assert [words for words, _ in choice.options] == ["this call only", "all calls of post in this run"]
    choice.value = "run"
    click(card, "Approve")
    assert approval.decision.scope == "run"


async def test_no_choice_where_it_means_nothing():
    """A request for one call alone offers no wider approval, and leaves no comm open."""
    card = ApprovalCard(Approval("post", INPUT, scopes=("call",)))
    assert not [w for w in every(card.widget) if isinstance(w, ipywidgets.Dropdown)]
    card.finish()


async def test_no_edit_where_it_reaches_nobody():
    """If a request cannot be run with other arguments, there is no Edit button, and edits by other ways are refused."""
    approval = Approval("post", INPUT, editable=False)
    card = ApprovalCard(approval)
    assert [w.description for w in every(card.widget) if isinstance(w, ipywidgets.Button)] == [
        "Approve",
        "Deny",
    ]
    with pytest.raises(ValueError, match="cannot be run with other arguments"):
        approval.allow({**INPUT}, by="click")
    assert not approval.answered
    card.finish()


async def test_a_whole_session(make_card):
    """If the conversation continues, the choice also offers all calls in this session."""
    approval = Approval("post", INPUT, scopes=("call", "run", "session"))
    card = ApprovalCard(approval)
    choice = next(w for w in every(card.widget) if isinstance(w, ipywidgets.Dropdown))
    choice.value = "session"
    click(card, "Approve")
    card.finish()
    assert approval.decision.scope == "session"


async def test_a_very_long_argument_is_there_to_its_last_character():
    """For a very long argument, the card shows its beginning and its size. Behind them is the whole argument."""
    text = "start" + "x" * 300_000 + "MIDDLE" + "y" * 300_000 + "end"
    card = ApprovalCard(Approval("write", {"text": text}))
    assert text in texts(card)
    assert "600,014 characters" in texts(card)
    card.finish()


@pytest.mark.parametrize(
    ("first", "second"), [("Approve", "Deny"), ("Deny", "Approve"), ("Approve", "Approve")]
)
async def test_the_first_click_counts(make_card, first, second):
    """A second click decides nothing, and the buttons are disabled at once."""
    approval, card = make_card()
    click(card, first)
    decided = approval.decision
    assert all(w.disabled for w in every(card.widget) if isinstance(w, ipywidgets.Button))
    click(card, second)
    assert approval.decision is decided


async def test_a_click_after_the_end_does_nothing(make_card):
    """On a finished card, neither a click nor a forged message decides anything."""
    approval, card = make_card()
    approve = button(card, "Approve")
    card.finish()
    card._on_approve(approve)
    card._on_deny(approve)
    card._on_edit(approve)
    assert approval.decision is None


async def test_two_cards_do_not_share(make_card):
    """A click on one card decides only this card's request."""
    (one, card), (other, _) = make_card(), make_card()
    click(card, "Approve")
    assert one.answered
    assert not other.answered


@pytest.fixture
def quiet(monkeypatch):
    """Nobody has clicked for a long time, no other card is on the page, and a card is held for 0.15 s."""
    monkeypatch.setattr(Card, "last_click", float("-inf"))
    monkeypatch.setattr(Card, "on_page", {})
    monkeypatch.setattr(controls, "PAUSE", 0.15)


async def test_the_first_card_acts_at_once(make_card, quiet):
    """If there was no click before a card, the card is not held."""
    approval, card = make_card()
    card.enter_page()
    assert not button(card, "Approve").disabled
    click(card, "Approve")
    assert approval.decision.allowed


@pytest.mark.parametrize("first", ["Approve", "Deny"])
async def test_a_double_click_is_not_for_the_next_card(make_card, quiet, first):
    """If a card appears right after a click, its Approve is disabled for a moment. Then it works."""
    (_, one), (approval, card) = make_card(), make_card()
    one.enter_page()
    click(one, first)
    card.enter_page()
    assert button(card, "Approve").disabled
    assert not button(card, "Deny").disabled
    click(card, "Approve")
    assert not approval.answered
    await asyncio.sleep(0.25)
    assert not button(card, "Approve").disabled
    click(card, "Approve")
    assert approval.decision.allowed


async def test_a_click_holds_the_other_open_cards(make_card, quiet):
    """After a click on one card, the other card moves up, under the pointer. For a moment, it can only deny."""
    (_, one), (approval, other) = make_card(), make_card()
    one.enter_page()
    other.enter_page()
    click(one, "Approve")
    click(other, "Approve")
    assert not approval.answered
    click(other, "Deny")
    await asyncio.sleep(0.25)
    assert approval.decision.allowed is False
    assert button(other, "Approve").disabled


async def test_a_double_click_on_next_is_one_step(quiet):
    """If the card of a step appears after a click, Next and Run to end are disabled for a moment."""
    steps = []
    cards = [StepCard("f()", lambda: steps.append("next"), lambda: steps.append("run")) for _ in "12"]
    cards[0].enter_page()
    click(cards[0], "Next")
    cards[0].finish()
    cards[1].enter_page()
    assert [w.disabled for w in every(cards[1].widget) if isinstance(w, ipywidgets.Button)] == [True, True]
    click(cards[1], "Run to end")
    assert steps == ["next"]
    await asyncio.sleep(0.25)
    click(cards[1], "Next")
    cards[1].finish()
    assert steps == ["next", "next"]


async def test_a_hold_that_ends_while_its_end_is_looked_at(make_card, quiet, monkeypatch):
    """A coarse clock may wake a card a little too early. Buttons that are still disabled then are enabled later."""
    _, card = make_card()
    card.enter_page()
    card._held_until = 100.0
    times = iter([99.99])
    clock = SimpleNamespace(monotonic=lambda: next(times, 100.01))
    monkeypatch.setattr(controls, "time", clock)
    card._show_held()
    await asyncio.sleep(0.1)
    assert not button(card, "Approve").disabled
    card.finish()


async def test_edit_has_a_field_for_each_kind(make_card):
    """There are fields for text, numbers, choices and checkboxes, and JSON fields for the rest. An argument that the call
    lacks has an empty field.
    """
    _, card = make_card()
    click(card, "Edit")
    kinds = {one.spec.name: type(one.input).__name__ for one in card._form.fields}
    assert kinds == {
        "line": "Text",
        "body": "Text",
        "kind": "Dropdown",
        "urgent": "Checkbox",
        "share": "Text",
        "tags": "Textarea",
        "note": "Textarea",
    }


async def test_edits_are_what_runs(make_card):
    """Changed fields become values of their types. Fields that nobody changed keep their values."""
    approval, card = make_card()
    click(card, "Edit")
    field(card, "line").value = "58"
    field(card, "kind").value = "issue"
    field(card, "tags").value = '["a", {"b": null}]'
    click(card, "Approve")
    assert approval.decision.arguments == {**INPUT, "line": 58, "kind": "issue", "tags": ["a", {"b": None}]}


async def test_an_opened_form_without_changes_is_no_edit(make_card):
    """If nothing was changed after Edit, Approve allows the call as it was."""
    approval, card = make_card()
    click(card, "Edit")
    click(card, "Approve")
    assert approval.decision.arguments is None


async def test_invalid_edits_stay_on_the_card(make_card):
    """A value that does not validate decides nothing. The card shows the message, and a corrected value is accepted."""
    approval, card = make_card()
    click(card, "Edit")
    field(card, "line").value = "0"
    click(card, "Approve")
    assert not approval.answered
    assert "must be at least 1, not 0" in texts(card)
    field(card, "line").value = "3"
    click(card, "Approve")
    assert approval.decision.arguments["line"] == 3


LENIENT = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "default": 1},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "share": {"type": "number"},
        "tags": {"type": "array", "default": []},
        "extra": {"type": "object"},
    },
}
GIVEN = {"count": 4, "limit": 10, "share": 0.5, "tags": ["a"], "extra": {}}


@pytest.mark.parametrize(
    ("name", "typed", "sent"),
    [
        ("count", "", 1),
        ("limit", " ", None),
        ("tags", "", []),
        ("count", "12", 12),
        ("count", "123456789012345678901234567890", 123456789012345678901234567890),
        ("share", "1e-3", 0.001),
        ("limit", "0", 0),
    ],
)
async def test_an_emptied_field_is_its_default_or_null(name, typed, sent):
    """An emptied number or JSON field means the default; without one, null if null is allowed. The field's note says so.
    Numbers are exact.
    """
    approval = Approval("order", GIVEN, schema=LENIENT)
    card = ApprovalCard(approval)
    click(card, "Edit")
    assert "empty means 1" in texts(card)
    assert "empty means null" in texts(card)
    field(card, name).value = typed
    click(card, "Approve")
    card.finish()
    assert approval.decision.arguments == {**GIVEN, name: sent}


@pytest.mark.parametrize(
    ("name", "typed", "error"),
    [
        ("share", "", "share is empty, and it needs a value"),
        ("extra", " ", "extra is empty, and it needs a value"),
        ("share", "half", "share is not a number: 'half'"),
        ("count", "true", "count is not a number: 'true'"),
        ("share", "NaN", "share is not a number: 'NaN'"),
        ("count", "1,5", "count is not a number: '1,5'"),
    ],
)
async def test_what_is_no_value_decides_nothing(name, typed, error):
    """If a field is emptied and has no default, or if it contains no number, the card shows an error, and nothing is
    approved.
    """
    approval = Approval("order", GIVEN, schema=LENIENT)
    card = ApprovalCard(approval)
    click(card, "Edit")
    field(card, name).value = typed
    click(card, "Approve")
    shown = texts(card)
    card.finish()
    assert not approval.answered
    assert error.replace("'", "&#x27;") in shown


async def test_the_form_stands_in_the_place_of_the_arguments(make_card):
    """During an edit, only the fields show the arguments, and the question says so. After an undo, the arguments are shown
    again.
    """
    _, card = make_card()
    assert "off by one" in texts(card)
    click(card, "Edit")
    assert "off by one" not in texts(card)
    assert "with these arguments?" in texts(card)
    click(card, "Undo edits")
    assert "off by one" in texts(card)
    assert "with these arguments?" not in texts(card)


async def test_broken_json_is_explained(make_card):
    """If a text is not JSON, the error names the argument, and nothing is decided."""
    approval, card = make_card()
    click(card, "Edit")
    field(card, "tags").value = "a, b"
    click(card, "Approve")
    assert not approval.answered
    assert "tags is not JSON" in texts(card)


async def test_undoing_edits_closes_the_form(make_card, comms):
    """The button "Undo edits" removes the typed values, and closes the comms of the form."""
    approval, card = make_card()
    before = sum(one.is_open for one in comms)
    click(card, "Edit")
    field(card, "line").value = "99"
    click(card, "Undo edits")
    assert sum(one.is_open for one in comms) == before
    click(card, "Approve")
    assert approval.decision.arguments is None


@pytest.mark.parametrize(
    ("text", "rows"),
    [("word " * 100, 7), ("word " * 18 + "\nsecond\nthird", 4), ("a\nb", 3), ("word\n" * 90, 16)],
)
async def test_a_field_is_as_high_as_its_text(text, rows):
    """Lines that the browser breaks count, too, up to the height from which a field scrolls."""
    card = ApprovalCard(Approval("f", {"note": text}, schema={"properties": {"note": {"type": "string"}}}))
    click(card, "Edit")
    assert field(card, "note").rows == rows
    card.finish()


async def test_hidden_characters_are_edited_as_escapes(make_card):
    """A text with an override or a zero-width blank is edited as JSON. So a browser neither hides nor removes the character."""
    approval = Approval("f", {"path": "a\u202eb\u200b"}, schema={"properties": {"path": {"type": "string"}}})
    card = ApprovalCard(approval)
    click(card, "Edit")
    assert field(card, "path").value == '"a\\u202eb\\u200b"'
    click(card, "Approve")
    card.finish()
    assert approval.decision.arguments is None


async def test_the_card_shows_every_argument_in_full():
    """The card has names, values, the end of a long text with its length, hidden characters, description, source and reason."""
    long = "start " + "x" * 5000 + " tail\u202e"
    approval = Approval(
        "rm",
        {"cmd": long, "n": 1, "s": "1"},
        description="Remove.",
        source="def rm(): pass",
        why="of <b>policy</b>",
        number=4,
    )
    card = ApprovalCard(approval)
    shown = texts(card)
    card.finish()
    for part in (
        " tail⟨U+202E⟩",
        f"{len(long):,} characters",
        "call 4 of this run",
        "asked because of",
        "Remove.",
        "rm",
        "of &lt;b&gt;policy&lt;/b&gt;",
    ):
        assert part in shown, part
    assert ">1</code>" in shown
    assert ">&quot;1&quot;</code>" in shown


async def test_the_plain_reason_is_not_said():
    """The card says why somebody is asked, unless the only reason is that the run asks about everything."""
    card = ApprovalCard(Approval("rm", {}, why="permissions are 'ask'"))
    shown = texts(card)
    card.finish()
    assert "Run <code>rm</code>?" in shown
    assert "asked because" not in shown


async def test_the_card_shows_blanks():
    """Blanks in short values and in JSON are shown as dots, in code that keeps them. A single line is not called "1 lines"."""
    card = ApprovalCard(
        Approval("sh", {"command": "rm  -rf   /tmp/x", "env": {"A": "b  c" * 30}, "note": "x" * 129 + "\n"})
    )
    shown = texts(card)
    card.finish()
    assert 'white-space:pre-wrap;overflow-wrap:anywhere">&quot;rm··-rf···/tmp/x&quot;</code>' in shown
    assert "b··cb··c" in shown
    assert "1 entry" in shown
    assert "130 characters, 1 line<" in shown


async def test_the_card_says_what_it_is():
    """A screen reader reads the card's question when the card appears. The card is a group with the tool's name."""
    card = ApprovalCard(Approval("sh", {}, number=4))
    shown = texts(card)
    card.finish()
    assert 'role="group" aria-label="Approval: run sh, call 4 of this run"' in shown
    assert '<div role="alert" aria-live="polite"><p class="tlj-title"' in shown


async def test_descriptions_hold_no_html():
    """On buttons, labels and tooltips, a tool's name is text and not HTML."""
    card = ApprovalCard(Approval("<b onmouseover=alert(1)>x</b>", {}))
    allowed = [w for w in every(card.widget) if getattr(w, "description_allow_html", False)]
    shown = texts(card)
    card.finish()
    assert not allowed
    assert "<b onmouseover" not in shown


async def test_fields_have_names_for_screen_readers(make_card):
    """Every button and field has a visible description. Front-ends use it as the label."""
    _, card = make_card()
    click(card, "Edit")
    for widget in every(card.widget):
        if isinstance(
            widget,
            (
                ipywidgets.Button,
                ipywidgets.Text,
                ipywidgets.Textarea,
                ipywidgets.Checkbox,
                ipywidgets.Dropdown,
            ),
        ):
            assert widget.description.strip(), widget


def test_toolbar_says_where_the_run_is(comms):
    """The toolbar has state, time, calls, tokens and cost. An unknown cost is not zero. If nothing has changed, nothing is
    sent.
    """
    bar = Toolbar(lambda: None)
    bar.show(draw_running("waiting for you", Usage(1500, 340, 2), None, 72.4))
    shown = texts(bar)
    for part in ("waiting for you", "1:12", "2 model calls", "1,840 tokens", "cost not reported"):
        assert part in shown
    sent = sum(len(one.sent) for one in comms)
    bar.show(draw_running("waiting for you", Usage(1500, 340, 2), None, 72.8))
    assert sum(len(one.sent) for one in comms) == sent
    bar.finish()


def test_stop_is_pressed_once():
    """The first click on Stop stops the run, and the button is disabled at once. A finished toolbar does nothing."""
    stops = []
    bar = Toolbar(lambda: stops.append(1))
    click(bar, "Stop")
    click(bar, "Stop")
    assert stops == [1]
    bar.finish()
    bar.finish()


def test_step_card_goes_on_once():
    """The first click on Next or on Run to end counts."""
    steps = []
    card = StepCard("search(q='x')", lambda: steps.append("next"), lambda: steps.append("run"))
    click(card, "Run to end")
    click(card, "Next")
    card.finish()
    assert steps == ["run"]


async def test_fifty_cards_leave_nothing(comms):
    """After fifty cards, there are as many comms and widgets as before."""
    before = len(ipywidgets.widgets.widget._instances)
    for _ in range(50):
        card = ApprovalCard(Approval("f", {"x": 1}))
        click(card, "Edit")
        card.finish()
    assert len(ipywidgets.widgets.widget._instances) == before
    assert not [one for one in comms if one.is_open]


def test_a_card_is_displayed_by_reference():
    """The bundle has only a reference to the widget, so a static form can stand beside it."""
    bar = Toolbar(lambda: None)
    bundle = bar.make_reference()
    bar.finish()
    assert list(bundle) == ["application/vnd.jupyter.widget-view+json"]
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
