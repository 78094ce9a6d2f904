"""The picture of a run: what it shows, that it can neither run nor load anything, and what remains if a page removes
pictures.
"""

from __future__ import annotations

import base64
import itertools
import re
from xml.etree import ElementTree as ET

import nh3
import pytest

from support.diagrams import a_run
from toolloop_jupyter import Harness, agent
from toolloop_jupyter.core.events.events import Span
from toolloop_jupyter.notebook.html.style import STYLE
from toolloop_jupyter.notebook.transcript import diagram
from toolloop_jupyter.notebook.transcript.diagram import draw_timeline
from toolloop_jupyter.notebook.transcript.steps import make_bundle, render, write_markdown
from toolloop_jupyter.teaching import ScriptedModel, call

_SVG = "{http://www.w3.org/2000/svg}"


def svg_of(html: str) -> ET.Element:
    """Return the picture in a block's HTML, parsed as a browser parses an image: as strict XML."""
    return ET.fromstring(base64.b64decode(re.search(r'base64,([A-Za-z0-9+/=]+)"', html)[1]))


def test_it_says_who_spoke_when_and_how_long_each_call_took() -> None:
    """There is a row for the person's question and for each span. A row has a name, a bar from start to end, and the seconds."""
    drawn = svg_of(draw_timeline(a_run()).html)
    texts = ["".join(text.itertext()) for text in drawn.iter(f"{_SVG}text")]
    assert texts[:7] == [
        "? you ask", "◆ openai/gpt-4o-mini", "0.90 s", "? allowed delete_file", "0.70 s", "› delete_file", "0.12 s",
    ]  # fmt: skip
    bars = [(float(bar.get("x")), float(bar.get("width"))) for bar in drawn.iter(f"{_SVG}rect")]
    assert len(bars) == 6
    for (x, width), (after, _) in itertools.pairwise(bars):
        assert x + width == pytest.approx(after, abs=2.5), "the calls follow one another"
    assert bars[-1][1] > bars[2][1], "a longer call has a longer bar"


def test_the_same_in_characters() -> None:
    """The text form of the picture has the same rows."""
    lines = draw_timeline(a_run()).text.splitlines()
    assert lines[0] == "? you ask"
    assert lines[1].startswith("◆ openai/gpt-4o-mini")
    assert lines[1].endswith("0.90 s")
    assert "█" in lines[3]
    assert [line[0] for line in lines] == ["?", "◆", "?", "›", "◆", "✗", "◆", " "]


def test_a_denied_call_is_no_error() -> None:
    """A denied call has the mark and the colour of a decision. A failed call has those of an error."""

    def fail() -> None:
        """Fail."""
        raise ValueError

    def keep() -> None:
        """Do nothing. This never runs."""

    model = ScriptedModel([call("keep"), call("fail")], "Done.")
    result = agent(
        Harness.TOOL_LOOP,
        "Go.",
        model=model,
        tools=[keep, fail],
        permissions={"keep": "deny", "fail": "full"},
    )
    lines = draw_timeline(result).text.splitlines()
    assert [line[:7].rstrip() for line in lines if line[2:6] in ("keep", "fail")] == ["⊘ keep", "✗ fail"]
    drawn = svg_of(draw_timeline(result).html)
    colours = {
        mark.text: mark.get("fill") for mark in drawn.iter(f"{_SVG}tspan") if mark.text in ("⊘", "✗", "?")
    }
    assert colours["⊘"] == colours["?"] != colours["✗"]


def test_hostile_names_are_inert_and_spoil_nothing() -> None:
    """If a tool's name has markup and characters that XML forbids, the picture shows it as text, and is still valid."""
    html = draw_timeline(a_run()).html
    drawn = svg_of(html)
    assert {element.tag.removeprefix(_SVG) for element in drawn.iter()} <= {
        "svg",
        "path",
        "text",
        "tspan",
        "circle",
        "rect",
    }
    assert not [
        name for element in drawn.iter() for name in element.attrib if name.startswith("on") or "href" in name
    ]
    text = ET.tostring(drawn, encoding="unicode")
    assert "<script" not in html + text
    assert not {"\uffff", "\x00", "\u202e"} & set(text), (
        "browsers refuse an image with a character that XML has not"
    )
    assert html.count("<img ") == 1


def test_without_pictures_the_words_remain() -> None:
    """If a page removes images with data, the alt text and the picture in characters remain."""
    tags = {"img", "details", "summary", "pre", "div"}
    left = nh3.clean(draw_timeline(a_run()).html, tags=tags, url_schemes={"http", "https"})
    assert "base64" not in left
    assert (
        'alt="timeline: you ask, openai/gpt-4o-mini 0.90 s, allowed delete_file 0.70 s, delete_file 0.12 s'
        in left
    )
    assert "█" in left


def test_it_is_folded_behind_the_footer() -> None:
    """A transcript ends with one line. The picture is folded behind it, and is not in the text form."""
    foot = render(a_run())[-1]
    assert re.fullmatch(
        r'<details class="tlj tlj-foot".*<summary.*done · 3 model calls.*</summary><div[^>]*><img .*></details>',
        re.sub(r"</?span[^>]*>", "", foot.html),
    )
    assert "\n" not in foot.text
    assert "base64" not in write_markdown(a_run())


def test_a_long_run_stays_small() -> None:
    """Of a thousand calls, the first and the last are drawn. The last line with the picture stays below 30 kB."""
    spans = tuple(Span("tool", f"tool_{n}", n, n + 1) for n in range(1000))
    foot = render(a_run(spans=spans))[-1]
    text = draw_timeline(a_run(spans=spans)).text
    assert len(foot.html) < 30_000
    assert "940 more" in text
    assert "tool_0 " in text
    assert "tool_999 " in text
    assert len(render(a_run())[-1].html.removesuffix(f"{STYLE}</details>")) < 5_000


def test_scripts_and_recordings_go_by_the_name_that_a_person_knows() -> None:
    """A scripted or replayed model has another name in each kernel. The picture has the name that a person knows."""
    run = a_run(spans=(Span("model", "toolloop/replay-7", 0, 1),), model="openai/gpt-4o")
    assert "◆ openai/gpt-4o " in draw_timeline(run).text


def test_a_run_without_calls_has_a_picture() -> None:
    """If a run failed before its first call, the picture shows the person's question."""
    assert draw_timeline(a_run(spans=())).text == "? you ask"
    assert make_bundle(render(a_run(spans=())))["text/html"].count("<img ") == 1


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("page", ["#ffffff", "#111111", "#1e1e1e"])
def test_its_colours_can_be_seen_on_light_and_dark_pages(page: str) -> None:
    """On light and dark pages, each colour has at least the contrast that WCAG requires for graphics (3). Text has 3.8."""
    for color, least in [(diagram._TEXT, 3.8), *((c, 3.0) for c in diagram._COLORS.values())]:
        low, high = sorted((_luminance(color), _luminance(page)))
        assert (high + 0.05) / (low + 0.05) >= least, (color, page)
