"""Step mode shows the request that the server gets."""

from __future__ import annotations

import html
import json
import re

import pytest

from support.asking import replace_config
from support.servers import answer, calls
from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.core.events import Observer, Reply, Request, Usage
from toolloop_jupyter.notebook.live.stepper import draw_reply, draw_request


class Sees(Observer):
    """Keeps the JSON that step mode shows for each request."""

    def __init__(self):
        self.shown = []

    async def before_model(self, request):
        pre = re.search(r"<pre[^>]*>(.*?)</pre>", draw_request(request).html, re.DOTALL)
        self.shown.append(json.loads(html.unescape(re.sub(r"<[^>]+>", "", pre[1]))))


def double(x: int) -> int:
    """Double a number."""
    return 2 * x


@pytest.mark.parametrize(("tools", "said"), [([double], None), ([double], "I ask."), ([], None)])
async def test_the_shown_request_is_what_goes_out(serve, tools, said):
    """The JSON has exactly the fields that the server gets: also without tools, and if a reply has a call but no text."""
    beside = {} if said is None else {"content": said}
    server = serve([calls(("double", {"x": 4}), **beside) if tools else answer("Hi."), answer("Eight.")])
    sees, keywords = Sees(), {"model": "openai/stub", "api_base": server.base_url, "api_key": "sk-test"}
    session = aagent_session(Harness.TOOL_LOOP, tools=tools, **keywords)
    replace_config(session, observers=(sees,))
    await session.arun("Go")
    assert len(sees.shown) == len(server.requests) > 0
    for shown, request in zip(sees.shown, server.requests, strict=True):
        assert (shown.pop("model"), shown.pop("api_base")) == ("openai/stub", server.base_url)
        assert shown == {key: value for key, value in request.body.items() if key != "model"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("invalid arguments, f was not run:\n- x: missing", "invalid arguments, f was not run: x: missing"),
        ("one\ntwo\nthree", "one … 2 more lines"),
        ("one", "one"),
    ],
)
def test_a_message_in_a_line(content, line):
    """A message is shown in one line: its first line and the number of its other lines. If the first line only introduces a
    list, the list is shown, too.
    """
    request = Request("m", [{"role": "tool", "tool_call_id": "1", "content": content}])
    assert draw_request(request).text.split("\n")[1] == f"    › tool       {line}"


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        ({"content": "Hi."}, "stop", "the answer above"),
        ({"content": "Hi"}, "length", "an answer that is cut off: it reached the token limit"),
        ({"content": None}, "stop", "nothing"),
        (
            {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}] * 2},
            "stop",
            "it asks for 2 tool calls",
        ),
    ],
)
def test_a_reply_in_plain_words(message, reason, words):
    """The line of a reply says in words what it brought. It does not repeat the text, or the API's `finish_reason`."""
    title = draw_reply(Reply({"role": "assistant", **message}, reason, Usage(3, 2), 0.0)).text.split("\n")[0]
    assert title == f"← from the model: {words} · 3 tokens read, 2 written"


def test_only_what_changed_is_shown():
    """Tools and options that are the same as in the last call are not shown again. An option that is gone is named."""
    first = Request("m", [{"role": "user", "content": "Go"}], options={"stream": True, "seed": 1, "top_p": 1})
    again = Request("m", first.messages, options={"stream": True, "seed": 2})
    shown = draw_request(again, last=first.shown()).text.split("\n")
    assert shown == ["→ to the model: 1 message, none of them new", "    options      seed=2, no top_p"]


def test_a_request_that_is_not_sent_shows_all_options():
    """A dry run of rows shows that the answers are not streamed."""
    request = Request("m", [{"role": "user", "content": "Go"}], options={"stream": False})
    shown = draw_request(request, sent=False).text.split("\n")
    assert "    options      stream=false" in shown
