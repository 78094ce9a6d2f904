"""Streams of text, reasoning and usage, without calls."""

from __future__ import annotations

from support.servers import Entry

from .case import Case, Message, calling, ran, raw_chunk, say, telling, tool, whole

THOUGHT = "<think>\nplan\n</think>\n\nThe answer is 3."

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
    telling("a refusal before the text", [{"refusal": "I can"}, {"content": "Hello."}], "Hello."),
    telling("a refusal", [{"refusal": "I can"}, {"refusal": "not."}], "I cannot."),
    telling(
        "text cut off by the token limit",
        [say("Half an ans")],
        "Half an ans",
        finish="length",
        error="cut off by the token limit",
    ),
    telling("html and markdown stay as they are", [say("<b>x</b> **y** {z}")], "<b>x</b> **y** {z}", "C125"),
    # --- a thought in tags, as LiteLLM reads it of whole responses ------------------------------------------
    *(
        telling(name, pieces, "\n\nThe answer is 3.", reasoning="\nplan\n")
        for name, pieces in (
            ("a tagged thought", [say(THOUGHT)]),
            ("a tagged thought, a character at a time", [say(character) for character in THOUGHT]),
            (
                "a tagged thought, cut in its tags",
                [say("<thi"), say("nk>\nplan\n</th"), say("ink>\n\nThe answer is 3.")],
            ),
        )
    ),
    Case(
        "a tagged thought, not streamed",
        [Entry(content=THOUGHT)],
        [Message("\n\nThe answer is 3.", reasoning="\nplan\n")],
        options={"stream": False},
    ),
    telling("an empty tagged thought", [say("<think>"), say("</think>"), say("Hi")], "Hi"),
    telling(
        "a tag later in the answer is text", [say("Use "), say("<think>x</think>.")], "Use <think>x</think>."
    ),
    telling("a tag behind a blank is text", [say(" <think>x</think>.")], " <think>x</think>."),
    telling("what only looks like a tag is text", [say("<thi"), say("s> is it")], "<this> is it"),
    telling("an answer that ends as a tag begins", [say("<"), say("think")], "<think"),
    telling(
        "tags beside a field for reasoning are text",
        [{"reasoning_content": "hm"}, say("<think>x</think>Hi")],
        "<think>x</think>Hi",
        reasoning="hm",
    ),
    telling(
        "a thought that nobody closed is text at the end",
        [say("<think>pl"), say("an</th")],
        "<think>plan</th",
        events=[("reasoning", "plan"), ("text", "<think>plan</th")],
    ),
    Case(
        "a thought that nobody closed, not streamed",
        [Entry(content="<think>plan</th")],
        [Message("<think>plan</th")],
        options={"stream": False},
    ),
    calling(
        "a tagged thought before a call",
        [say("<think>plan</think>"), tool(0, "c1", "f", '{"a":1}')],
        Message(None, (ran("c1", "f", '{"a":1}', "f(1)"),), reasoning="plan"),
    ),
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
