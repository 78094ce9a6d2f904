"""Streams with tool calls, in every form that providers have been seen to send."""

from __future__ import annotations

from support.servers import Entry, answer

from .case import (
    DONE,
    NEW,
    Case,
    Like,
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
    unfinished,
    whole,
)

F1 = ran("c1", "f", '{"a":1}', "f(1)")
G2 = ran("c2", "g", '{"b":2}', "g(2)")
LIKE = {"index": 0, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
F0 = ran("c1", "f", "{}", "f(0)")


def one(want, text=None, **extra):
    return Message(text, (want,), extra)


def two(*wants, text=None):
    return Message(text, wants)


def old(name, arguments):
    """Return a delta in OpenAI's old form."""
    return {"function_call": {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}}


def twice(name, arguments, call_id=None, index=0):
    """Return a delta that has a fragment in both forms, as llama-cpp-python sends it."""
    return {**old(name, arguments), **tool(index, call_id, name, arguments)}


CALLS = [
    # --- ids ------------------------------------------------------------------------------------------------
    calling(
        "id only in the first fragment",
        [tool(0, "c1", "f", ""), tool(0, args='{"a":'), tool(0, args="1}")],
        one(F1),
        "C45",
    ),
    calling(
        "id never sent",
        [tool(0, None, "f", '{"a":'), tool(0, args="1}")],
        one(ran(NEW, "f", '{"a":1}', "f(1)")),
        "C46",
    ),
    calling(
        "id empty",
        [tool(0, "", "f", '{"a":'), tool(0, "", args="1}")],
        one(ran(NEW, "f", '{"a":1}', "f(1)")),
        "C46",
    ),
    calling(
        "id never sent, and a call comes again at its index behind another one",
        [tool(0, None, "f", '{"a":1}'), tool(0, None, "g", '{"b":2}'), tool(0, None, "f", '{"a":1}')],
        two(ran(NEW, "f", '{"a":1}', "f(1)"), ran(NEW, "g", '{"b":2}', "g(2)")),
    ),
    calling(
        "ids never sent, calls in one delta that have one index, and all of it doubled",
        [{"tool_calls": [LIKE, {**LIKE, "function": {"name": "g", "arguments": '{"b":2}'}}]}] * 2,
        two(ran(NEW, "f", '{"a":1}', "f(1)"), ran(NEW, "g", '{"b":2}', "g(2)")),
    ),
    calling(
        "whole arguments doubled while a later call of the tool has none",
        [
            tool(0, "c1", "f"),
            tool(1, "c3", "f"),
            tool(0, args='{"a":1}'),
            tool(0, args='{"a":1}'),
            tool(1, args='{"a":3}'),
        ],
        two(F1, ran("c3", "f", '{"a":3}', "f(3)")),
    ),
    calling(
        "a call comes again with its id, behind another one that has the same id",
        [tool(0, "c1", "f", '{"a":1}'), tool(0, "c1", "g", '{"b":2}'), tool(0, "c1", "f", '{"a":1}')],
        two(F1, ran(NEW, "g", '{"b":2}', "g(2)")),
    ),
    calling(
        "id in every fragment",
        [tool(0, "c1", "f", '{"a"'), tool(0, "c1", None, ":"), tool(0, "c1", None, "1}")],
        one(F1),
    ),
    calling(
        "id only in the last fragment", [tool(0, None, "f", '{"a":'), tool(0, "c1", None, "1}")], one(F1)
    ),
    calling(
        "another id in each fragment",
        [tool(0, "c1", "f", '{"a"'), tool(0, "x2", None, ":"), tool(0, "x3", None, "1}")],
        one(F1),
    ),
    calling(
        "another id and the name in each fragment",
        [tool(0, "c1", "f", '{"a"'), tool(0, "x2", "f", ":"), tool(0, "x3", "f", "1}")],
        one(F1),
    ),
    calling(
        "one id for two calls at two indexes",
        [tool(0, "c1", "f", '{"a":1}'), tool(1, "c1", "g", '{"b":2}')],
        two(F1, ran(NEW, "g", '{"b":2}', "g(2)")),
    ),
    Case(
        "an id of the first step again in the second",
        [
            Entry(chunks=[tool(0, "c1", "f", '{"a":1}')]),
            Entry(chunks=[tool(0, "c1", "g", '{"b":2}')]),
            answer("Done."),
        ],
        [one(F1), one(ran(NEW, "g", '{"b":2}', "g(2)")), DONE],
    ),
    # --- indexes --------------------------------------------------------------------------------------------
    calling(
        "same index, different ids",
        [tool(0, "c1", "f", '{"a":1}'), tool(0, "c2", "g", '{"b":2}')],
        two(F1, G2),
        "C48",
    ),
    calling(
        "same index, different ids, no arguments yet",
        [
            tool(0, "c1", "f", ""),
            tool(0, "c2", "g", ""),
            tool(0, "c1", None, '{"a":1}'),
            tool(0, "c2", None, '{"b":2}'),
        ],
        two(F1, G2),
        "C48",
    ),
    calling(
        "no index, two calls in one delta",
        [both(frag(None, "c1", "f", '{"a":1}'), frag(None, "c2", "g", '{"b":2}'))],
        two(F1, G2),
    ),
    calling(
        "no index, two calls in two deltas",
        [tool(None, "c1", "f", '{"a":1}'), tool(None, "c2", "g", '{"b":2}')],
        two(F1, G2),
    ),
    calling(
        "no index and no ids",
        [tool(None, None, "f", '{"a":1}'), tool(None, None, "g", '{"b":2}')],
        two(ran(NEW, "f", '{"a":1}', "f(1)"), ran(NEW, "g", '{"b":2}', "g(2)")),
    ),
    calling(
        "no index after the first fragment of the second call",
        [
            tool(0, "c1", "f", '{"a":1}'),
            tool(1, "c2", "g", ""),
            tool(None, args='{"b":'),
            tool(None, args="2}"),
        ],
        two(F1, G2),
    ),
    calling(
        "an index of its own for every fragment",
        [tool(0, "c1", "f", ""), tool(1, args='{"a":'), tool(2, args="1}")],
        one(F1),
    ),
    calling(
        "indexes that begin at 1", [tool(1, "c1", "f", '{"a":1}'), tool(2, "c2", "g", '{"b":2}')], two(F1, G2)
    ),
    calling(
        "indexes with a gap", [tool(0, "c1", "f", '{"a":1}'), tool(7, "c2", "g", '{"b":2}')], two(F1, G2)
    ),
    calling("index as text", [{"tool_calls": [{**frag(None, "c1", "f", '{"a":1}'), "index": "0"}]}], one(F1)),
    calling(
        "two calls interleaved",
        [
            tool(0, "c1", "f", ""),
            tool(1, "c2", "g", ""),
            tool(0, args='{"a"'),
            tool(1, args='{"b"'),
            both(frag(0, args=":1}"), frag(1, args=":2}")),
        ],
        two(F1, G2),
    ),
    calling(
        "two calls interleaved by id at one index",
        [
            tool(0, "c1", "f", '{"a"'),
            tool(0, "c2", "g", '{"b"'),
            tool(0, "c1", None, ":1}"),
            tool(0, "c2", None, ":2}"),
        ],
        two(F1, G2),
    ),
    calling(
        "the second call first",
        [tool(1, "c2", "g", '{"b":2}'), tool(0, "c1", "f", '{"a":1}')],
        two(G2, F1),
    ),
    # --- names ----------------------------------------------------------------------------------------------
    calling(
        "name in every fragment",
        [tool(0, "c1", "read_file", '{"path"'), tool(0, "c1", "read_file", ':"x"}')],
        one(ran("c1", "read_file", '{"path":"x"}', "<x>")),
        "C49",
    ),
    calling("name empty later", [tool(0, "c1", "f", '{"a"'), tool(0, None, "", ":1}")], one(F1), "C49"),
    calling(
        "name only in the second fragment", [tool(0, "c1"), tool(0, None, "f", '{"a":1}')], one(F1), "C49"
    ),
    calling(
        "name after the arguments began", [tool(0, "c1", None, '{"a"'), tool(0, None, "f", ":1}")], one(F1)
    ),
    calling(
        "name cut in two",
        [tool(0, "c1", "read_"), tool(0, None, "file"), tool(0, args='{"path":"x"}')],
        one(ran("c1", "read_file", '{"path":"x"}', "<x>")),
    ),
    calling(
        "name as it grows",
        [tool(0, "c1", "read_"), tool(0, "c1", "read_file"), tool(0, args='{"path":"x"}')],
        one(ran("c1", "read_file", '{"path":"x"}', "<x>")),
    ),
    calling(
        "two names without arguments, ids and indexes",
        [tool(None, None, "f"), tool(None, None, "g")],
        two(ran(NEW, "f", "{}", "f(0)"), ran(NEW, "g", "{}", "g(0)")),
    ),
    calling("blanks around a name", [tool(0, "c1", " f ", '{"a":1}')], one(F1)),
    calling(
        "a tool that there is not",
        [tool(0, "c1", "serch", "{}")],
        one(refused("c1", "serch", "{}", Like("unknown tool 'serch'; available: f, g, read_file"))),
        "C72",
    ),
    calling(
        "a call without a name",
        [tool(0, "c1", None, "{}")],
        one(refused("c1", "unnamed_tool", "{}", Like("unknown tool"))),
    ),
    # --- arguments ------------------------------------------------------------------------------------------
    calling("arguments empty", [tool(0, "c1", "f", "")], one(F0), "C29"),
    calling("arguments of blanks", [tool(0, "c1", "f", "  ")], one(F0), "C29"),
    calling("arguments absent", [tool(0, "c1", "f")], one(F0), "C29"),
    calling("arguments null", [tool(0, "c1", "f", "null")], one(F0), "C30"),
    calling(
        "arguments as an object", [tool(0, "c1", "f", {"a": 1})], one(ran("c1", "f", '{"a": 1}', "f(1)"))
    ),
    calling(
        "arguments that are a list",
        [tool(0, "c1", "f", '["oops"]')],
        one(refused("c1", "f", "{}", Like("must be a JSON object"), shown={})),
        "C31",
    ),
    calling(
        "arguments twice encoded",
        [tool(0, "c1", "f", '"{\\"a\\":1}"')],
        one(ran("c1", "f", '{"a": 1}', "f(1)")),
        "C32",
    ),
    calling(
        "arguments with a bare line break",
        [tool(0, "c1", "read_file", '{"path":"a\nb"}')],
        one(ran("c1", "read_file", '{"path": "a\\nb"}', "<a\nb>")),
    ),
    calling(
        "arguments that do not validate",
        [tool(0, "c1", "f", '{"a":"x"}')],
        one(refused("c1", "f", '{"a":"x"}', Like("a: expected an integer"))),
    ),
    calling(
        "arguments with NaN",
        [tool(0, "c1", "f", '{"a":NaN}')],
        one(refused("c1", "f", "{}", Like("NaN|finite"), shown={})),
        "C37",
    ),
    calling(
        "an integer of 4301 digits",
        [tool(0, "c1", "f", '{"a":' + "9" * 4301 + "}")],
        one(refused("c1", "f", "{}", Like("4300 digits"), shown={})),
        "C43",
    ),
    calling(
        "half a surrogate pair in the arguments",
        [tool(0, "c1", "read_file", '{"path":"\\ud83d"}')],
        one(refused("c1", "read_file", "{}", Like("surrogate"), shown={})),
    ),
    calling(
        "arguments concatenated",
        [tool(0, "c1", "f", '{"a":1}{"a":2}')],
        two(F1, ran(NEW, "f", '{"a":2}', "f(2)")),
        "C34",
    ),
    calling(
        "two whole objects on one slot",
        [tool(0, "c1", "f", '{"a":1}'), tool(0, None, None, '{"a":2}')],
        two(F1, ran(NEW, "f", '{"a":2}', "f(2)")),
        "C51",
    ),
    calling(
        "a whole call sent again",
        [tool(0, "c1", "f", '{"a":1}'), tool(0, "c1", "f", '{"a":1}')],
        one(F1),
        "C51",
    ),
    calling(
        "braces inside a text",
        [tool(0, "c1", "read_file", '{"path":"}'), tool(0, None, None, '{"}')],
        one(ran("c1", "read_file", '{"path":"}{"}', "<}{>")),
        "C51",
    ),
    calling(
        "an empty object before the arguments", [tool(0, "c1", "f", "{}"), tool(0, args='{"a":1}')], one(F1)
    ),
    calling(
        "one character at a time",
        [tool(0, "c1", "read_file", ""), *(tool(0, args=c) for c in '{"path":"ü\\"\\\\}"}')],
        one(ran("c1", "read_file", '{"path":"ü\\"\\\\}"}', '<ü"\\}>')),
    ),
    calling(
        "fifty calls",
        [tool(n, f"c{n}", "f", f'{{"a":{n}}}') for n in range(50)],
        Message(None, tuple(ran(f"c{n}", "f", f'{{"a":{n}}}', f"f({n})") for n in range(50))),
    ),
    # --- around the calls -----------------------------------------------------------------------------------
    calling(
        "text before the call, finish 'stop'",
        [say("Let me look."), tool(0, "c1", "f", "{}")],
        one(F0, "Let me look."),
        "C53",
        finish="stop",
    ),
    calling(
        "text and call in one delta",
        [{"content": "Now: ", **tool(0, "c1", "f", '{"a":1}')}],
        one(F1, "Now: "),
    ),
    calling(
        "text after the call",
        [tool(0, "c1", "f", '{"a":1}'), say("Looking.")],
        one(F1, "Looking."),
        events=[("text", "Looking."), ("call", "f", {"a": 1}), ("result", False, "f(1)"), ("text", "Done.")],
    ),
    calling(
        "blanks beside a call",
        [say("\n"), tool(0, "c1", "f", '{"a":1}')],
        one(F1),
        "C68",
        events=[("text", "\n"), ("call", "f", {"a": 1}), ("result", False, "f(1)"), ("text", "Done.")],
    ),
    calling(
        "null for no calls",
        [{"content": "Hm. ", "tool_calls": None}, {"tool_calls": []}, tool(0, "c1", "f", "{}")],
        one(F0, "Hm. "),
    ),
    calling(
        "legacy function_call",
        [{"function_call": {"name": "f", "arguments": '{"a"'}}, {"function_call": {"arguments": ":1}"}}],
        one(ran(NEW, "f", '{"a":1}', "f(1)")),
        finish="function_call",
    ),
    # --- two writings of one call: the old `function_call` beside `tool_calls` ------------------------------
    calling(
        "told twice in each delta",
        [twice("f", '{"a"', "c1"), twice("f", ":1}", "c1"), twice("f", "", "c1")],
        one(F1),
    ),
    calling("told twice, whole", [twice("f", '{"a":1}', "c1")], one(F1), finish="function_call"),
    calling(
        "told twice without an id",
        [twice("f", '{"a"'), twice("f", ":1}")],
        one(ran(NEW, "f", '{"a":1}', "f(1)")),
    ),
    calling(
        "told twice, another id in each fragment",
        [twice("f", '{"a"', "c1"), twice("f", ":1}", "x2")],
        one(F1),
    ),
    calling(
        "told twice, in turns",
        [old("f", '{"a"'), tool(0, "c1", "f", '{"a"'), old(None, ":1}"), tool(0, args=":1}")],
        one(F1),
    ),
    calling(
        "told twice, one after the other",
        [tool(0, "c1", "f", '{"a":1}'), old("f", '{"a"'), old(None, ":1}")],
        one(F1),
    ),
    calling(
        "told twice, the old field first and the whole call in a summary",
        [old("f", '{"a"'), old(None, ":1}"), tool(0, "c1", "f", '{"a":1}')],
        one(F1),
    ),
    calling(
        "told again in the old field of a summary",
        [tool(0, "c1", "f", '{"a":'), tool(0, args="1}"), old("f", '{"a": 1}')],
        one(F1),
    ),
    calling(
        "a name without arguments, and another call in the old field",
        [{**tool(0, "c1", "f"), **old("g", '{"b":2}')}],
        one(F0),
    ),
    calling(
        "arguments without a name, and another call in the old field",
        [tool(0, "c1", None, '{"a":1}'), old("f", '{"a":2}')],
        one(refused("c1", "unnamed_tool", '{"a":1}', Like("unknown tool"))),
    ),
    calling(
        "a call without a word beside two in the old field",
        [tool(0), old("f", '{"a":1}'), old("g", '{"b":2}')],
        two(ran(NEW, "f", '{"a":1}', "f(1)"), ran(NEW, "g", '{"b":2}', "g(2)")),
    ),
    calling(
        "told twice, two calls",
        [twice("f", '{"a":1}', "c1"), twice("g", '{"b":2}', "c2", 1)],
        two(F1, G2),
    ),
    calling(
        "told twice beside an empty call of the same tool",
        [both(frag(0, "c1", "f", "{}"), frag(1, "c2", "f", '{"a":2}')), old("f", '{"a":2}')],
        two(F0, ran("c2", "f", '{"a":2}', "f(2)")),
    ),
    calling(
        "two equal calls stay two",
        [tool(0, "c1", "f", '{"a":1}'), tool(1, "c2", "f", '{"a":1}')],
        two(F1, ran("c2", "f", '{"a":1}', "f(1)")),
    ),
    calling(
        "two equal calls, told once more in the old field",
        [both(frag(0, "c1", "f", '{"a":1}'), frag(1, "c2", "f", '{"a":1}')), old("f", '{"a":1}')],
        two(F1, ran("c2", "f", '{"a":1}', "f(1)")),
    ),
    telling("an old field that says nothing", [{**say("Hi"), **old("", "")}], "Hi"),
    Case(
        "not streamed, told twice",
        [whole({"content": None, **twice("f", '{"a":1}', "c1")}, "tool_calls"), answer("Done.")],
        [one(F1), DONE],
        options={"stream": False},
    ),
    calling(
        "a call in the second choice is not ours",
        [
            raw_chunk(
                {"index": 0, "delta": tool(0, "c1", "f", '{"a":1}'), "finish_reason": None},
                {"index": 1, "delta": tool(0, "c9", "g", '{"b":9}'), "finish_reason": None},
            )
        ],
        one(F1),
    ),
    calling(
        "a custom call",
        [
            {
                "tool_calls": [
                    {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "f", "input": '{"a":1}'}}
                ]
            }
        ],
        one(F1),
    ),
    Case(
        "no finish reason, calls whole",
        [unfinished(tool(0, "c1", "f", '{"a":1}')), answer("Done.")],
        [one(F1), DONE],
    ),
    Case(
        "finish reason 'length' in the middle of a call",
        [Entry(chunks=[tool(0, "c1", "read_file", '{"path":"li')], finish="length"), answer("Done.")],
        [one(refused("c1", "read_file", "{}", Like("cut off .finish_reason 'length'"), shown={})), DONE],
        "C36",
    ),
    Case(
        "finish reason 'length' after a whole call",
        [
            Entry(chunks=[tool(0, "c1", "f", '{"a":1}'), tool(1, "c2", "g", '{"b":2}')], finish="length"),
            answer("Done."),
        ],
        [two(F1, refused("c2", "g", '{"b":2}', Like("cut off"))), DONE],
        "C36",
    ),
    Case(
        "not streamed",
        [
            Entry(
                content="Now.",
                tool_calls=[
                    {"id": "c1", "name": "f", "arguments": '{"a":1}'},
                    {"id": "c2", "name": "g", "arguments": '{"b":2}'},
                ],
            ),
            answer("Done."),
        ],
        [two(F1, G2, text="Now."), DONE],
        options={"stream": False},
        usage=(20, 10),
    ),
    Case(
        "not streamed, legacy function_call",
        [whole({"content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}}), answer("Done.")],
        [one(ran(NEW, "f", '{"a":1}', "f(1)")), DONE],
        options={"stream": False},
    ),
    Case(
        "not streamed, arguments concatenated",
        [whole({"content": None, "tool_calls": [frag(None, "c1", "f", '{"a":1}{"a":2}')]}), answer("Done.")],
        [two(F1, ran(NEW, "f", '{"a":2}', "f(2)")), DONE],
        "C34",
        options={"stream": False},
    ),
    # --- what goes back ---------------------------------------------------------------------------------------
    calling(
        "thought signature of a call",
        [
            tool(0, "c1", "f", '{"a":1}', provider_specific_fields={"thought_signature": "TS1"}),
            tool(1, "c2", "g", '{"b":2}'),
        ],
        two(
            ran(
                "c1", "f", '{"a":1}', "f(1)", extra={"provider_specific_fields": {"thought_signature": "TS1"}}
            ),
            G2,
        ),
        "C58",
    ),
    calling(
        "thought signature in extra_content",
        [tool(0, "c1", "f", '{"a":1}', extra_content={"google": {"thought_signature": "TS1"}})],
        one(
            ran(
                "c1",
                "f",
                '{"a":1}',
                "f(1)",
                extra={"extra_content": {"google": {"thought_signature": "TS1"}}},
            )
        ),
    ),
    calling(
        "thinking before the call",
        [
            {"thinking_blocks": [{"type": "thinking", "thinking": "I will "}]},
            {"thinking_blocks": [{"type": "thinking", "thinking": "call."}]},
            {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "SIG1"}]},
            tool(0, "c1", "f", "{}"),
        ],
        one(F0, thinking_blocks=[{"type": "thinking", "thinking": "I will call.", "signature": "SIG1"}]),
        "C56",
    ),
    calling(
        "two thinking blocks and a redacted one",
        [
            {"thinking_blocks": [{"type": "thinking", "thinking": "A", "signature": "S1"}]},
            {"thinking_blocks": [{"type": "redacted_thinking", "data": "xx"}]},
            {"thinking_blocks": [{"type": "thinking", "thinking": "B"}]},
            {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "S2"}]},
            tool(0, "c1", "f", "{}"),
        ],
        one(
            F0,
            thinking_blocks=[
                {"type": "thinking", "thinking": "A", "signature": "S1"},
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "thinking", "thinking": "B", "signature": "S2"},
            ],
        ),
        "C56",
    ),
    calling(
        "reasoning before the call",
        [{"reasoning_content": "hmm "}, {"reasoning_content": "ok"}, tool(0, "c1", "f", "{}")],
        Message(None, (F0,), reasoning="hmm ok"),
        "C59",
    ),
]
