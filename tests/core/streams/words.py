"""Streams of text, reasoning and usage, without calls."""

from __future__ import annotations

from support.servers import Entry

from .case import Case, Message, raw_chunk, say, telling, whole

WORDS = [
    telling("plain text", [say("Hel"), say("lo.")], "Hello.", usage=(10, 5)),
    telling("empty deltas between", [say(""), {}, say("Hi"), say(""), {"content": None}], "Hi"),
    telling(
        "role in each delta",
        [{"role": "assistant", "content": "H"}, {"role": "assistant", "content": "i"}],
        "Hi",
    ),
    telling("a null delta", [raw_chunk({"index": 0, "delta": None, "finish_reason": None}), say("Hi")], "Hi"),
    telling(
        "usage in a chunk without choices",
        [say("hi"), raw_chunk(usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})],
        "hi",
        "C55",
    ),
    Case(
        "usage in the last chunk",
        [
            Entry(
                chunks=[
                    say("hi"),
                    raw_chunk(
                        {"index": 0, "delta": {}, "finish_reason": "stop"},
                        usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
                    ),
                ],
                usage=None,
            )
        ],
        [Message("hi")],
        usage=(1, 2),
    ),
    Case("no usage at all", [Entry(content="hi", usage=None)], [Message("hi")]),
    telling(
        "several choices",
        [
            raw_chunk(
                {"index": 0, "delta": say("A"), "finish_reason": None},
                {"index": 1, "delta": say("B"), "finish_reason": None},
            )
        ],
        "A",
    ),
    telling(
        "only the second choice has text in a chunk",
        [say("A"), raw_chunk({"index": 1, "delta": say("B")})],
        "A",
    ),
    telling("reasoning_content", [{"reasoning_content": "hm"}, say("Hi")], "Hi", "C59", reasoning="hm"),
    telling("reasoning as other servers name it", [{"reasoning": "hm"}, say("Hi")], "Hi", reasoning="hm"),
    telling(
        "an emoji cut in two",
        [
            r"""{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a\ud83d"}}]}""",
            r"""{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"\ude00b"}}]}""",
        ],
        "a😀b",
    ),
    telling("a refusal", [{"refusal": "I can"}, {"refusal": "not."}], "I cannot."),
    telling(
        "text cut off by the token limit",
        [say("Half an ans")],
        "Half an ans",
        finish="length",
        error="cut off by the token limit",
    ),
    telling("html and markdown stay as they are", [say("<b>x</b> **y** {z}")], "<b>x</b> **y** {z}", "C125"),
    Case(
        "text not streamed",
        [Entry(content="Hello.")],
        [Message("Hello.")],
        options={"stream": False},
        usage=(10, 5),
    ),
    Case(
        "a refusal not streamed",
        [whole({"content": None, "refusal": "I cannot."})],
        [Message("I cannot.")],
        options={"stream": False},
    ),
    Case(
        "reasoning not streamed",
        [Entry(content="Hi", reasoning="hm")],
        [Message("Hi", reasoning="hm")],
        options={"stream": False},
    ),
]
