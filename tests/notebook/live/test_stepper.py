"""What step mode shows of a request is what the server gets, field by field."""

from __future__ import annotations

import html
import json
import re

import pytest

from support.asking import replace_config
from support.servers import answer, calls
from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.core.events.observer import Observer
from toolloop_jupyter.notebook.live.stepper import request_block


class Sees(Observer):
    """Keeps the JSON that a step shows of each request."""

    def __init__(self):
        self.shown = []

    async def before_model(self, request):
        pre = re.search(r"<pre[^>]*>(.*?)</pre>", request_block(request).html, re.DOTALL)
        self.shown.append(json.loads(html.unescape(re.sub(r"<[^>]+>", "", pre[1]))))


def double(x: int) -> int:
    """Double a number."""
    return 2 * x


@pytest.mark.parametrize(("tools", "said"), [([double], None), ([double], "I ask."), ([], None)])
async def test_the_shown_request_is_what_goes_out(serve, tools, said):
    """No field more and none less than on the wire: also where the model said nothing beside its call, and without tools."""
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
