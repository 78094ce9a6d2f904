"""An answer may have parts that are not text. They are in the events and the history. A picture is shown; any other part is
named in one line.
"""

from __future__ import annotations

import base64

import pytest

from core.models.streams.case import say, whole
from support.servers import Entry, ScriptedServer, answer
from toolloop_jupyter import Attachment, Harness, aagent_session
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.conversation.history import place_pictures
from toolloop_jupyter.core.events.events import Text
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.core.models.assembly import Assembly
from toolloop_jupyter.notebook.live.view import CellRun
from toolloop_jupyter.notebook.transcript import steps
from toolloop_jupyter.notebook.transcript.blocks import draw_head
from toolloop_jupyter.notebook.transcript.steps import make_bundle, render, write_markdown
from toolloop_jupyter.notebook.transcript.values import draw_attachment
from toolloop_jupyter.teaching import tape
from toolloop_jupyter.teaching.scripted import ScriptedModel, deltas

PNG = base64.b64encode(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
).decode()
ADDRESS = f"data:image/png;base64,{PNG}"
IMAGE = {"type": "image_url", "image_url": {"url": ADDRESS}}
PICTURE = Attachment("picture", "image/png, 0.1 kB", ADDRESS)
CITED = {"type": "url_citation", "url_citation": {"url": "https://a.example/x", "title": "On x"}}
SOURCE = Attachment("source", "source: On x https://a.example/x")
FAR = {"type": "image_url", "image_url": {"url": "https://a.example/p.png"}}
NOT_LOADED = Attachment("picture", "picture, not loaded: https://a.example/p.png")
FILE = {"type": "file", "file": {"filename": "t.csv", "file_data": "data:text/csv;base64,YSxi"}}
TABLE = Attachment("file", "t.csv (text/csv, 0.0 kB)", "data:text/csv;base64,YSxi")


async def run(*chunks, stream=True):
    """Run a session whose model sends these deltas. Return (the result, the history, the messages of the second turn's
    request).
    """
    entry = Entry(chunks=chunks) if stream else whole({"content": None, **chunks[0]})
    with ScriptedServer([entry, answer("Next.") if stream else whole({"content": "Next."})]) as server:
        session = aagent_session(
            Harness.TOOL_LOOP,
            model="openai/stub",
            api_base=server.base_url,
            api_key="k",
            options=ToolLoopOptions(completion_kwargs={} if stream else {"stream": False}),
        )
        result = await session.arun("Draw.")
        messages = await session.history()
        following = await session.arun("And?")
        assert following.text == "Next."
        assert history.validate(await session.history()) == []
        return result, messages, server.requests[1].messages


def attached(result):
    return [event for event in result.events if isinstance(event, Attachment)]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    ("chunks", "found"),
    [
        ([{"images": [IMAGE]}], [PICTURE]),
        ([{"images": [IMAGE]}, {"images": [IMAGE]}], [PICTURE]),
        ([{"content": [IMAGE]}], [PICTURE]),
        ([{"images": [FAR]}], [NOT_LOADED]),
        ([{"annotations": [CITED]}], [SOURCE]),
        ([{"files": [FILE]}], [TABLE]),
        ([{"content": [FILE]}], [TABLE]),
        ([{"images": [{"odd": 1}]}], [Attachment("part", 'part: {"odd": 1}')]),
        (
            [
                {"audio": {"id": "a", "data": "AAAA"}},
                {"audio": {"data": "AAAA", "transcript": "Hel"}},
                {"audio": {"transcript": "lo"}},
            ],
            [Attachment("audio", "audio, 0.0 kB: Hello", "data:application/octet-stream;base64,AAAAAAAA")],
        ),
    ],
)
async def test_an_answer_of_it_alone_is_no_empty_answer(chunks, found):
    """A part that is not text is an event, alone and after text. The history says that it was there."""
    result, messages, sent = await run(*chunks)
    assert (result.stop_reason, result.error, result.text) == ("done", None, "")
    assert attached(result) == found
    assert messages[-1]["content"] == f"[{found[0].name}]"
    assert sent[1] == {"role": "assistant", "content": f"[{found[0].name}]"}
    result, messages, sent = await run(say("Here: "), *chunks)
    assert (attached(result), result.text, messages[-1]["content"]) == (found, "Here: ", "Here: ")


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"images": [IMAGE]}, [PICTURE]),
        ({"annotations": [CITED]}, [SOURCE]),
        ({"files": [FILE]}, [TABLE]),
        ({"content": "", "images": [FAR], "annotations": [CITED]}, [NOT_LOADED, SOURCE]),
    ],
)
async def test_the_same_without_a_stream(message, found):
    """A response that is not streamed gives the same."""
    result, messages, _ = await run(message, stream=False)
    assert (result.stop_reason, attached(result)) == ("done", found)
    assert messages[-1].get("images", []) == ([IMAGE] if PICTURE in found else [])


async def test_a_picture_is_in_the_history_and_goes_only_to_models_that_see():
    """The history has the picture. A request has it only if the model takes pictures."""
    _, messages, sent = await run({"images": [IMAGE]})
    assert messages[-1]["images"] == [IMAGE]
    assert "images" not in sent[1]
    assert place_pictures(messages, lambda: "user")[-1]["images"] == [IMAGE]


async def test_a_picture_is_shown_as_data_and_again():
    """The block has the picture's data, even when the run is shown again. It is below the text, and the export names it."""
    result, _, _ = await run(say("Here: "), {"images": [IMAGE]}, {"annotations": [CITED]})
    html = make_bundle(render(result))["text/html"]
    assert f'<img src="{ADDRESS}"' in html
    assert html.index("Here:") < html.index('<img src="data:image/png') < html.index("On x")
    assert "PNG picture" in write_markdown(result)
    assert "On x" in write_markdown(result)


@pytest.mark.parametrize(
    "attachment",
    [
        Attachment("picture", "p<b>", "data:image/png;base64,AAAA"),
        Attachment("picture", "p<b>", "https://a.example/p.png"),
        Attachment("picture", "p<b>", 'data:image/png;base64,"><script>'),
        Attachment("picture", "p<b>", "data:text/html;base64,PHNjcmlwdD4="),
        Attachment("file", "p<b>", "data:text/html;base64,PHNjcmlwdD4="),
    ],
)
def test_what_is_no_picture_is_a_line(attachment):
    """Only checked data of a picture becomes an image. Anything else is shown by its name, as inert text."""
    block = draw_attachment(attachment)
    assert "<img" not in block.html
    assert "<script" not in block.html
    assert "p&lt;b" in block.html
    assert block.text == "· p<b>"


class Cell:
    """A cell's output, in memory."""

    can_update, cell_id, execution = True, None, "one"

    def __init__(self):
        self.outputs = {}

    def display(self, bundle, display_id=None):
        self.outputs[display_id or f"own-{len(self.outputs)}"] = bundle

    update = display


async def test_a_picture_is_shown_while_the_run_goes_on(monkeypatch):
    """The live page shows a picture at its place. If it would exceed the limit for a run, a line replaces it."""
    small = Attachment("picture", "small", ADDRESS)
    large = Attachment("picture", "large", f"data:image/png;base64,{PNG}AAAA")
    monkeypatch.setattr(steps, "OF_RUN", len(draw_attachment(small).html))
    cell = Cell()
    run = CellRun(cell, draw_head("m", []))
    for event in (Text("Here: "), small, large, Text("Done.")):
        await run.take(event)
    await run.caught_up()
    html = "".join(bundle["text/html"] for bundle in cell.outputs.values())
    assert html.count("<img") == 1
    assert [html.index(part) for part in ("Here:", ADDRESS, "large", "Done.")] == sorted(
        html.index(part) for part in ("Here:", ADDRESS, "large", "Done.")
    )


def test_a_recorded_picture_comes_back():
    """A message made from recorded deltas has the picture, and so has a delta made from this message."""
    message = tape.make_delta({"role": "assistant", "content": "", "images": [IMAGE]})
    assembly = Assembly()
    assembly.add(message)
    assert assembly.attachments.all() == (PICTURE,)
    assert assembly.message()["images"] == [IMAGE]


SOURCES = {
    "Perplexity's addresses": ({"citations": ["https://a.example/x"]}, ["source: https://a.example/x"]),
    "its search results": (
        {"search_results": [{"title": "On x", "url": "https://a.example/x"}, {"date": "today"}]},
        ["source: On x https://a.example/x"],
    ),
    "Anthropic's, of a whole message": (
        {"provider_specific_fields": {"citations": [[{"title": "On x", "url": "https://a.example/x"}]]}},
        ["source: On x https://a.example/x"],
    ),
    "Anthropic's, of a delta": (
        {"provider_specific_fields": {"citation": {"document_title": "On x", "cited_text": "x is 3"}}},
        ["source: On x"],
    ),
    "nothing of use": ({"citations": [None, 5, [], {}], "search_results": "x"}, ["source: x"]),
}


@pytest.mark.parametrize(("fields", "names"), SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("place", ["delta", "chunk"])
def test_sources_of_each_form_are_named_once(fields, names, place):
    """Providers have different fields for the sources of an answer. Each source becomes one attachment, even if every delta
    repeats it.
    """
    assembly = Assembly()
    for text in ("It is ", "3."):
        delta = {
            "content": text,
            **(fields if place == "delta" or "provider_specific_fields" in fields else {}),
        }
        chunk = {"choices": [{"index": 0, "delta": delta}], **(fields if place == "chunk" else {})}
        assembly.add(assembly.read_chunk(chunk))
    assert [(one.kind, one.name) for one in assembly.attachments.all()] == [
        ("source", name) for name in names
    ]
    assert assembly.message()["content"] == "It is 3."


@pytest.mark.parametrize(("field", "kind"), [("images", "picture"), ("files", "file")])
@pytest.mark.parametrize(
    ("address", "named"), [(ADDRESS, "image/png"), ("https://a.example/p.png", "not loaded")]
)
def test_a_mere_address_is_what_its_field_says(field, kind, address, named):
    """Some servers send an address as a text, not inside an object. The name of the field says what kind of attachment it is."""
    assembly = Assembly()
    assembly.add({field: [address]})
    (one,) = assembly.attachments.all()
    assert one.kind == ("picture" if address == ADDRESS else kind)
    assert named in one.name


@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_of_ours_loses_nothing_when_it_does_not_stream(stream):
    """The complete response of our own models has the same sound and content parts as their stream."""
    parts = deltas(
        [{"audio": {"data": "AA", "transcript": "Hi"}}, {"content": [FILE]}, {"audio": {"data": "BB"}}]
    )
    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel(parts),
        options=ToolLoopOptions(completion_kwargs={"stream": stream}),
    )
    result = await session.arun("Go.")
    assert {(one.kind, one.name) for one in attached(result)} == {
        ("audio", "audio, 0.0 kB: Hi"),
        ("file", TABLE.name),
    }
