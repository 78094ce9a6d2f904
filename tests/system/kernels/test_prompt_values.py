"""Values, pictures and files in a cell's prompt: what is sent, what the page shows, and what the saved notebook keeps."""

from __future__ import annotations

import json
import re

import nbformat
import pytest

from support.kernels import LiveKernel

pytestmark = pytest.mark.kernel

SET_UP = """
%load_ext toolloop_jupyter
import base64, os, pathlib, tempfile
from matplotlib.figure import Figure
from PIL import Image
from toolloop_jupyter.teaching import ScriptedModel
os.chdir(tempfile.mkdtemp())
fig = Figure(figsize=(3, 2)); fig.subplots().plot([1, 2])
pathlib.Path("report.pdf").write_bytes(b"%PDF-1.4\\n%%EOF\\n")
pathlib.Path("notes.txt").write_text("one\\ntwo")
note = "byte for byte  "
data = {"a": [1, 2]}
m = ScriptedModel(*["It rises."] * 60)
sent = lambda: m.requests[-1].messages[-1]["content"]
kinds = lambda: [part.get("text") or part["type"] for part in sent()]
"""


@pytest.fixture(scope="module")
def kernel():
    """One kernel for this module, with a figure, files and a script."""
    with LiveKernel() as live:
        done = live.execute(SET_UP)
        assert done.status == "ok", done.text
        yield live


def run(kernel, cell, **options):
    done = kernel.execute(cell, timeout=120, **options)
    assert done.status == "ok", done.text
    return done


def fail(kernel, cell):
    """Run a cell with a mistake, check that nothing was sent, and return the line of the error."""
    before = kernel.execute("print(len(m.requests))").stdout
    done = kernel.execute(cell, timeout=120)
    assert done.status == "error"
    assert kernel.execute("print(len(m.requests))").stdout == before
    return done.error


def test_a_figure_is_a_picture_at_its_place(kernel):
    """A figure is sent between the words around it. The page shows it small, with its name. The line above the run names the
    other values.
    """
    done = run(kernel, "%%toolloop -m m\nWhat is odd in {{fig}} and {{data}}?")
    assert (
        kernel.execute("print(kinds())").stdout
        == """['What is odd in ', 'image_url', ' and {"a": [1, 2]}?']\n"""
    )
    head, picture = done.outputs[0].data, done.outputs[1].data
    assert "with data: 13 characters" in head["text/plain"]
    assert re.fullmatch(r"· sent fig: PNG picture, \d+ × \d+, \d+ kB", picture["text/plain"])
    assert picture["text/html"].count('<img src="data:image/png;base64,') == 1


def test_a_text_is_sent_byte_for_byte(kernel):
    """If all values of a prompt become text, the prompt is sent as one text."""
    run(kernel, "%%toolloop -m m\n  {{note}}|\n\nend ")
    assert kernel.execute("print(repr(sent()))").stdout == "'  byte for byte  |\\n\\nend '\n"


def test_files_are_attached(kernel):
    """`--attach` takes files and variables, more than once. They are sent before the text, with their names."""
    done = run(
        kernel, "%%toolloop -m m --attach report.pdf --attach fig --attach notes.txt --attach data\nCompare."
    )
    wanted = [
        "file",
        "image_url",
        "[notes.txt]\none\ntwo\n[end of notes.txt]",
        '[data]\n{"a": [1, 2]}\n[end of data]',
        "Compare.",
    ]
    assert kernel.execute("print(kinds())").stdout == f"{wanted}\n"
    assert "with notes.txt: 7 characters, data: 13 characters" in done.text
    assert "sent report.pdf: PDF, 0 kB" in done.text
    assert "· sent fig: PNG picture" in done.text


def test_errors_are_told_as_the_notebook_shows_them(kernel):
    """An error in a variable, and the error that the notebook has shown last, are sent with a traceback that names cells."""
    kernel.execute("def half(x):\n    return x / 0\nerr = None")
    kernel.execute("try:\n    half(1)\nexcept ZeroDivisionError as e:\n    err = e")
    kernel.execute("half(2)")
    run(kernel, "%%toolloop -m m\nWhy {{err}}?")
    first = kernel.execute("print(sent())").stdout
    assert re.search(r"Cell In\[\d+\], line 2, in half", first)
    assert "half(1)" in first
    assert "ZeroDivisionError: division by zero?" in first
    done = run(kernel, "%%toolloop -m m\nWhy {{Err}}?")
    second = kernel.execute("print(sent())").stdout
    assert "half(2)" in second
    assert "IPython" not in second
    assert re.search(r"with Err: \d+ characters", done.text)


def test_a_dry_run_shows_the_parts(kernel):
    """A dry run shows the words, the kinds of the other parts, and the whole request, in which the bytes of pictures are
    shortened.
    """
    done = run(kernel, "%%toolloop -m m --dry-run --attach report.pdf\nSee {{fig}}.")
    assert "[file] See  [image_url] ." in done.text
    assert re.search(r"more characters", done.html)
    assert len(done.html) < 20_000
    assert "application/pdf" in done.html


@pytest.mark.parametrize(
    ("line", "body", "told"),
    [
        (
            "-m openai/gpt-3.5-turbo",
            "{{fig}}",
            "the prompt has pictures, but LiteLLM does not say that openai/gpt-3.5-turbo can read this. If the model can read it",
        ),
        (
            "-m m --images never",
            "{{fig}}",
            "the prompt has pictures, and --images never sends none",
        ),
        ("-m m --attach gone.pdf", "x", "cannot read the file 'gone.pdf': No such file or directory"),
        (
            "-m m --attach https://a.example/x.png",
            "x",
            "nothing is fetched from a URL; download the file, and attach it",
        ),
        ("-m m --attach note", "x", "the variable is a text, and no file has that name"),
        ("-m m --attach report.pdf", "", "the prompt is empty; write below the %%toolloop line"),
    ],
)
def test_what_cannot_be_sent_is_a_mistake(kernel, line, body, told):
    """Such a prompt is an error of one line, before anything is sent."""
    assert told in fail(kernel, f"%%toolloop {line}\n{body}")


def test_ten_pictures_keep_a_notebook_small(kernel, tmp_path):
    """Ten noisy photos of more than 0.5 MB each take less than 2 MB in the notebook. A kept conversation has lines in their
    place.
    """
    kernel.execute(
        "photos = [Image.effect_noise((1100, 1100), 90 + n).convert('RGB') for n in range(10)]\n"
        "a, b, c, d, e, f, g, h, i, j = photos"
    )
    names = " ".join(f"{{{{{name}}}}}" for name in "abcdefghij")
    done = run(kernel, f"%%toolloop -m m -s big --keep-history\nCompare {names}.")
    assert (
        kernel.execute("print(len(sent()), sum(len(str(p)) for p in sent()) > 5_000_000)").stdout
        == "12 True\n"
    )
    outputs = [
        nbformat.v4.new_output(one.kind, one.data)
        for one in done.outputs
        if one.kind in ("display_data", "execute_result")
    ]
    cell = nbformat.v4.new_code_cell("", outputs=outputs)
    book = nbformat.v4.new_notebook(cells=[cell])
    text = nbformat.writes(book)
    assert text.count("data:image/jpeg;base64,") == 10
    assert len(text) < 2_000_000
    path = tmp_path / "saved.ipynb"
    path.write_text(text, "utf-8")
    run(kernel, f"%toolloop resume big {path.as_posix()}")
    run(kernel, "%%toolloop -m m -s big\nGo on.")
    first = json.loads(
        kernel.execute("import json; print(json.dumps(m.requests[-1].messages[0]['content']))").stdout
    )
    assert first[1] == {"type": "text", "text": "[An earlier picture, not kept in the notebook.]"}
    assert first[0]["text"].startswith("Compare ")


def test_a_prompt_from_python(kernel):
    """`agent()` and sessions accept a list. The Result that is shown again has the picture, and the exports name it."""
    code = (
        "from toolloop_jupyter import agent, Harness\n"
        "r = agent(Harness.TOOL_LOOP, ['See', fig, pathlib.Path('report.pdf')], model=m)\nr"
    )
    shown = run(kernel, code)
    assert "· sent PNG picture" in shown.text
    assert "sent report.pdf: PDF, 0 kB" in shown.text
    assert "> See" in shown.text
    written = run(kernel, "%toolloop export run.json\nprint(len(open('run.json').read()))")
    assert int(written.stdout.split()[-1]) < 5_000
