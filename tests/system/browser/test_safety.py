"""The corpus in a real browser: nothing runs, nothing is requested from the network, and every block stays within its
borders.
"""

from __future__ import annotations

import html

import pytest

from support.hostile import pages, run
from support.payloads import PAYLOADS
from toolloop_jupyter.notebook.transcript import steps

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>corpus</title><body>{body}
<script>window.finished = true</script></body></html>"""
ADDRESS = "http://corpus.test/"

# Opens all folds, and touches everything that a person might touch by accident.
TOUCH = """() => {
  document.querySelectorAll('details').forEach(e => e.open = true);
  for (const e of document.querySelectorAll('[data-case] *'))
    for (const kind of ['mouseover', 'mouseenter', 'focus', 'animationstart', 'toggle', 'load', 'error'])
      e.dispatchEvent(new Event(kind));
}"""
# If a block breaks out of its cell, something is beside the cells, or the mark behind the block is missing.
BORDERS = """() => [...document.body.children].filter(e =>
    !e.matches('div[data-case]:has(> i.end:last-child)') && e.tagName != 'SCRIPT').length
  + [...document.querySelectorAll('i.end')].filter(e => !e.parentElement.matches('body > div[data-case]')).length"""


class Visitor:
    """A page without a network. `happened` says what the document on it has run and requested."""

    def __init__(self, page):
        self.page = page
        self.happened = []
        self._document = ""
        page.set_default_timeout(120_000)  # deeply nested payloads take a browser long on a busy machine
        page.on("dialog", self._dismiss)
        page.on("popup", lambda popup: self.happened.append(f"window {popup.url}"))
        page.route("**/*", self._answer)

    def visit(self, body):
        """Load a document with this body, touch everything on it, and return what happened."""
        self._document = PAGE.format(body=body)
        self.happened.clear()
        self.page.goto(ADDRESS)
        self.page.wait_for_function("window.finished")
        self.page.evaluate(TOUCH)
        self.page.wait_for_timeout(200)
        if self.page.evaluate("typeof window.pwned !== 'undefined'"):
            self.happened.append("a script of a payload ran")
        return list(self.happened)

    def _dismiss(self, dialog):
        self.happened.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _answer(self, route):
        if route.request.url == ADDRESS and route.request.is_navigation_request():
            return route.fulfill(body=self._document, content_type="text/html; charset=utf-8")
        self.happened.append(f"request {route.request.url}")
        return route.abort()


@pytest.fixture(scope="module")
def visitor(context):
    """One page for all documents."""
    page = context.browser.new_page()
    yield Visitor(page)
    page.close()


def test_the_browser_test_sees_what_is_unsafe(visitor):
    """Raw payloads run, load and break out of their blocks. So the checks below can fail."""
    ran = visitor.visit(f"<div data-case=x>{PAYLOADS['handler-0']}<i class=end></i></div>")
    assert any(event.startswith("dialog") for event in ran)
    assert "a script of a payload ran" in ran
    asked = visitor.visit("<div data-case=x><img src=http://evil.example/><i class=end></i></div>")
    assert asked == ["request http://evil.example/"]
    visitor.visit("<div data-case=x></div></div>out<b>x</b><i class=end></i></div>")
    assert visitor.page.evaluate(BORDERS) > 0


def group_payloads():
    """Return {name of a document: its payloads}: a document for each kind, and one for each payload that is very deep.

    In one document of 19 MB, a browser on a busy machine took two minutes.
    """
    groups = {}
    for name in PAYLOADS:
        kind = name.rpartition("-")[0]
        groups.setdefault(name if kind == "deep" else kind, []).append(name)
    return groups


GROUPS = group_payloads()


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_runs_loads_or_breaks_out(visitor, group):
    """All blocks and cards with each payload: there is no dialog, no script, no request, and every block stays closed."""
    cells = [
        f'<div data-case="{html.escape(f"{name} {place}")}">{page}<i class="end"></i></div>'
        for name in GROUPS[group]
        for place, page in pages(PAYLOADS[name]).items()
    ]
    assert visitor.visit("".join(cells)) == []
    assert visitor.page.locator("div[data-case]").count() == len(cells)
    assert visitor.page.evaluate(BORDERS) == 0


def test_an_exported_page_follows_the_readers_theme(context, tmp_path):
    """If the reader's system uses dark mode, an exported page is dark, with fitting colours. It has no raw formula."""
    file = steps.write(run("costs $5, is $e^x$"), str(tmp_path / "run.html"))
    seen = {}
    page = context.new_page()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(file.as_uri())
        seen[scheme] = page.evaluate(
            "() => [document.querySelector('.tlj-bad'), document.body].map(e => getComputedStyle(e).color)"
        )
        assert r"\(" not in page.inner_text("body")
        assert "e^x" in page.inner_text("body")
    page.close()
    assert seen["light"][0] == "rgb(207, 34, 46)"
    assert seen["dark"][0] == "rgb(244, 112, 103)"
    assert seen["light"][1] != seen["dark"][1]
