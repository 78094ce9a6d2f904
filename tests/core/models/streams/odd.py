"""Streams that break a rule of OpenAI's format: wrong types, half characters, the same id for all calls, no stream at all."""

from __future__ import annotations

import json
from typing import Any

from support.servers import Entry, answer

from .case import (
    DONE,
    NEW,
    Case,
    Message,
    both,
    calling,
    frag,
    ran,
    raw_chunk,
    refused,
    say,
    telling,
    tool,
    whole,
)

F1 = ran("c1", "f", '{"a":1}', "f(1)")
F2 = ran(NEW, "f", '{"a":2}', "f(2)")
G2 = ran(NEW, "g", '{"b":2}', "g(2)")
F0 = ran("c1", "f", "{}", "f(0)")


def escaped(delta: dict[str, Any]) -> str:
    """Return a chunk as JSON text with escapes: the server's encoder would refuse half of a surrogate pair."""
    return json.dumps(raw_chunk({"index": 0, "delta": delta}))


def one_piece(entry: Entry) -> list[Entry]:
    """Return the answer of a server that cannot stream: it sends one JSON document, even if the request asks for a stream."""
    return [entry, entry]


WHOLE_CALL = {
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}

ODD = [
    # --- one id for all calls -------------------------------------------------------------------------------
    calling(
        "one id for two calls, their arguments later",
        [
            both(frag(0, "c1", "f"), frag(1, "c1", "g")),
            tool(0, args='{"a":1}'),
            tool(1, args='{"b":2}'),
        ],
        Message(None, (F1, G2)),
    ),
    calling(
        "one id in every fragment of two calls",
        [
            tool(0, "c1", "f", '{"a":'),
            tool(1, "c1", "g", '{"b":'),
            tool(0, "c1", None, "1}"),
            tool(1, "c1", None, "2}"),
        ],
        Message(None, (F1, G2)),
    ),
    calling(
        "one id for two interleaved calls of one tool",
        [tool(0, "c1", "f", '{"a":'), tool(1, "c1", "f", '{"a":'), tool(0, args="1}"), tool(1, args="2}")],
        Message(None, (F1, F2)),
    ),
    calling(
        "a whole call sent again at another index runs once",
        [tool(0, "c1", "f", '{"a":1}'), tool(1, "c1", "f", '{"a":1}')],
        Message(None, (F1,)),
    ),
    # --- types ----------------------------------------------------------------------------------------------
    calling(
        "ids that are numbers",
        [tool(0, 7, "f", '{"a":'), tool(0, 7, None, "1}"), tool(1, 8, "g", '{"b":2}')],
        Message(None, (ran("7", "f", '{"a":1}', "f(1)"), ran("8", "g", '{"b":2}', "g(2)"))),
    ),
    Case(
        "an id that is a number, not streamed",
        [
            whole(
                {"tool_calls": [{"id": 7, "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                "tool_calls",
            ),
            whole({"content": "Done."}),
            whole({"content": "Next."}),
        ],
        [Message(None, (ran("7", "f", "{}", "f(0)"),)), DONE],
        options={"stream": False},
    ),
    calling(
        "arguments that are a number",
        [tool(0, "c1", "f", 5)],
        Message(
            None, (refused("c1", "f", "{}", "arguments must be a JSON object, got number: 5; f was not run"),)
        ),
    ),
    telling(
        "content in parts",
        [{"content": [{"type": "text", "text": "pa"}, {"type": "text", "text": "rt"}]}],
        "part",
    ),
    telling(
        "thinking in parts",
        [
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
            {"content": [{"type": "text", "text": "Hi"}]},
        ],
        "Hi",
        reasoning="hm",
    ),
    Case(
        "usage below zero",
        [
            whole({"content": "hi"}, usage={"prompt_tokens": -3, "completion_tokens": 5, "total_tokens": 2}),
            whole({"content": "Next."}),
        ],
        [Message("hi")],
        usage=(0, 5),
        options={"stream": False},
    ),
    # --- names and characters that no request can carry -----------------------------------------------------
    calling(
        "a made-up name with a dot, which OpenAI refuses in a history",
        [tool(0, "c1", "functions.f", '{"a":1}')],
        Message(
            None,
            (
                refused(
                    "c1", "functions_f", '{"a":1}', "unknown tool 'functions_f'; available: f, g, read_file"
                ),
            ),
        ),
    ),
    telling(
        "an emoji of the reasoning cut in two",
        [escaped({"reasoning_content": "a\ud83d"}), escaped({"reasoning_content": "\ude00b"}), say("Hi")],
        "Hi",
        reasoning="a😀b",
    ),
    calling(
        "half characters in an id, a signature and a provider's field",
        [
            escaped(
                {
                    "thinking_blocks": [{"type": "thinking", "thinking": "t\ud83d", "signature": "s"}],
                    "provider_specific_fields": {"k": "v\ud83d"},
                }
            ),
            escaped(tool(0, "c\ud83d", "f", "{}")),
        ],
        Message(
            None,
            (ran("c�", "f", "{}", "f(0)"),),
            {
                "thinking_blocks": [{"type": "thinking", "thinking": "t�", "signature": "s"}],
                "provider_specific_fields": {"k": "v�"},
            },
        ),
    ),
    # --- no stream ------------------------------------------------------------------------------------------
    Case(
        "a server that cannot stream",
        [*one_piece(whole(WHOLE_CALL, "tool_calls")), answer("Done.")],
        [Message(None, (F0,)), DONE],
        events=[("retry", 1, ""), ("call", "f", {}), ("result", False, "f(0)"), ("text", "Done.")],
        requests=3,
    ),
    Case(
        "an error with status 200",
        one_piece(Entry(body={"error": {"message": "model is overloaded", "code": 503}})),
        [],
        stop="runtime_error",
        error="model is overloaded",
        events=[("retry", 1, "")],
        asked=False,
        options={"num_retries": 0},
    ),
]
