"""Everything that can go wrong between us and a provider."""

from __future__ import annotations

from support.servers import Entry, answer, failure

from .case import DONE, KEY, Case, Like, Message, events, ran, refused, say, tool, unfinished

F1 = ran("c1", "f", '{"a":1}', "f(1)")
CALL = Message(None, (F1,))
CALLING = Entry(chunks=[tool(0, "c1", "f", '{"a":1}')])
HALF = [say("I will "), say("look"), tool(0, "c1", "f", '{"a"')]


def fails(name, script, error, right=(), source="", **more):
    """Return a case whose run ends in an error. `right`: the messages that came before it."""
    more.setdefault("asked", bool(right))
    return Case(name, script, right, source, stop="runtime_error", error=error, **more)


def once(**more):
    """Options for exactly one request: neither LiteLLM nor the provider's client tries again."""
    return {"max_retries": 0, "num_retries": 0, **more}


FAILURES = [
    # --- refused before the first byte ----------------------------------------------------------------------
    fails(
        "401",
        [failure(401, f"Incorrect API key provided: {KEY}.")],
        "AuthenticationError.*OPENAI_API_KEY",
        options=once(),
    ),
    fails("403", [failure(403)], "PermissionDeniedError.*may not use 'openai/stub'", options=once()),
    fails(
        "404",
        [failure(404, "The model `stub` does not exist")],
        "NotFoundError.*check the name",
        options=once(),
    ),
    fails(
        "429",
        [failure(429, "slow down")],
        r"RateLimitError.*completion_kwargs=\{'num_retries': 2\}",
        options=once(),
    ),
    Case(
        "429 with Retry-After, then an answer",
        [failure(429, "slow down", headers={"retry-after": "0"}), answer("Hi")],
        [Message("Hi")],
        options={"num_retries": 2},
        requests=2,
        events=[("retry", 1, ""), ("text", "Hi")],
    ),
    fails(
        "500", [failure(500)], r"InternalServerError.*completion_kwargs=\{'num_retries': 2\}", options=once()
    ),
    Case(
        "500, then an answer",
        [failure(500), answer("Hi")],
        [Message("Hi")],
        options={"num_retries": 2},
        requests=2,
        events=[("retry", 1, ""), ("text", "Hi")],
    ),
    Case(
        "500, 429, cut, then an answer",
        [
            failure(500),
            failure(429, headers={"retry-after": "0"}),
            Entry(content="Hi there", drop_after=2),
            answer("Hi there"),
        ],
        [Message("Hi there")],
        options={"num_retries": 3},
        requests=4,
        events=[("retry", 1, ""), ("retry", 2, ""), ("text", "Hi "), ("retry", 3, ""), ("text", "there")],
    ),
    fails(
        "a refused request is not tried again",
        [failure(400, "no")],
        "BadRequestError",
        options={"num_retries": 3},
        requests=1,
    ),
    fails(
        "a refused key is not tried again",
        [failure(401, "no")],
        "AuthenticationError",
        options={"num_retries": 3},
        requests=1,
    ),
    Case(
        "a connection refused at once, then an answer",
        [Entry(raw=b"", status=502), answer("Hi")],
        [Message("Hi")],
        options={"num_retries": 1},
        requests=2,
        events=[("retry", 1, ""), ("text", "Hi")],
    ),
    fails("503", [failure(503)], "ServiceUnavailableError", options=once()),
    fails(
        "a timeout", [answer("late", stall=3)], "Timeout.*did not answer in time", options=once(timeout=0.3)
    ),
    fails(
        "context window",
        [failure(400, "This model's maximum context length is 4096 tokens.")],
        "ContextWindowExceededError.*too long for this model",
        options=once(),
    ),
    fails(
        "content filter refuses the prompt",
        [
            Entry(
                status=400,
                body={
                    "error": {
                        "message": "The response was filtered due to the prompt triggering content management policy",
                        "code": "content_filter",
                    }
                },
            )
        ],
        "content filter refused the request: rephrase",
        options=once(),
    ),
    fails(
        "an HTML page",
        [Entry(raw="<html>login</html>", headers={"Content-Type": "text/html"})],
        "no answer at all.*api_base",
        options=once(),
    ),
    fails("429 after a tool", [CALLING, failure(429, "slow down")], "RateLimitError", [CALL], options=once()),
    # --- broken in the middle -------------------------------------------------------------------------------
    fails(
        "cut in the middle of the text",
        [Entry(content="I will look", drop_after=2)],
        "connection broke in the middle",
        [Message("I ")],
    ),
    fails("cut before the first delta", [Entry(content="x", drop_after=0)], "", options=once()),
    fails(
        "cut in the middle of a call, text before it",
        [Entry(chunks=HALF, drop_after=3)],
        "connection broke in the middle",
        [Message("I will look")],
        "C60",
        runs=(),
    ),
    fails(
        "an error event in the middle of a call",
        [
            Entry(
                chunks=[
                    *HALF,
                    '{"error":{"message":"overloaded sk-live-0123456789abcdef","type":"server_error","code":500}}',
                ]
            )
        ],
        "connection broke.*overloaded",
        [Message("I will look")],
        "C60",
        runs=(),
    ),
    fails(
        "an event that is no JSON",
        [Entry(chunks=[say("Hm"), "{not json"])],
        "connection broke",
        [Message("Hm")],
    ),
    fails(
        "a clean end in the middle of a call",
        [events(say("Hm"), tool(0, "c1", "f", '{"a"'))],
        "connection broke|in the middle",
        [Message("Hm")],
        runs=(),
    ),
    fails(
        "a clean end before the arguments",
        [events(tool(0, "c1", "f"))],
        "connection broke|in the middle",
        runs=(),
    ),
    fails("[DONE] before the arguments", [unfinished(tool(0, "c1", "f"))], "", runs=()),
    Case(
        "cut in mid-call on the first of two tries",
        [
            Entry(chunks=HALF, drop_after=3),
            Entry(chunks=[say("I will "), say("look."), tool(0, "c1", "f", '{"a":1}')]),
            answer("Done."),
        ],
        [Message("I will look.", (F1,)), DONE],
        "C60",
        options={"num_retries": 2},
        requests=3,
        runs=("f(1)",),
        events=[
            ("text", "I will look"),
            ("retry", 1, ""),
            ("text", "."),
            ("call", "f", {"a": 1}),
            ("result", False, "f(1)"),
            ("text", "Done."),
        ],
    ),
    Case(
        "the second try says something else",
        [
            Entry(chunks=HALF, drop_after=3),
            Entry(chunks=[say("I can"), tool(0, "c1", "f", '{"a":1}')]),
            answer("Done."),
        ],
        [Message("I can", (F1,)), DONE],
        options={"num_retries": 1},
        events=[
            ("text", "I will look"),
            ("retry", 1, ""),
            ("retry", 0, "I will look"),
            ("text", "I can"),
            ("call", "f", {"a": 1}),
            ("result", False, "f(1)"),
            ("text", "Done."),
        ],
    ),
    Case(
        "the second try says less",
        [
            Entry(chunks=HALF, drop_after=3),
            Entry(chunks=[say("I will"), tool(0, "c1", "f", '{"a":1}')]),
            answer("Done."),
        ],
        [Message("I will", (F1,)), DONE],
        options={"num_retries": 1},
        events=[
            ("text", "I will look"),
            ("retry", 1, ""),
            ("retry", 0, "I will look"),
            ("text", "I will"),
            ("call", "f", {"a": 1}),
            ("result", False, "f(1)"),
            ("text", "Done."),
        ],
    ),
    Case(
        "the second try has no text",
        [Entry(chunks=HALF, drop_after=3), Entry(chunks=[tool(0, "c1", "f", '{"a":1}')]), answer("Done.")],
        [CALL, DONE],
        options={"num_retries": 1},
        events=[
            ("text", "I will look"),
            ("retry", 1, ""),
            ("retry", 0, "I will look"),
            ("call", "f", {"a": 1}),
            ("result", False, "f(1)"),
            ("text", "Done."),
        ],
    ),
    fails(
        "cut on every try",
        [Entry(chunks=HALF, drop_after=3)] * 2 + [Entry(chunks=[say("I ")], drop_after=1)],
        "connection broke",
        [Message("I will look")],
        options={"num_retries": 2},
        requests=3,
        runs=(),
        events=[("text", "I will look"), ("retry", 1, ""), ("retry", 2, "")],
    ),
    Case(
        "cut before the first delta, then an answer",
        [Entry(content="x", drop_after=0), answer("Hi")],
        [Message("Hi")],
        options={"num_retries": 1, "max_retries": 0},
        requests=2,
        events=[("retry", 1, ""), ("text", "Hi")],
    ),
    Case(
        "reasoning shown once",
        [
            Entry(chunks=[{"reasoning_content": "hm"}, say("A")], drop_after=2),
            Entry(reasoning="hm", content="A b"),
        ],
        [Message("A b", reasoning="hm")],
        options={"num_retries": 1},
        events=[("reasoning", "hm"), ("text", "A"), ("retry", 1, ""), ("text", " b")],
    ),
    # --- answers that are none ------------------------------------------------------------------------------
    fails("an empty answer", [Entry(content="")], "empty answer .finish_reason 'stop'"),
    fails("only blanks", [Entry(content="\n \n")], "empty answer", events=[("text", "\n \n")]),
    fails("nothing before the token limit", [Entry(content="", finish="length")], "token limit was reached"),
    fails("content filter, no text", [Entry(content="", finish="content_filter")], "content filter stopped"),
    fails(
        "content filter in the text",
        [Entry(content="Well,", finish="content_filter")],
        "content filter stopped",
        [Message("Well,")],
    ),
    Case(
        "an empty answer after a tool",
        [CALLING, Entry(content="")],
        [CALL],
        text="",
        error="sent no text after its tool calls",
    ),
    fails(
        "content filter after a tool",
        [CALLING, Entry(content="", finish="content_filter")],
        "content filter stopped",
        [CALL],
    ),
    Case(
        "content filter in the middle of a call",
        [Entry(chunks=[tool(0, "c1", "f", '{"a":1}')], finish="content_filter"), answer("Done.")],
        [
            Message(None, (refused("c1", "f", '{"a":1}', Like("cut off .finish_reason 'content_filter'")),)),
            DONE,
        ],
    ),
    fails(
        "no choices",
        [
            Entry(
                chunks=[
                    {"choices": [], "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
                ]
            )
        ],
        "empty answer",
    ),
    fails(
        "no choices, not streamed",
        [Entry(body={"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []})],
        "",
        options={"stream": False, **once()},
    ),
    fails("not streamed, empty", [Entry(content="")], "empty answer", options={"stream": False}),
    fails("finish reason 'error'", [Entry(content="Hm", finish="error")], "", [Message("Hm")]),
]
