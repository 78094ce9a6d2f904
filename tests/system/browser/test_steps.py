"""Step mode in JupyterLab shows exactly what the server gets."""

from __future__ import annotations

import json

import pytest

from support.servers import answer, calls

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = '''%load_ext toolloop_jupyter
STUB_KEY = "stub-key"

def weigh(thing: str, times: int = 1) -> float:
    """Weigh something.

    Args:
        thing: what to put on the scales, such as "Äpfel & <b>Birnen</b>".
        times: how often.
    """
    return 2.5 * times
'''


def test_step_mode_shows_what_is_sent(jupyter, desk, serve):
    """Before each of three clicks on Next, a request is shown. Its JSON is equal to the request that the server then logs."""
    server = serve([calls(("weigh", {"thing": "two apples", "times": 2})), answer("They weigh **5** kilos.")])
    run = (
        f"%%toolloop --step -m openai/stub --api-base {server.base_url} --api-key STUB_KEY -t weigh "
        "--set temperature=0.25 --as stepped\nWeigh <two> “apples”, {{x}} & $5."
    )
    jupyter.notebook("steps.ipynb", [SET_UP, run, "print('END', stepped.stop_reason)"])
    jupyter.share_kernel("steps.ipynb")
    desk.open("steps.ipynb")
    desk.run_all()
    desk.see(desk.button("Next"), "the first hold")
    assert server.requests == [], "nothing goes out before Next"
    first = read_shown(desk)
    desk.screenshot("steps-first")
    desk.click("Next")
    desk.wait_for("next: run weigh")
    assert len(server.wait_for_requests(1)) == 1
    desk.see(desk.button("Next"), "the hold before the tool")
    desk.click("Next")
    desk.wait_for("3 messages")
    desk.see(desk.button("Next"), "the hold before the second call")
    second = read_shown(desk)
    desk.screenshot("steps-second")
    desk.click("Run to end")
    desk.wait_for("END done")
    sent = [request.body for request in server.requests]
    assert len(sent) == 2
    for picture, body in zip((first, second), sent, strict=True):
        assert [leave_out_nulls(message) for message in picture["messages"]] == body["messages"]
        assert picture["tools"] == body["tools"]
        assert picture["temperature"] == body["temperature"] == 0.25
        assert picture["model"] == f"openai/{body['model']}"
        assert set(body) - set(picture) <= {"stream", "stream_options"}
    assert "stub-key" not in "".join(desk.page.locator(".jp-OutputArea").all_text_contents())
    desk.unfold()
    desk.cell(1).scroll_into_view_if_needed()
    desk.screenshot("steps-end")
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])


NEXT = "[...document.querySelectorAll('.tlj-card .tlj-go:enabled')].find(b => b.innerText === 'Next')"
IN_SIGHT = f"""() => {{
    const next = {NEXT}?.getBoundingClientRect(), page = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect();
    return next && document.activeElement === {NEXT} && next.top >= page.top && next.bottom <= page.bottom;
}}"""


def test_on_a_projector_next_is_in_sight_and_a_key_presses_it(jupyter, desk):
    """At 150 % zoom on a screen of 720 lines, each Next is visible and has the focus. Space and Enter press it, and there is
    one Stop.
    """
    cells = [
        SET_UP
        + "from toolloop_jupyter.teaching import ScriptedModel, call\n"
        + "lesson = ScriptedModel(['I look.', call('weigh', thing='apples')], call('weigh', thing='pears'), 'They weigh **5** kilos.')",
        "%%toolloop --step -m lesson -t weigh -i 'Be kind.'\nHow much do they weigh?",
        "print('END')",
    ]
    jupyter.notebook("projector.ipynb", cells)
    jupyter.share_kernel("projector.ipynb")
    size = desk.page.viewport_size
    desk.page.set_viewport_size({"width": 1280 * 2 // 3, "height": 720 * 2 // 3})
    try:
        desk.open("projector.ipynb")
        desk.page.locator(".jp-Notebook .jp-Cell").first.click()
        desk.run_all()
        for number, key in enumerate(["Space", "Enter", "Space", "Enter", "Space"], 1):
            held = "() => document.querySelectorAll('.tlj-step').length"
            desk.until(
                f"n => ({IN_SIGHT})() && ({held})() >= n", f"Next in sight, step {number}", argument=number
            )
            desk.see_number(desk.button("Stop"), 1, "one Stop")
            steps = desk.page.evaluate(held)
            desk.screenshot(f"projector-{number}")
            desk.page.keyboard.press(key)
            desk.until(f"n => ({held})() > n", f"a step after {key}", argument=steps)
        desk.wait_for("END")
    finally:
        desk.page.set_viewport_size(size)
    assert desk.text_of(1).count("They weigh 5 kilos.") == 1, "the answer stands there once"
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])


def read_shown(desk):
    """Return the JSON of the last request that is shown."""
    desk.unfold()
    folded = desk.page.locator(".tlj-step details:has(summary:has-text('the whole request')) pre").last
    return json.loads(folded.inner_text())


def leave_out_nulls(message):
    """Return a message in the form in which it is sent: LiteLLM's client leaves out a content that is null."""
    return {key: value for key, value in message.items() if value is not None}
