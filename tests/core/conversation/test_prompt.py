"""Prompts with pictures, files and values: which parts are sent, what is refused, and what a conversation stores."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import struct
import sys
import time
import wave
from pathlib import Path

import pytest

from toolloop_jupyter import Harness, ToolLoopOptions, aagent, aagent_session, load
from toolloop_jupyter.core.conversation import (
    History,
    Named,
    Template,
    join_text,
    leave_out_parts,
    read_prompt,
)
from toolloop_jupyter.core.conversation import history as history_module
from toolloop_jupyter.core.conversation import prompt as prompt_module
from toolloop_jupyter.core.conversation.history import validate
from toolloop_jupyter.core.events import ArgumentInvalid, Attachment, CapabilityUnsupported
from toolloop_jupyter.core.models import find_untaken
from toolloop_jupyter.core.results import images
from toolloop_jupyter.teaching.recording import Recorder, Replay
from toolloop_jupyter.teaching.scripted import ScriptedModel, error

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
from matplotlib.figure import Figure  # noqa: E402
from PIL import Image  # noqa: E402

LOOP = Harness.TOOL_LOOP
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"


def encode(data):
    return base64.b64encode(data).decode()


def png(size=(2, 1), color="red"):
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    return buffer.getvalue()


def sound():
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 1, 8000, 0, "NONE", ""))
        file.writeframes(b"\x80" * 80)
    return buffer.getvalue()


def figure():
    made = Figure(figsize=(3, 2))
    made.subplots().plot([1, 2])
    return made


def picture_part(data):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encode(data)}"}}


def text_part(text):
    return {"type": "text", "text": text}


PICTURE = png()
PDF_PART = {
    "type": "file",
    "file": {"filename": "report.pdf", "file_data": f"data:application/pdf;base64,{encode(PDF)}"},
}
SOUND_PART = {"type": "input_audio", "input_audio": {"data": encode(sound()), "format": "wav"}}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a file of each kind."""
    for name, data in {
        "photo.png": PICTURE,
        "report.pdf": PDF,
        "said.wav": sound(),
        "notes.txt": b"one\ntwo\n",
        "data.bin": bytes(range(32)),
    }.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def kinds(prompt):
    return [part["type"] for part in prompt.content]


# --- what goes out ------------------------------------------------------------------------------------------------


async def test_the_exact_parts_arrive_at_a_server(call, files):
    """LiteLLM's real client sends each kind of part at its place in the request, in the form of OpenAI's API."""
    keywords, server = call({"content": "ok"})
    template = Template(("What is odd in ", Named("fig", PICTURE), " here?"))
    prompt = ["Compare.", template, files / "report.pdf", files / "said.wav", files / "notes.txt"]
    await aagent(Harness.TOOL_LOOP, prompt, options=ToolLoopOptions(images="always"), **keywords)
    (message,) = server.requests[0].messages
    assert message == {
        "role": "user",
        "content": [
            text_part("Compare."),
            text_part("What is odd in "),
            picture_part(PICTURE),
            text_part(" here?"),
            PDF_PART,
            SOUND_PART,
            text_part("[notes.txt]\none\ntwo\n[end of notes.txt]"),
        ],
    }


@pytest.mark.parametrize("text", ["Hello", "  two  \n", "{{x}} \ud83d\ude00", "[]"])
async def test_a_text_goes_out_as_it_is(call, text):
    """A prompt that is a text is sent unchanged, even if it contains values as text."""
    keywords, server = call({"content": "ok"})
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16")
    for prompt in (text, [text], [Template((text[:3], Named("rest", text[3:])))]):
        await aagent(Harness.TOOL_LOOP, prompt, **keywords)
    assert [request.messages for request in server.requests] == [[{"role": "user", "content": whole}]] * 3


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["anthropic", "gemini", "bedrock"])
def test_what_litellm_makes_of_them(provider, files):
    """LiteLLM's converters keep the text, the picture and the PDF in order; Gemini's converter also keeps the sound."""
    import litellm  # noqa: F401 - makes the modules below importable
    from litellm.litellm_core_utils.prompt_templates import factory
    from litellm.llms.vertex_ai.gemini.transformation import _gemini_convert_messages_with_history as gemini

    convert = {
        "anthropic": lambda m: factory.anthropic_messages_pt(m, "claude-sonnet-4-5", "anthropic"),
        "gemini": lambda m: gemini(m, model="gemini-2.5-pro"),
        "bedrock": lambda m: factory._bedrock_converse_messages_pt(
            m, "anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock_converse"
        ),
    }[provider]
    heard = [files / "said.wav"] if provider == "gemini" else []
    history = History()
    history.begin_turn(None)
    history.add_user(read_prompt(["Before.", PICTURE, "After.", files / "report.pdf", *heard]).content)
    wire = json.dumps(convert(history.for_request()))
    wanted = ["Before.", encode(PICTURE), "After.", encode(PDF), *([encode(sound())] if heard else [])]
    places = [wire.index(one) for one in wanted]
    assert places == sorted(places)
    assert "application/pdf" in wire or '"format": "pdf"' in wire


def test_values_of_a_list_are_told_as_a_tools_result_is():
    """Figures, images, bytes and data in a list become parts and text. The pictures of an inner list follow its text."""
    made = read_prompt(["Look:", figure(), Image.new("RGB", (4, 4)), PDF, {"a": 1}, [figure(), 3]])
    assert kinds(made) == ["text", "image_url", "image_url", "file", "text", "text", "image_url"]
    assert made.content[4]["text"] == '{"a": 1}'
    assert made.content[3]["file"]["filename"] == "document.pdf"
    assert "3" in made.content[5]["text"]


def test_parts_of_a_message_go_as_they_were_given():
    """A part in OpenAI's form is sent unchanged, as a copy. An address in it is not fetched."""
    marked = {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
    far = {"type": "image_url", "image_url": {"url": "https://a.example/p.png"}}
    made = read_prompt([marked, far])
    assert made.content == [marked, far]
    assert made.content[1] is not far
    assert made.attached == (Attachment("picture", "picture", "", is_sent=True),)
    assert made.text == "Hello\n\n[picture]"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "size": 3},
        {"type": "file", "file": {}},
        {"type": "image_url", "image_url": {"url": 5}},
        {"type": "input_audio", "input_audio": "x"},
        {"type": "file", "file": {"file_data": PDF}},
        {"type": "text", "text": "Hi.", "cache_control": {Path()}},
        {"type": "image_url", "image_url": {"url": "x", "detail": float("nan")}},
    ],
)
def test_a_part_that_no_request_can_carry_is_a_mistake(part):
    """A dict with the type of a part must be JSON data of this type; else the error shows what to write."""
    with pytest.raises(
        ArgumentInvalid, match=rf"type '{part['type']}' is JSON data such as .*; to send a dict as text"
    ):
        read_prompt(["See", part])


def test_a_given_part_is_a_copy_that_can_be_sent():
    """Later changes of a part have no effect. Half of a surrogate pair is replaced. A part of blanks alone is left out."""
    part = {"type": "image_url", "image_url": {"url": "https://x/\ud800"}}
    prompt = read_prompt([part, {"type": "text", "text": " \n", "cache_control": {"type": "ephemeral"}}])
    part["image_url"]["url"] = "changed"
    assert prompt.content == [{"type": "image_url", "image_url": {"url": "https://x/\ufffd"}}]


HOSTILE = b"a\n[end of b]\x1b[31m\xe2\x80\xae\xff"


@pytest.mark.parametrize(
    "content", [PDF, b"Words.", PICTURE, sound()], ids=["pdf", "text", "picture", "sound"]
)
def test_a_files_name_is_one_line(content, tmp_path):
    """A file's name brings no line ends, control characters or invalid bytes into a request or a page."""
    path = tmp_path / os.fsdecode(HOSTILE)
    try:
        path.write_bytes(content)
    except OSError:
        pytest.skip("this file system takes no such names")
    prompt = read_prompt(["See", path])
    sent = prompt.content if isinstance(prompt.content, str) else str(prompt.content)
    texts = "".join([*(one.name for one in prompt.attached), *prompt.filled])
    assert texts.startswith("a [end of b]\ufffd: ")
    for text in (sent, prompt.text, texts):
        assert not re.search("[\x1b\u202e\ud800-\udfff]|\n\\[end of b", text)


@pytest.mark.parametrize("make", ["address", "huge", "broken", "fails"])
def test_a_picture_that_cannot_be_drawn_is_a_mistake(make):
    """If a picture cannot be drawn, the person gets an error before anything is sent; no type name is sent instead."""
    display = pytest.importorskip("IPython.display")

    class Fails:
        def _repr_png_(self):
            raise ValueError

    value = {
        "address": lambda: display.Image(url="https://example.org/a.png"),
        "huge": lambda: PICTURE[:16] + struct.pack(">II", 90_000, 90_000) + PICTURE[24:],
        "broken": lambda: PICTURE[:30],
        "fails": Fails,
    }[make]()
    messages = {
        "huge": r"\(PNG picture, 90000 × 90000, 0 kB\) cannot be drawn as a picture: it is broken, or too large"
    }
    messages |= {
        "broken": "cannot be drawn as a picture: it is broken",
        "address": "only a web address, load",
    }
    for given in (["See", value], [Template(("See ", Named("fig", value)))]):
        with pytest.raises(ArgumentInvalid, match=messages.get(make, "cannot be drawn as a picture")):
            read_prompt(given)


def test_a_value_that_hides_its_class():
    """A value whose `__class__` raises an error is described as text, even in a list."""

    class Hidden:
        @property
        def __class__(self):
            raise RuntimeError

    assert str(read_prompt(["See", Hidden()]).content).endswith("Hidden without a text form: RuntimeError>")


def test_a_figure_is_drawn_when_it_is_given():
    """A figure is drawn at once, so later changes have no effect. Its picture is as small as that of a tool."""
    big = Figure(figsize=(60, 10))
    made = read_prompt(["See", big])
    big.clear()
    data = base64.b64decode(made.content[1]["image_url"]["url"].partition(",")[2])
    assert max(Image.open(io.BytesIO(data)).size) <= images.MOST_SIDE * 1.05


def test_words_for_people():
    """`Prompt.text` names each picture and file; `filled` has the length of each value that is sent as text."""
    made = read_prompt(
        [Named("report.pdf", PDF), Template(("See ", Named("fig", PICTURE), " and ", Named("n", 12_345)))]
    )
    assert made.text == f"[report.pdf: PDF, 0 kB]\n\nSee [fig: {images.measure_picture(PICTURE)}] and 12345"
    assert made.filled == ("n: 5 characters",)
    assert [one.kind for one in made.attached] == ["file", "picture"]


class Odd:
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: "", "the prompt is empty"),
        (lambda _: None, "the prompt is empty"),
        (lambda _: ["  ", "\n"], "the prompt is empty"),
        (lambda _: 7, "a prompt is a text, or a list of texts"),
        (lambda f: ["x", f / "gone.pdf"], "cannot read the file .*gone.pdf.*No such file"),
        (lambda f: ["x", f], "is not a file"),
        (lambda f: ["x", f / "data.bin"], "data.bin cannot be sent: a prompt takes a picture"),
        (
            lambda _: ["x", Odd()],
            r"a Odd in the prompt cannot be filled in: str\(value\) raised RuntimeError",
        ),
        (lambda _: [Template((Named("it", Odd()),))], r"{{it}} cannot be filled in: str\(it\) raised"),
        (lambda _: ["x", PICTURE[:30]], "is not a complete picture|cannot be drawn"),
        (lambda _: [{"type": "text", "text": None}], r"the type 'text' is JSON data such as .*\"Hello\""),
    ],
)
def test_what_cannot_be_a_prompt(make, message, files):
    """Such a prompt is an error in one line, before anything is sent."""
    with pytest.raises(ArgumentInvalid, match=message) as caught:
        read_prompt(make(files))
    assert "\n" not in str(caught.value)


def test_a_file_has_a_largest_size(files, monkeypatch):
    """A file that is too large is not read."""
    monkeypatch.setattr(prompt_module, "MOST_FILE", 10)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read"))
    with pytest.raises(ArgumentInvalid, match=r"report.pdf has 0\.0 MB; a file of a prompt may have"):
        read_prompt(["x", files / "report.pdf"])


# --- what a model takes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "untaken"),
    [
        ("openai/gpt-4o", ["sound"]),
        ("anthropic/claude-sonnet-4-6", ["sound"]),
        ("gemini/gemini-2.5-flash", []),
        ("openai/gpt-3.5-turbo", ["pictures", "PDF files", "sound"]),
        ("litellm_proxy/gpt-4o", ["sound"]),
        ("litellm_proxy/coder", ["pictures", "PDF files", "sound"]),
        ("toolloop/demo", []),
    ],
)
def test_what_models_take_is_litellms_word(model, untaken):
    """LiteLLM's table says whether a model takes pictures, PDF files and sound. Our own models take everything."""
    needs = ["pictures", "PDF files", "sound"]
    assert find_untaken(model, needs) == untaken
    assert find_untaken(model, needs, "always") == []
    assert find_untaken(model, needs, "never") == needs


async def test_what_a_model_does_not_take_is_not_sent(call, files):
    """The error says what the prompt has and what to set. Nothing is sent, and the conversation does not change."""
    keywords, server = call({"content": "ok"})
    async with aagent_session(Harness.TOOL_LOOP, **keywords) as session:
        with pytest.raises(
            CapabilityUnsupported, match=r"pictures and PDF files.*openai/stub.*images='always'"
        ):
            await session.arun(["x", PICTURE, files / "report.pdf"])
        assert await session.history() == []
        assert (await session.arun("Only text.")).text == "ok"
    assert len(server.requests) == 1


async def test_never_means_never():
    """With images="never", a new picture is an error, and a line of text replaces an earlier picture."""
    model = ScriptedModel("ok", "ok")
    async with aagent_session(Harness.TOOL_LOOP, model=model) as session:
        await session.arun(["See", PICTURE])
    never = ToolLoopOptions(images="never")
    async with aagent_session(
        Harness.TOOL_LOOP, model=model, history=await session.history(), options=never
    ) as later:
        with pytest.raises(CapabilityUnsupported, match="images='never'"):
            await later.arun(["See", PICTURE])
        await later.arun("And now?")
    sent = model.requests[-1].messages
    assert sent[0]["content"] == [text_part("See"), text_part("[An earlier picture, not sent again.]")]


# --- what a conversation makes of them ----------------------------------------------------------------------------


def make_question(count, first=0):
    """Return a user message with this number of pictures, each a different one."""
    return [
        text_part("Look."),
        *(picture_part(png(color=(number, first, 0))) for number in range(first, first + count)),
    ]


def sent_pictures(messages):
    parts = [
        p for m in messages if m["role"] == "user" and isinstance(m["content"], list) for p in m["content"]
    ]
    return [part for part in parts if part["type"] == "image_url"]


def turn(history, content, answer="ok"):
    history.begin_turn(None)
    history.add_user(content)
    request = history.for_request()
    history.add_assistant({"role": "assistant", "content": answer})
    return request


def test_the_newest_pictures_are_sent_and_the_prompts_own_always():
    """All pictures of the present prompt are sent. Of the earlier prompts, only the newest pictures are sent; a line replaces
    each older one.
    """
    history = History()
    turn(history, make_question(10))
    second = turn(history, make_question(10, 10))
    assert sent_pictures(second)[-10:] == make_question(10, 10)[1:]
    assert len(sent_pictures(second)) == history_module.MOST_SENT
    assert sum(text_part(history_module.OUT_OF_DATE) == part for part in second[0]["content"]) == 4
    third = turn(history, make_question(20, 40))
    assert sent_pictures(third) == make_question(20, 40)[1:]
    assert sent_pictures(history.copy()) == [
        *make_question(10)[1:],
        *make_question(10, 10)[1:],
        *make_question(20, 40)[1:],
    ]


def test_a_tools_pictures_do_not_push_out_the_prompts():
    """A prompt's picture is sent with each request of its turn, even if tools return many pictures."""
    history = History()
    history.begin_turn(None)
    history.add_user(make_question(1))
    for number in range(20):
        function = {"name": "shot", "arguments": "{}"}
        call = {"id": f"c{number}", "type": "function", "function": function}
        history.add_assistant({"role": "assistant", "content": None, "tool_calls": [call]})
        history.answer(f"c{number}", "a shot", [picture_part(PICTURE)["image_url"]["url"]])
        request = history.for_request(lambda: "tool")
        assert sent_pictures(request) == make_question(1)[1:]
    results = [m for m in request if m["role"] == "tool" and isinstance(m["content"], list)]
    assert len(results) == history_module.MOST_SENT - 1


def test_neighbouring_questions_are_joined_with_their_parts():
    """A question without an answer and the next question become one message with the pictures of both."""
    history = History()
    for content in (make_question(1), "And this?"):
        history.begin_turn(None)
        history.add_user(content)
    (message,) = history.for_request()
    assert message["content"] == [*make_question(1), text_part("And this?")]


async def test_rewind_save_and_load_keep_parts(tmp_path):
    """A conversation with a picture can be rewound before it. Saving and loading keep all parts, without keys."""
    model = ScriptedModel("a", "b", "c")
    async with aagent_session(Harness.TOOL_LOOP, model=model, api_key="sk-secret-123456") as session:
        await session.arun(["The key is sk-secret-123456.", PICTURE, PDF])
        await session.arun("Two")
        session.save(tmp_path / "kept.json")
        kept = load(tmp_path / "kept.json")
        assert kept[0]["content"][1:] == (await session.history())[0]["content"][1:]
        assert kept[0]["content"][0] == text_part("The key is [key].")
        session.rewind(1)
        assert len(await session.history()) == 2
        session.rewind(0)
        assert await session.history() == []
    async with aagent_session(Harness.TOOL_LOOP, model=model, history=kept) as again:
        await again.arun("Three")
    assert model.requests[-1].messages[0] == kept[0]


async def test_a_prompt_that_fails_is_withdrawn_whole():
    """If the provider refuses a question with a picture, the question does not stay in the conversation."""
    async with aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(error("too large", 400))) as session:
        result = await session.arun(["See", PICTURE])
        assert result.stop_reason == "runtime_error"
        assert await session.history() == []


async def test_a_recording_has_a_digest_of_files(tmp_path):
    """A recording has no bytes of a file. It replays if a figure is drawn a little differently, but not with another file."""
    path = tmp_path / "run.jsonl"

    async def run(model, *parts, **more):
        return await aagent(Harness.TOOL_LOOP, ["See", *parts], model=model, **more)

    await run(ScriptedModel("A chart."), figure(), PDF, SOUND_PART, observer=Recorder(path))
    text = path.read_text("utf-8")
    assert text.count("sha256 ") == 2
    assert encode(PDF)[:40] not in text
    assert encode(sound())[:40] not in text
    assert (await run(Replay(path), PICTURE, PDF, SOUND_PART)).text == "A chart."
    other = await run(Replay(path), PICTURE, PDF + b"%", SOUND_PART)
    assert "message 1 (user) differs" in other.error


# --- what people see ----------------------------------------------------------------------------------------------


async def test_pictures_and_files_come_first_among_the_events():
    """A run's first events are the parts of its prompt: a small copy of a picture; the name and size of a file."""
    result = await aagent(Harness.TOOL_LOOP, ["See", PICTURE, PDF], model=ScriptedModel("ok"))
    sent = [event for event in result.events if isinstance(event, Attachment)]
    assert result.events[:2] == sent
    assert all(one.is_sent for one in sent)
    assert (sent[0].address[:22], sent[1].address) == ("data:image/png;base64,", "")
    assert result.prompt == f"See\n\n[{sent[0].name}]\n\n[PDF, 0 kB]"


def test_a_thumbnail_is_small():
    """A small picture is its own thumbnail. A large picture is made smaller, even if it is only noise."""
    noise = io.BytesIO()
    Image.effect_noise((1500, 1500), 90).convert("RGBA").save(noise, "PNG")
    assert base64.b64decode(images.make_thumbnail(PICTURE).partition(",")[2]) == PICTURE
    made = images.make_thumbnail(noise.getvalue())
    assert 10_000 < len(made) <= images.MOST_THUMBNAIL
    assert images.make_thumbnail(b"none") == images.make_thumbnail(PICTURE[:20] + noise.getvalue()) == ""


def test_words_of_a_content():
    """`join_text` joins the text parts of a message. `leave_out_parts` puts a line in place of each other part."""
    content = ["See", PICTURE, PDF, "now"]
    made = read_prompt(content).content
    assert join_text(made) == "See\nnow"
    assert join_text("See") == "See"
    left = leave_out_parts(made, "[An earlier {}.]")
    assert [part["text"] for part in left] == ["See", "[An earlier picture.]", "[An earlier file.]", "now"]
    assert leave_out_parts("See", "[{}]") == "See"


class Failing(BaseException):
    """An exception that is not an `Exception`, as some libraries raise it."""


class FailingBytes(bytes):
    def __bytes__(self):
        raise Failing("no bytes")


class NoClass:
    @property
    def __class__(self):
        raise Failing("no class")


def make_deep(levels):
    made = []
    for _ in range(levels):
        made = [made]
    return made


CIRCLE: dict[str, object] = {"type": "file"}
CIRCLE["file"] = CIRCLE


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["a", FailingBytes(b"x")], "item 2 of the prompt cannot be read: Failing: no bytes"),
        ([{"type": "image_url", "image_url": {"url": object()}}], "is JSON data such as"),
        ([{"type": "file", "file": make_deep(50_000)}], "is JSON data such as"),
        ([{"type": "file", "file": make_deep(150)}], "is JSON data such as"),
        ([CIRCLE], "is JSON data such as"),
        ([{"type": "text", "text": " ", "cache_control": {"type": "ephemeral"}}], "the prompt is empty"),
    ],
)
async def test_what_no_request_can_carry(given, words):
    """If code of the prompt fails, or if a part is not plain JSON, the same kind of error is raised before the run."""
    with pytest.raises(ArgumentInvalid, match=words):
        await aagent(LOOP, given, model=(model := ScriptedModel("Hi.")))
    assert model.requests == []


@pytest.mark.parametrize(
    "given",
    [
        ["a", NoClass()],
        [
            "a",
            {"type": "file", "file": {"filename": "\ud800", "file_data": "data:application/pdf;base64,AAAA"}},
        ],
        ["a", {"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}],
        ["a", {"type": "file", "file": {"file_data": "data:,", "score": float("nan")}, (1, 2): 3}],
        ["a", {"type": "image_url", "image_url": 5}],
    ],
)
async def test_any_part_leaves_a_valid_conversation(given, tmp_path):
    """Any part that a person writes leaves the conversation valid, and it can be saved."""
    options = ToolLoopOptions(images="always")
    session = aagent_session(LOOP, model=ScriptedModel("Hi."), options=options)
    try:
        await session.arun(given)
    except ArgumentInvalid:
        assert session.messages() == []
    assert validate(session.messages()) == []
    json.dumps(session.messages(), allow_nan=False).encode()
    session.save(tmp_path / "c.json")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode there")
def test_a_file_with_a_name_that_no_text_can_carry(tmp_path):
    """If a file name is not valid UTF-8, the request has a mark in place of the invalid bytes."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.pdf"))
    path.write_bytes(b"%PDF-1.7")
    prompt = read_prompt([path])
    assert json.dumps(prompt.content, ensure_ascii=False).encode()
    assert (prompt.text + prompt.attached[0].name).encode()


def test_a_text_with_many_values_is_made_in_linear_time():
    """16 times as many values take about 16 times as long."""

    def measure(values: int) -> float:
        pieces = [piece for n in range(values) for piece in (Named(f"x{n}", "y" * 50), " and ")]
        began = time.process_time()
        read_prompt([Template(tuple(pieces))])
        return time.process_time() - began

    few = min(measure(1_000) for _ in range(3))
    assert measure(16_000) < 100 * few
