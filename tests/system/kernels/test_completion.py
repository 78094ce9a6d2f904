"""Tab on the option line: a live kernel is asked in the same way as by a front-end."""

from __future__ import annotations

import time

import pytest

from support.kernels import LiveKernel
from support.pace import Pace

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel():
    """A kernel with tools, an output model, a session and a scripted model."""
    with LiveKernel() as live:
        # LiteLLM knows the names of the models.
        live.execute("%load_ext toolloop_jupyter\nimport litellm", timeout=120)
        live.execute(
            "from pydantic import BaseModel\nfrom toolloop_jupyter.teaching.scripted import ScriptedModel\n"
            "def search_code(q: str) -> str: 'Search.'\n"
            "class Review(BaseModel):\n    text: str\nlesson = ScriptedModel('hi')"
        )
        assert live.execute("%%toolloop -s review_talk --model lesson\nhi", timeout=90).status == "ok"
        live.request("complete_request", {"code": "%%toolloop --model ", "cursor_pos": 19})
        waited = "import time\nfrom toolloop_jupyter.core.models import is_litellm_loaded as loaded\nwhile not loaded(): time.sleep(0.1)"
        assert live.execute(waited, timeout=90).status == "ok", "Tab on --model has begun the import"
        yield live


def complete(kernel, code):
    """Return (the matches at the end of the code's first line, the seconds that they took)."""
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
    with Pace() as pace:
        answers = [complete(kernel, line + "\nthe prompt") for _ in range(5)]
    assert match in answers[0][0]
    best = min(seconds for _, seconds in answers)
    assert best < 0.1 * pace.slowdown, "2 to 8 ms on an idle machine; the best of a busy one"


def test_no_python_among_the_answers(kernel):
    """An option line is not Python: none of Jedi's completions is among the matches."""
    assert complete(kernel, "%%toolloop --model toolloop/d\nhi")[0] == ["toolloop/demo"]
    assert complete(kernel, "%%toolloop --images a")[0] == ["always", "auto"]
    assert "print" in complete(kernel, "pri")[0]


def test_unloading_gives_python_its_completion_back(kernel):
    """`%unload_ext` removes our part from the completer."""
    kernel.execute("%unload_ext toolloop_jupyter")
    assert "toolloop/demo" not in complete(kernel, "%%toolloop --model toolloop/d")[0]
    assert kernel.execute("print('_jedi_matches' in vars(get_ipython().Completer))").stdout == "False\n"
    kernel.execute("%load_ext toolloop_jupyter")
    assert complete(kernel, "%%toolloop --model toolloop/d")[0] == ["toolloop/demo"]


def test_the_prompt_is_not_completed_as_options(kernel):
    """Below the option line, we offer no completions."""
    code = "%%toolloop --tools search_code\nReview sea"
    matches = kernel.request("complete_request", {"code": code, "cursor_pos": len(code)})["matches"]
    assert "--tools" not in matches


def test_each_match_has_a_type(kernel):
    """The front-end gets the type of each match. The commands of `%toolloop` come before its options."""
    reply = kernel.request("complete_request", {"code": "%toolloop ", "cursor_pos": 10})
    types = [one["type"] for one in reply["metadata"]["_jupyter_types_experimental"]]
    assert types == sorted(types)
    assert set(types) == {"command", "option"}
    assert reply["matches"][0] == "doctor"
    for line in ("%%toolloop --permissions ", "%%toolloop --timeout "):
        reply = kernel.request("complete_request", {"code": line, "cursor_pos": len(line)})
        assert "print" not in reply["matches"]
        assert {one["type"] for one in reply["metadata"]["_jupyter_types_experimental"]} == {"value"}
