"""The scripted server answers as its script says, and keeps the requests."""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import socket
import time
from urllib.parse import urlsplit

import pytest

from support.servers import ScriptedServer, answer, calls, failure

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def connect(server, timeout=10):
    return http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=timeout)


def post(server, body=QUESTION, headers=None, connection=None):
    connection = connection or connect(server)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers or {})
    reply = connection.getresponse()
    return reply, reply.read()


def events(data):
    lines = [line[6:] for line in data.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_whole_answer():
    """Without "stream", an entry is sent as one chat completion with usage."""
    with ScriptedServer([answer("Hello there", reasoning="hm")]) as server:
        body = json.loads(post(server)[1])
    message = body["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Hello there", "hm")
    assert body["usage"]["total_tokens"] == 15
    assert body["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("asked", [True, False])
def test_streamed_answer(asked):
    """The pieces of a stream join to the text and the arguments. The usage is sent only if the request asks for it."""
    arguments = {"query": "größe", "n": 12345}
    script = [calls(("f", arguments), ("g", {}), content="Let me  look")]
    options = {"stream_options": {"include_usage": True}} if asked else {}
    with ScriptedServer(script) as server:
        chunks = events(post(server, {**QUESTION, "stream": True, **options})[1])
    pieces = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
    assert "".join(p.get("content") or "" for p in pieces) == "Let me  look"
    sent = [call for p in pieces for call in p.get("tool_calls", [])]
    assert [call["function"]["name"] for call in sent if "id" in call] == ["f", "g"]
    assert json.loads("".join(c["function"]["arguments"] for c in sent if c["index"] == 0)) == arguments
    assert chunks[-1 - asked]["choices"][0]["finish_reason"] == "tool_calls"
    assert ("usage" in chunks[-1]) is asked


def test_raw_chunks_and_finish():
    """`chunks` are sent unchanged: deltas, whole chunks, and text that is not JSON."""
    script = [
        {"chunks": [{"content": "a", "odd": 1}, {"choices": [], "x": 2}, "{broken"], "finish": "length"}
    ]
    with ScriptedServer(script) as server:
        text = post(server, {**QUESTION, "stream": True})[1].decode()
    assert '"delta": {"content": "a", "odd": 1}' in text
    assert 'data: {"choices": [], "x": 2}\n\n' in text
    assert "data: {broken\n\n" in text
    assert '"finish_reason": "length"' in text


def test_status_headers_and_raw():
    """Errors have their status and headers, even for a request for a stream. `raw` is the body itself."""
    script = [
        failure(429, "slow down", headers={"retry-after": "7"}),
        {"raw": "<html>", "status": 502, "headers": {"Content-Type": "text/html"}},
        {"body": {"any": "thing"}},
    ]
    with ScriptedServer(script) as server:
        first, body = post(server, {**QUESTION, "stream": True})
        assert (first.status, first.headers["retry-after"]) == (429, "7")
        assert json.loads(body)["error"]["message"] == "slow down"
        second, body = post(server)
        assert (second.status, second.headers["content-type"], body) == (502, "text/html", b"<html>")
        assert json.loads(post(server)[1]) == {"any": "thing"}


def test_requests_are_kept():
    """The path, the lower-case headers and the parsed body of each request are kept in order, over one connection."""
    with ScriptedServer([answer("1"), answer("2")]) as server:
        connection = connect(server)
        answers = []
        for n in range(3):
            _, data = post(server, {**QUESTION, "tools": [{"n": n}]}, {"X-Tag": "a, b"}, connection)
            answers.append(json.loads(data)["choices"][0]["message"]["content"])
        received = server.wait_for_requests(3)
    assert answers == ["1", "2", "2"]
    assert [r.tools for r in received] == [[{"n": 0}], [{"n": 1}], [{"n": 2}]]
    assert received[0].headers["x-tag"] == "a, b"
    assert received[0].messages == QUESTION["messages"]
    assert received[0].path == "/v1/chat/completions"
    assert all(r.completed for r in received)


def test_script_may_be_a_function_or_hold_functions():
    """If a script or an entry is a function, it gets the request and returns the entry."""
    with ScriptedServer(lambda request: answer(request.messages[-1]["content"] * 2)) as server:
        assert b'"HiHi"' in post(server)[1]
    with ScriptedServer([lambda request: answer(request.path)]) as server:
        assert b'"/v1/chat/completions"' in post(server)[1]


def test_script_mistakes_fail_the_test():
    """If a request comes after the end of a strict script, or if an entry raises an error, the answer is 500, and stop()
    reports it.
    """
    server = ScriptedServer([answer("only one")], repeat_last=False)
    server.start()
    post(server)
    assert post(server)[0].status == 500
    with pytest.raises(AssertionError, match="only 1 entries"):
        server.stop()
    server = ScriptedServer([{"chunks": []}])
    server.start()
    assert post(server)[0].status == 500
    with pytest.raises(AssertionError, match="answers a stream only"):
        server.stop()


def test_other_methods_do_not_take_from_the_script():
    """A GET is recorded and answered with 404."""
    with ScriptedServer([answer("Hello")], repeat_last=False) as server:
        connection = connect(server)
        connection.request("GET", "/v1/models")
        reply = connection.getresponse()
        reply.read()
        assert reply.status == 404
        assert b"Hello" in post(server)[1]
    assert [r.method for r in server.requests] == ["GET", "POST"]


def test_drop_after_cuts_the_connection():
    """`drop_after` ends the stream in the middle, without its last chunk."""
    with ScriptedServer([answer("one two three", drop_after=2)]) as server:
        connection = connect(server)
        connection.request("POST", "/v1/chat/completions", json.dumps({**QUESTION, "stream": True}))
        with pytest.raises((http.client.IncompleteRead, ConnectionError)) as caught:
            connection.getresponse().read()
        partial = getattr(caught.value, "partial", b"")
    assert b"[DONE]" not in partial
    assert not server.requests[0].completed
    assert not server.requests[0].abandoned


def test_stall_and_delay_take_their_time():
    """`stall` comes before the first byte, `delay` after each chunk."""
    with ScriptedServer([answer("a b c", stall=0.2, delay=0.05)]) as server:
        connection = connect(server)
        began = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps({**QUESTION, "stream": True}))
        reply = connection.getresponse()
        headed = time.monotonic() - began
        reply.read()
        ended = time.monotonic() - began
    assert headed >= 0.2
    assert ended - headed >= 0.15


def test_hold_waits_for_release():
    """A held stream sends its first pieces, and then nothing until `release()`."""
    with ScriptedServer([answer("first second", hold_after=2)]) as server:
        connection = connect(server)
        connection.request("POST", "/v1/chat/completions", json.dumps({**QUESTION, "stream": True}))
        reply = connection.getresponse()
        seen = b""
        while b"first" not in seen:
            seen += reply.read1()
        ready, _, _ = select.select([connection.sock or reply.fp], [], [], 0.2)
        assert not ready
        server.release()
        assert b"second" in seen + reply.read()


def test_a_client_that_leaves_is_seen():
    """If a client closes the connection during a stall, its request is marked as abandoned at once."""
    with ScriptedServer([answer("late", stall=60)]) as server:
        connection = connect(server)
        connection.request("POST", "/v1/chat/completions", json.dumps(QUESTION))
        server.wait_for_requests(1)
        connection.close()
        deadline = time.monotonic() + 5
        while not server.requests[0].abandoned and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.requests[0].abandoned


def test_stop_ends_stalled_streams_and_frees_the_port():
    """stop() does not wait for a stalled answer. Afterwards, nobody listens on the port."""
    server = ScriptedServer([answer("never", stall=600)])
    server.start()
    connection = connect(server)
    connection.request("POST", "/v1/chat/completions", json.dumps(QUESTION))
    server.wait_for_requests(1)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 5
    address = urlsplit(server.base_url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=5).close()


async def test_serves_the_loop_it_is_used_from():
    """The server has its own thread. So coroutines of the test's loop can talk to it, many at the same time."""
    with ScriptedServer(lambda request: answer(request.messages[-1]["content"])) as server:
        asked = [
            asyncio.to_thread(post, server, {**QUESTION, "messages": [{"content": str(n)}]})
            for n in range(20)
        ]
        replies = await asyncio.gather(*asked)
    texts = [json.loads(data)["choices"][0]["message"]["content"] for _, data in replies]
    assert texts == [str(n) for n in range(20)]


def test_wait_for_requests_times_out():
    """A wait for a request that never comes raises an error that says how many came."""
    with ScriptedServer([answer("x")]) as server, pytest.raises(TimeoutError, match="0 of 1 requests"):
        server.wait_for_requests(1, timeout=0.05)
