"""The checker axe-core examines our parts in JupyterLab: the card with its form, and the transcript, on light and dark pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from support.asking_run import CELLS
from support.optional import optional

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

AXE = "axe-core-4.10.3"
RUN = """() => axe.run({include: ['.tlj', '.tlj-card', '.tlj-bar'].filter(s => document.querySelector(s)).map(s => [s])},
  {resultTypes: ['violations']}).then(found => ({
    checked: found.passes.length,
    bad: found.violations.map(v => [v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary])}))"""

FOCUSED = "() => (e => e.tagName === 'BUTTON' ? e.innerText.trim() : e.tagName + ' ' + (e.type || ''))(document.activeElement)"
ON_CARD = ["Approve", "Edit…", "Deny", "INPUT text", "SELECT select-one"]


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, from the npm registry. It is kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolloop-jupyter-tests"
    archive = cache / f"{AXE}.tgz"
    if not archive.is_file():
        npm = optional(shutil.which("npm"), "npm")
        cache.mkdir(parents=True, exist_ok=True)
        version = AXE.rpartition("-")[2]
        packed = subprocess.run(
            [npm, "pack", f"axe-core@{version}"],
            cwd=cache,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        optional(packed.returncode == 0 and archive.is_file(), f"axe-core ({packed.stderr.strip()[-300:]})")
    with tarfile.open(archive) as files:
        return files.extractfile("package/axe.min.js").read().decode()


def findings(desk, axe, what, more_than=5):
    """Return axe's findings of all levels, with more rules than those in use by default."""
    desk.page.evaluate(axe)
    found = desk.page.evaluate(RUN)
    assert found["checked"] > more_than, what
    return [(what, *one) for one in found["bad"]]


STEPS = "%%toolloop -m stepped -t stock --step --as steps\nWhat is there?"
FAILED = "%%toolloop -m failing -o Plan --as failed\nWhat is the plan?"
STEPPED = 'failing = ScriptedModel("no", repeat_last=True)\nstepped = ScriptedModel([reasoning("Where?"), call("stock", room="B")], "There are **pens**.")'


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_axe_finds_nothing(jupyter, desk, axe, app):
    """There is no finding of any level: toolbar, card, edit form, steps, and transcripts (one of a failed run), folded and
    unfolded, light and dark.
    """
    cells = [*CELLS[:3], STEPPED, STEPS, FAILED]
    jupyter.notebook("axe.ipynb", cells)
    jupyter.share_kernel("axe.ipynb")
    desk.open("axe.ipynb", app)
    desk.run_all()
    desk.see(desk.button("Approve"), "the card")
    faults = findings(desk, axe, "card")
    dark(desk, True)
    faults += findings(desk, axe, "card, dark")
    desk.click("Edit…")
    desk.see(desk.page.locator(".tlj-form input"), "the form")
    faults += findings(desk, axe, "form, dark")
    desk.screenshot(f"card-form-dark-{app}")
    dark(desk, False)
    faults += findings(desk, axe, "form")
    desk.page.locator(".tlj-card:visible .tlj-form").get_by_label("count").fill("")
    desk.page.locator(".tlj-card:visible .tlj-form").get_by_label("note").fill("Dear supplier, please hurry.")
    desk.click("Approve edited")
    for item in ("paper", "glue"):
        desk.see(desk.page.locator(".tlj-card:visible").get_by_text(f'"{item}"'), f"the card about {item}")
        desk.click("Deny" if item == "paper" else "Approve")
    desk.see(desk.button("Next"), "the first step")
    desk.click("Next")
    desk.see(desk.page.locator(".tlj-card:visible", has_text="stock"), "the second step")
    faults += findings(desk, axe, "steps")
    dark(desk, True)
    faults += findings(desk, axe, "steps, dark")
    desk.click("Run to end")
    desk.wait_for("failed: the answer does not fit")
    faults += findings(desk, axe, "transcript, dark")
    desk.unfold()
    faults += findings(desk, axe, "unfolded, dark")
    dark(desk, False)
    faults += findings(desk, axe, "unfolded")
    assert faults == []


ROWS = """%load_ext toolloop_jupyter
from toolloop_jupyter.teaching import ScriptedModel, error, pause
texts = [{"text": "It broke." if n % 3 == 1 else "I like it."} for n in range(10_000)]
slow = ScriptedModel([pause(0.2), lambda m: error("it cannot be read", 400) if "broke" in m[-1]["content"] else "praise"])
"""
EACH = "%%toolloop --each texts --model slow --concurrency 2 --as labelled\n{{text}}"


def test_axe_finds_nothing_of_rows(jupyter, desk, axe):
    """There is no finding of any level: the block of many rows while they run, and its record, folded and unfolded, light and
    dark.
    """
    jupyter.notebook("axe-rows.ipynb", [ROWS, EACH])
    jupyter.share_kernel("axe-rows.ipynb")
    desk.open("axe-rows.ipynb")
    desk.run_all()
    desk.until(
        "() => /failed/.test(document.querySelector('.tlj-status')?.textContent ?? '')", "a failed row"
    )
    faults = findings(desk, axe, "running")
    dark(desk, True)
    faults += findings(desk, axe, "running, dark")
    desk.click("Stop")
    desk.wait_for("the run was stopped")
    faults += findings(desk, axe, "record, dark", more_than=4)
    desk.unfold()
    faults += findings(desk, axe, "unfolded, dark")
    dark(desk, False)
    faults += findings(desk, axe, "unfolded")
    assert faults == []


def dark(desk, on):
    """Change JupyterLab's theme."""
    desk.set_theme("Dark" if on else "Light")


def test_the_card_by_keyboard(jupyter, desk):
    """Tab reaches every control of the card, in their order on the page. Enter and Space press it."""
    jupyter.notebook("keys.ipynb", CELLS)
    jupyter.share_kernel("keys.ipynb")
    desk.open("keys.ipynb")
    desk.run_all()
    desk.see(desk.button("Approve"), "the card")
    desk.button("Stop").focus()
    focused = []
    for _ in range(16):
        desk.page.keyboard.press("Tab")
        focused.append(desk.page.evaluate(FOCUSED))
    order = [name for name in focused if name in ON_CARD]
    assert order[: len(ON_CARD)] == ON_CARD, focused
    desk.button("Deny").focus()
    desk.page.keyboard.press("Enter")
    desk.wait_for("denied by click")
    desk.see(desk.button("Approve"), "the second card")
    desk.button("Edit…").focus()
    desk.page.keyboard.press("Space")
    desk.see(desk.page.locator(".tlj-card:visible .tlj-form input"), "the form")
    desk.click("Stop")
    desk.wait_for("END cancelled")
