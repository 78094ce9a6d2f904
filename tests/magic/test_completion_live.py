"""Tab on the magic line, asked of a live kernel as a front-end asks."""

from __future__ import annotations

import time

import pytest

from support.kernels import LiveKernel

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel():
    """A kernel with tools, an output model, a session and a scripted model."""
    with LiveKernel() as live:
        live.execute("%load_ext toolloop_jupyter")
        live.execute(
            "from pydantic import BaseModel\nfrom toolloop_jupyter.teaching import ScriptedModel\n"
            "def search_code(q: str) -> str: 'Search.'\n"
            "class Review(BaseModel):\n    text: str\nlesson = ScriptedModel('hi')"
        )
        assert live.execute("%%toolloop -s review_talk --model lesson\nhi", timeout=90).status == "ok"
        yield live


def complete(kernel, code):
    """The matches at the end of the code's first line, and the seconds that they took."""
    began = time.monotonic()
    reply = kernel.request("complete_request", {"code": code, "cursor_pos": len(code.split("\n")[0])})
    return reply["matches"], time.monotonic() - began


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("%%toolloop --perm", "--permissions"),
        ("%%toolloop --tools sea", "search_code"),
        ("%%toolloop --model m --tools search_code --out", "--output"),
        ("%%toolloop --output Rev", "Review"),
        ("%%toolloop --session rev", "review_talk"),
        ("%%toolloop --model les", "lesson"),
        ("%%toolloop --model toolloop/d", "toolloop/demo"),
        ("%%toolloop --model anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("%%toolloop --permissions as", "ask"),
        ("%toolloop hist", "history"),
        ("%toolloop history rev", "review_talk"),
    ],
)
def test_completion(kernel, line, match):
    """Each kind of word is completed."""
    complete(kernel, line)
    matches, seconds = complete(kernel, line + "\nthe prompt")
    assert match in matches
    assert seconds < 1.0  # a bound against a hang; the figure is in the benchmarks


def test_the_prompt_is_not_completed_as_options(kernel):
    """Below the option line nothing of ours is offered."""
    code = "%%toolloop --tools search_code\nReview sea"
    matches = kernel.request("complete_request", {"code": code, "cursor_pos": len(code)})["matches"]
    assert "--tools" not in matches
