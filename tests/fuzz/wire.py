"""Server streams as bytes: the deltas of `streams`, written as server-sent events, cut at any byte, and sent by a real
server.

LiteLLM's own client reads them. This takes some ten milliseconds for each input, so there are fewer of these inputs.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from fuzz.running import DONE, FOLLOWING, NEXT, counting_tools, watch
from fuzz.seam import Seam, Seen
from fuzz.streams import expect, messages, spoilt
from support.servers import Entry, Received, ScriptedServer, answer
from toolloop_jupyter import ToolLoopOptions

LINES = st.sampled_from(
    (
        ": comment\n\n",
        "event: message\n",
        "retry: 10\n\n",
        "\n",
        "data:\n\n",
        "data: \n\n",
        "data: {\n\n",
        "data: null\n\n",
        "data: []\n\n",
        'data: {"choices": []}\n\n',
        'data: {"choices": null}\n\n',
        'data: {"error": {"message": "odd"}}\n\n',
        "x: y\n",
        "\ufeff",
        "data: [DONE]\n\n",
    )
)
INPUTS = st.fixed_dictionaries(
    {
        "message": st.one_of(messages(), messages(), spoilt()),
        "newline": st.sampled_from(("\n", "\n", "\r\n")),
        "blank": st.booleans(),
        "ascii": st.booleans(),
        "cuts": st.lists(st.integers(0, 2_000), max_size=5),
        "junk": st.lists(st.tuples(st.integers(0, 12), LINES), max_size=2) | st.just([]),
        "finish": st.sampled_from(("stop", "stop", "tool_calls", None)),
        "done": st.booleans(),
        "lost": st.one_of(st.none(), st.none(), st.none(), st.integers(1, 40)),
    }
)


def write_events(given: dict[str, Any]) -> list[bytes]:
    """Return the stream in the pieces in which it is sent."""
    head, colon = (
        {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"},
        ": " if given["blank"] else ":",
    )
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in given["message"]["deltas"]]
    if given["finish"]:
        chunks.append({"index": 0, "delta": {}, "finish_reason": given["finish"]})
    events = [
        f"data{colon}{json.dumps({**head, 'choices': [chunk]}, ensure_ascii=given['ascii'])}\n\n"
        for chunk in chunks
    ]
    if given["done"]:
        events.append(f"data{colon}[DONE]\n\n")
    for at, line in given["junk"]:
        events.insert(at % (len(events) + 1), line)
    data = "".join(events).replace("\n", given["newline"]).encode("utf-8", "replace")
    if given["lost"] is not None:
        data = data[: -given["lost"]]
    places = sorted({place % (len(data) + 1) for place in given["cuts"]} - {0, len(data)})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


class _Server:
    """One server for all inputs. The first request gets the input's bytes, and the next ones get an answer."""

    def __init__(self) -> None:
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)  # LiteLLM logs each chunk that it cannot read
        self.pieces: Sequence[bytes] = ()
        self._first = True
        self.server = ScriptedServer(self._answer)
        self.server.start()
        atexit.register(self.server.stop)

    def begin(self, pieces: Sequence[bytes]) -> None:
        self.pieces, self._first = pieces, True

    def _answer(self, received: Received) -> Entry:
        if received.messages[-1]["content"].endswith(FOLLOWING):
            return answer(NEXT)
        if not self._first:
            return answer(DONE)
        self._first = False
        return Entry(pieces=self.pieces, headers={"Content-Type": "text/event-stream"})


@functools.cache
def _server() -> _Server:
    return _Server()


def run_bytes(given: dict[str, Any]) -> Seen:
    """Send the bytes to a session."""
    seen, server = Seen(), _server()
    server.begin(write_events(given))
    keywords: dict[str, Any] = {
        "api_base": server.server.base_url,
        "api_key": "sk-none",
        "tools": counting_tools(seen),
    }
    options = ToolLoopOptions(completion_kwargs={"max_retries": 0})
    watch(seen, "openai/stub", options=options, **keywords)
    if (
        seen.results
        and given["finish"]
        and given["lost"] is None
        and not given["junk"]
        and "means" in given["message"]
    ):
        expect(seen, given["message"]["means"])
    return seen


BYTES = Seam(
    "bytes",
    "server-sent events through LiteLLM's client",
    INPUTS,
    run_bytes,
    share=3,
    quick=30,
    needs_litellm=True,
)
