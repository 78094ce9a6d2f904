"""Answers in Anthropic's and Gemini's own protocols, for a ScriptedServer. LiteLLM converts them."""

from __future__ import annotations

import json

from .servers import Entry


def sse(*events, named=True):
    """Return an entry with these events, as a server sends them."""
    lines = (f"event: {e['type']}\n" if named else "" for e in events)
    text = "".join(f"{line}data: {json.dumps(e)}\n\n" for line, e in zip(lines, events, strict=True))
    return Entry(raw=text, headers={"Content-Type": "text/event-stream"})


def anthropic_head(usage):
    """Return the message of Anthropic's `message_start`, which has no content yet."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": usage,
    }


def anthropic(*blocks, stop="end_turn", usage=None):
    """Return a message in Anthropic's events. A block is (its start, its deltas). `usage` is added to the usage of its beginning."""
    usage = {"input_tokens": 10, "output_tokens": 1, **(usage or {})}
    events = [
        {
            "type": "message_start",
            "message": {**anthropic_head(usage), "stop_reason": None, "stop_sequence": None},
        }
    ]
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 9},
        }
    )
    return sse(*events, {"type": "message_stop"})


def thinking(text, signature):
    """Return a block of thoughts. | divides it into pieces."""
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in text.split("|")]
    return {"type": "thinking", "thinking": ""}, [
        *deltas,
        {"type": "signature_delta", "signature": signature},
    ]


def words(text):
    """Return a block of text. | divides it into pieces."""
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in text.split("|")]


def use(call_id, name, *pieces):
    """Return a block that calls a tool, with the arguments in pieces."""
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas


def gemini(*parts, finish="STOP", usage=None):
    """Return an answer in Gemini's events."""
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15, **(usage or {})}
    chunks = [{"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts]
    chunks.append(
        {
            "candidates": [{"content": {"role": "model", "parts": []}, "finishReason": finish, "index": 0}],
            "usageMetadata": usage,
        }
    )
    return sse(*chunks, named=False)
