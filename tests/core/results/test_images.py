"""Pictures of results: which values have pictures, their limits, and their place in the request of each provider."""

from __future__ import annotations

import base64
import importlib.util
import io
import sys
import types

import pytest

from toolloop_jupyter import Harness, ToolLoopOptions, aagent, aagent_session, tool
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.conversation.history import validate
from toolloop_jupyter.core.models import client
from toolloop_jupyter.core.results import images
from toolloop_jupyter.teaching.recording import Recorder, Replay
from toolloop_jupyter.teaching.scripted import ScriptedModel, call

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
from matplotlib.figure import Figure  # noqa: E402
from PIL import Image  # noqa: E402

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ADDRESS = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


class OnlyPng:
    def _repr_png_(self):
        return PNG


class Broken:
    def _repr_png_(self):
        raise RuntimeError("no")


class Proxy:
    def __getattr__(self, name):
        return lambda *_: PNG


def figure(size=(3, 2)):
    made = Figure(figsize=size)
    made.subplots().plot([1, 2])
    return made


def opened(address):
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def red(width=20, height=10):
    return Image.new("RGB", (width, height), "red")


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (figure, 1),
        (lambda: figure().axes[0], 1),
        (lambda: figure().axes[0].lines[0].axes, 1),
        (lambda: [made := figure(), made.axes[0]], 1),
        (lambda: Figure().subplots(2, 2), 1),
        (lambda: Figure().subfigures(1, 2)[0], 1),
        (lambda: [figure(), figure()], 2),
        (lambda: {"chart": figure(), "mean": 2}, 1),
        (red, 1),
        (lambda: PNG, 1),
        (lambda: bytearray(PNG), 1),
        (OnlyPng, 1),
        (lambda: [red() for _ in range(20)], 20),
        (lambda: "text", 0),
        (lambda: b"bytes", 0),
        (lambda: None, 0),
        (lambda: OnlyPng, 0),
        (Proxy, 0),
        (lambda: ["a", 1, None], 0),
    ],
)
def test_pictures_in_values(make, count):
    """Figures, axes, images, bytes of pictures and objects that draw themselves are found, even in lists; each figure once."""
    assert len(images.find_pictures(make())) == count


def test_a_result_has_at_most_four_and_each_is_small():
    """A huge figure and a huge photo are made smaller. Of twenty pictures, the first four are sent."""
    huge = [
        figure((60, 1)),
        Image.effect_noise((4000, 3000), 90).convert("RGB"),
        red(1, 1),
        PNG,
        figure(),
        figure(),
    ]
    made = images.make_addresses(images.find_pictures(huge))
    assert len(made) == images.MOST_EACH
    for address in made:
        assert len(address) * 3 / 4 <= images.MOST_BYTES + 100
        assert max(opened(address).size) <= images.MOST_SIDE * 1.05  # "tight" moves the border a little
    assert made[3] == ADDRESS


def test_what_cannot_be_drawn_is_left_out():
    """If a method raises, or if bytes only begin like a picture, there is no picture and no exception."""
    assert images.make_addresses([Broken(), PNG[:20], b"\xff\xd8\xffnot really"])[1:] == ()
    assert images.make_addresses([Broken()]) == ()


def test_a_large_photo_is_not_unpacked_at_its_full_size(monkeypatch):
    """A JPEG of 54 million pixels would take 400 MB. It is decoded at a smaller size."""
    sizes, load = [], Image.Image.convert
    monkeypatch.setattr(Image.Image, "convert", lambda one, *a: sizes.append(one.size) or load(one, *a))
    buffer = io.BytesIO()
    red(6000, 4000).save(buffer, "JPEG")
    assert opened(*images.make_addresses([buffer.getvalue()])).size == (1200, 800)
    assert sizes[0] == (3000, 2000)


def test_formats_that_not_all_providers_take_become_png():
    """A GIF is sent as PNG."""
    buffer = io.BytesIO()
    red().save(buffer, "GIF")
    (address,) = images.make_addresses([buffer.getvalue()])
    assert address.startswith("data:image/png;")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "wish", "way"),
    [
        ("gpt-4o", "auto", "user"),
        ("openai/gpt-4o", "auto", "user"),
        ("azure/gpt-4o", "auto", "user"),
        ("claude-sonnet-4-5", "auto", "tool"),
        ("gemini/gemini-2.5-pro", "auto", "tool"),
        ("bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0", "auto", "tool"),
        ("gpt-3.5-turbo", "auto", None),
        ("groq/llama-3.3-70b-versatile", "auto", None),
        ("openai/my-own", "auto", None),
        ("openai/my-own", "always", "user"),
        ("litellm_proxy/coder", "auto", None),
        ("litellm_proxy/coder", "always", "user"),
        ("litellm_proxy/gpt-4o", "auto", "user"),
        ("gpt-4o", "never", None),
        ("no such model at all", "auto", None),
        ("toolloop/demo", "auto", None),
    ],
)
def test_which_models_get_them(model, wish, way):
    """LiteLLM's `supports_vision` decides, unless the person decides. Each provider gets pictures where it reads them."""
    assert client.choose_picture_place(model, wish) == way


def shots():
    """Take two screenshots."""
    return [red(), PNG]


def chart():
    """Draw a chart."""
    return figure()


def parts(messages):
    return [part for m in messages if isinstance(m.get("content"), list) for part in m["content"]]


def urls(messages):
    return [part["image_url"]["url"] for part in parts(messages) if part["type"] == "image_url"]


async def test_beside_the_text_of_their_own_call():
    """A tool message has its text first, then the pictures of its call. The history stays valid."""
    model = ScriptedModel([call("shots"), call("chart")], "Seen.", takes_images=True)
    async with aagent_session(Harness.TOOL_LOOP, model=model, tools=[shots, chart]) as session:
        result = await session.arun("Look.")
        messages = await session.history()
    assert validate(messages) == []
    sent = model.requests[1].messages
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool"]
    assert [[part["type"] for part in m["content"]] for m in sent[2:]] == [
        ["text", "image_url", "image_url"],
        ["text", "image_url"],
    ]
    assert sent[2]["content"][0]["text"] == result.tool_results[0].output
    assert "image, 20 × 10 pixels" in result.tool_results[0].output
    assert urls(sent) == [*result.tool_results[0].pictures, *result.tool_results[1].pictures]
    assert urls(sent)[1] == ADDRESS


@pytest.mark.parametrize("takes", [False, True])
async def test_switched_off(takes):
    """No picture is sent to a model that does not see, or with `images="never"`."""
    model = ScriptedModel(call("shots"), "Read.", takes_images=takes)
    options = ToolLoopOptions(images="never" if takes else "auto")
    result = await aagent(Harness.TOOL_LOOP, "Look.", model=model, tools=[shots], options=options)
    assert result.tool_results[0].pictures == ()
    assert model.requests[1].messages[2]["content"] == result.tool_results[0].output


async def test_a_wrong_wish_is_refused_before_the_run():
    """`images` has three allowed values."""
    with pytest.raises(ValueError, match=r'images must be "auto", "always" or "never", got \'on\''):
        await aagent(Harness.TOOL_LOOP, "x", model="toolloop/demo", options=ToolLoopOptions(images="on"))


async def test_shown_pictures_go_along_where_the_tool_asks():
    """With `capture_output=True`, the model gets the displayed pictures, even without a view. Prints stay visible."""

    @tool(capture_output=True)
    def talks():
        """Talk."""
        print("said")
        return 1

    model = ScriptedModel(call("talks"), "ok")
    result = await aagent(Harness.TOOL_LOOP, "x", model=model, tools=[talks])
    assert result.tool_results[0].output == "[printed]\nsaid\n[returned]\n1"


async def test_prints_still_reach_the_console(capsys):
    """Prints that are kept for the model are also printed."""

    @tool(capture_output=True)
    def talks():
        """Talk."""
        print("said aloud")

    await aagent(Harness.TOOL_LOOP, "x", model=ScriptedModel(call("talks"), "ok"), tools=[talks])
    assert "said aloud" in capsys.readouterr().out


def conversation(pictures):
    """Return messages with one call whose result has this number of pictures, and one call without pictures."""
    calls = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ("c1", "c2")
    ]
    shown = [{"type": "image_url", "image_url": {"url": ADDRESS}}] * pictures
    return [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "text", "text": "a chart"}, *shown] if shown else "a chart",
        },
        {"role": "tool", "tool_call_id": "c2", "content": "7"},
        {"role": "assistant", "content": "done"},
    ]


@pytest.mark.parametrize("way", ["tool", "user", None])
def test_requests_are_valid_each_way(way):
    """The conversation is valid in three forms: with pictures in the tool message, with pictures after all tool messages of
    the step, and without pictures.
    """
    made = history.place_pictures(conversation(2), lambda: way)
    assert validate(made) == []
    assert len(urls(made)) == (0 if way is None else 2)
    assert [m["role"] for m in made] == [
        "user",
        "assistant",
        "tool",
        "tool",
        *(["user"] if way == "user" else []),
        "assistant",
    ]
    if way != "tool":
        assert made[2]["content"] == "a chart"
    if way == "user":
        assert made[4]["content"][0] == {"type": "text", "text": history.BOUNDARY}
    assert history.find_picture_place(made) == way


def test_messages_without_pictures_are_not_touched():
    """Without pictures, nobody asks about the model, and the same list is returned."""
    messages = conversation(0)
    assert history.place_pictures(messages, lambda: pytest.fail("asked")) is messages
    theirs = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    assert history.place_pictures(theirs, lambda: None) is theirs, "a user's own picture is the user's"


@pytest.mark.parametrize("way", ["tool", "user"])
def test_only_the_newest_are_sent_again(way):
    """A request has a limited number of pictures. A line says that an older picture is not sent again."""
    long = [m for n in range(30) for m in conversation(1)]
    made = history.place_pictures(long, lambda: way)
    assert len(urls(made)) == history.MOST_SENT
    texts = [
        m["content"] if isinstance(m["content"], str) else m["content"][0]["text"]
        for m in made
        if m["role"] == "tool"
    ]
    assert sum(history.OUT_OF_DATE in text for text in texts) == 30 - history.MOST_SENT
    assert history.OUT_OF_DATE in texts[0]
    assert history.OUT_OF_DATE not in texts[-2]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["tool", "user"])
@pytest.mark.parametrize("provider", ["anthropic", "gemini", "bedrock", "openai", "azure"])
def test_what_litellm_makes_of_them(provider, way):
    """LiteLLM's own conversions keep the text and the picture. If pictures are sent in tool messages, they stay in the
    result. This needs no network.
    """
    import litellm  # noqa: F401 - makes the modules below importable
    from litellm.litellm_core_utils.prompt_templates import factory
    from litellm.llms.azure.chat.gpt_transformation import AzureOpenAIConfig
    from litellm.llms.openai.chat.gpt_transformation import OpenAIGPTConfig
    from litellm.llms.vertex_ai.gemini.transformation import _gemini_convert_messages_with_history as gemini

    convert = {
        "anthropic": lambda m: factory.anthropic_messages_pt(m, "claude-sonnet-4-5", "anthropic"),
        "gemini": lambda m: gemini(m, model="gemini-2.5-pro"),
        "bedrock": lambda m: factory._bedrock_converse_messages_pt(
            m, "anthropic.claude-3-5-sonnet-20240620-v1:0", "bedrock_converse"
        ),
        "openai": lambda m: OpenAIGPTConfig().transform_request("gpt-4o", m, {}, {}, {})["messages"],
        "azure": lambda m: AzureOpenAIConfig().transform_request("gpt-4o", m, {}, {}, {})["messages"],
    }[provider]
    messages = history.place_pictures(conversation(1), lambda: way)
    wire = convert(messages)
    data = ADDRESS.partition(",")[2]
    assert str(wire).count(data) == 1
    assert "a chart" in str(wire)
    if provider == "anthropic" and way == "tool":
        result = next(
            b for m in wire for b in m["content"] if isinstance(b, dict) and b["type"] == "tool_result"
        )
        assert [block["type"] for block in result["content"]] == ["text", "image"]
    if provider in ("openai", "azure"):
        assert all(data not in str(m["content"]) for m in wire if m["role"] == "tool")


async def test_a_session_may_change_to_a_model_that_does_not_see():
    """Pictures stay in the history. A model that takes no pictures gets only the text."""
    from support.asking import replace_config

    sees, blind = ScriptedModel(call("shots"), "ok", takes_images=True), ScriptedModel("Only text.")
    async with aagent_session(Harness.TOOL_LOOP, model=sees, tools=[shots]) as session:
        await session.arun("Look.")
        other = aagent_session(Harness.TOOL_LOOP, model=blind, tools=[shots])
        replace_config(session, routes=other.config.routes)
        await session.arun("And now?")
        assert len(urls(await session.history())) == 2
    assert urls(blind.requests[0].messages) == []


@pytest.mark.parametrize("way", [True, "user"])
async def test_recordings_hold_no_pictures_and_replay_all_the_same(tmp_path, way):
    """A recording names a picture, but has no bytes of it, because these differ between versions of a package."""
    path = tmp_path / "run.json"
    model = ScriptedModel(call("shots"), "Seen.", takes_images=way)
    await aagent(Harness.TOOL_LOOP, "Look.", model=model, tools=[shots], observer=Recorder(path))
    assert len(urls(model.requests[1].messages)) == 2
    assert ADDRESS not in path.read_text()
    replay = Replay(path, speed=0)
    result = await aagent(Harness.TOOL_LOOP, "Look.", model=replay, tools=[shots])
    assert (result.text, len(result.tool_results[0].pictures)) == ("Seen.", 2)


def test_a_plotly_figure_is_a_picture_where_it_can_be_drawn(monkeypatch):
    """A plotly figure is a picture only if kaleido is installed."""

    class BaseFigure:
        def to_image(self, kind):
            assert kind == "png"
            return PNG

    monkeypatch.setitem(sys.modules, "plotly.basedatatypes", types.SimpleNamespace(BaseFigure=BaseFigure))
    drawn = BaseFigure()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert images.find_pictures(drawn) == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "kaleido")
    assert images.find_pictures([drawn]) == [drawn]
    assert images.make_addresses([drawn]) == (ADDRESS,)


def test_a_notebooks_own_image_is_a_picture():
    """IPython's Image gives its bytes. An Image with only an address gives no picture, and the address is not fetched."""
    from IPython.display import Image as Shown

    assert images.draw_picture(Shown(data=PNG)) == PNG
    assert images.draw_picture(Shown(url="https://a.example/p.png")) == b""
