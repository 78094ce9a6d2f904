"""A call that takes long, in JupyterLab: its line stays as a person left it, and its output is below it."""

from __future__ import annotations

import pytest

from support.servers import answer
from support.slow_import import import_held_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = '''%load_ext toolloop_jupyter
import time
from pathlib import Path
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call, text

def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())

def fetch_pages(site: str) -> str:
    """Fetch the pages of a site, until a file says that it is enough."""
    number = 0
    while not Path("enough").exists():
        number += 1
        print("fetched page", number)
        time.sleep(0.05)
    return f"{number} pages"

model = ScriptedModel(
    [text("I count first."), call("count_words")],
    call("fetch_pages", site="https://example.org"),
    "That was all.",
)
'''
RUN = "%%toolloop -m model -t count_words fetch_pages --as run\nFetch the site."
STYLED = "() => getComputedStyle(document.querySelector('.jp-OutputArea-output .tlj-call summary')).display"
OPENED = "() => document.querySelectorAll('.jp-OutputArea-output details.tlj-call[open]').length"


def test_a_running_call_stays_as_it_was_left(jupyter, desk):
    """A person opens the line of a running call: it stays open, while printed lines and seconds change below it."""
    (jupyter.root / "enough").unlink(missing_ok=True)
    jupyter.notebook("running.ipynb", [SET_UP, RUN, "print('END', run.stop_reason)"])
    jupyter.share_kernel("running.ipynb")
    desk.open("running.ipynb")
    desk.run_all()
    desk.wait_for("fetched page")
    assert desk.page.evaluate(STYLED) == "flex", "the style sheet is there from the first output on"
    row = desk.page.locator(".jp-OutputArea-output summary:has-text('fetch_pages')")
    row.click()
    desk.page.wait_for_function(f"() => ({OPENED})() === 1")
    last = desk.page.locator(".tlj-progress pre").inner_text().splitlines()[-1]
    for theme in ("Light", "Dark"):
        desk.set_theme(theme)
        desk.cell(1).scroll_into_view_if_needed()
        desk.screenshot(f"running-{theme.lower()}")
    desk.until(
        "last => !document.querySelector('.tlj-progress').innerText.includes(last)",
        "new lines",
        argument=last,
    )
    assert desk.page.evaluate(OPENED) == 1
    (jupyter.root / "enough").write_text("")
    desk.wait_for("END done")
    assert "was not run: text: missing" in desk.text_of(1), "the row says why the call was refused"
    desk.see_number(desk.page.locator(".tlj-progress"), 0, "the finished call alone, which has it all")
    desk.screenshot("running-end")
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])


HELD_IMPORT = import_held_until("go-on-importing") + "KEY = 'stub-key'\n%load_ext toolloop_jupyter"
SECONDS = """() => +(document.querySelector('.tlj-status')?.innerText.match(/loading litellm.*?(\\d+) s\\b/s)?.[1] ?? 0)"""


def test_the_first_run_says_what_it_waits_for(jupyter, desk, serve):
    """In a new kernel, the run's first line appears before LiteLLM is imported, with its style. It says what the run waits
    for, and its clock goes on.
    """
    (jupyter.root / "go-on-importing").unlink(missing_ok=True)
    server = serve([answer("Good morning.")])
    run = f"%%toolloop -m openai/stub --api-base {server.base_url} --api-key KEY\nSay it."
    jupyter.notebook("first.ipynb", [HELD_IMPORT, run])
    desk.open("first.ipynb")
    desk.run_all()
    desk.wait_for("loading litellm")
    desk.until("() => getComputedStyle(document.querySelector('.tlj-bar')).display === 'flex'", "its style")
    seconds = desk.until(SECONDS, "the seconds of the wait").json_value()
    desk.until(f"before => ({SECONDS})() > before", "more seconds of the wait", argument=seconds)
    assert server.requests == []
    (jupyter.root / "go-on-importing").write_text("")
    desk.wait_for("Good morning.")
    desk.wait_for("done ·")
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])
