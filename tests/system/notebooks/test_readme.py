"""The README is true: its options, commands and files exist, and its code runs."""

import re

import pytest

from support.kernels import LiveKernel
from support.stacks import STACKS
from system.parity.differences import table
from toolloop_jupyter.notebook.magic import commands, options


@pytest.fixture(scope="module")
def readme(repository):
    return (repository / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def pages(repository):
    """The README and the pages of docs, by their paths."""
    paths = [repository / "README.md", *sorted((repository / "docs").glob("*.md"))]
    return {path: path.read_text("utf-8") for path in paths}


def test_the_options_of_the_readme_are_options_of_the_magic(readme):
    """The README's table has six options, which all exist. docs/options.md has all options."""
    table = readme.split("\n## The magic\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.replace("\\|", "/").splitlines() if line.startswith("| `")]
    told = set(re.findall(r"(?<!\w)--?[a-z][\w-]*", "\n".join(rows)))
    assert len(rows) == 6
    assert told <= set(re.findall(r"(?<!\w)--?[a-z][\w-]*", options.list_options()))


def test_every_command_of_the_line_magic_is_named(pages):
    """Each command of `%toolloop` is in the README or in a page of docs."""
    told = "".join(pages.values())
    assert [
        word for word in commands.COMMANDS if f"`{word}`" not in told and f"%toolloop {word}" not in told
    ] == []


def test_the_readme_is_short(readme):
    """The README has at most 149 lines. The guide is in docs."""
    assert len(readme.splitlines()) <= 149


def test_links_lead_to_files(pages):
    """Each link and each picture is a web address or a file of this repository."""
    broken = []
    for page, text in pages.items():
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)|(?:src|srcset)=\"([^\"]+)\"", text)
        local = [a or b for a, b in links if "://" not in (a or b)]
        broken += [(page.name, link) for link in local if not (page.parent / link).exists()]
    assert broken == []


def test_every_notebook_is_in_the_index(readme, repository):
    """The table of notebooks has every notebook."""
    assert [
        p.name
        for p in sorted((repository / "notebooks").glob("*.ipynb"))
        if f"(notebooks/{p.name})" not in readme
    ] == []


def test_python_examples_run(readme, capsys):
    """The Python code of the guide runs unchanged, on the demonstration model."""
    blocks = [b for b in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "%load_ext" not in b]
    names = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "`word_count` says: `4`" in printed
    assert "`word_count` says: `3`" in printed


@pytest.mark.kernel
def test_the_first_cells_run_in_a_notebook(readme):
    """A reader's first two cells run unchanged and without a key: the card appears, and the model answers."""
    part = readme.split("\n## Try it\n")[1].split("\n## ")[0]
    begin, ask = re.findall(r"```(?:python)?\n(.*?)```", part, re.DOTALL)
    with LiveKernel() as kernel:
        assert kernel.execute(begin).status == "ok"
        run = kernel.submit(ask, allow_stdin=True)
        kernel.click("Approve")
        kernel.wait(run)
    assert run.status == "ok"
    assert "`word_count` says: `4`" in run.text


def between(readme, name):
    return readme.split(f"<!-- {name}:begin -->\n")[1].split(f"<!-- {name}:end -->")[0]


def test_the_differences_to_litellm_are_those_that_are_tested(readme, repository):
    """docs/differences.md has the table that `python -m tests.system.parity` prints, and the README has ten rows of it."""
    printed_table = between((repository / "docs" / "differences.md").read_text("utf-8"), "beyond")
    assert printed_table.strip() == table().strip(), (
        "docs/differences.md: put what `python -m tests.system.parity` prints between the marks"
    )
    chosen = readme.split("\n## Beyond LiteLLM's Tool Loop\n")[1].split("\n## ")[0]
    rows = [line for line in chosen.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) == 10
    assert [row for row in rows if row not in printed_table] == []


def test_the_stacks_are_those_that_are_tested(readme):
    """The README's table has the Python and the older versions of each stack that the tests build."""
    table = between(readme, "stacks")
    for stack in STACKS:
        exact = [
            pin.partition("==")[2].removesuffix(".*")
            for pin in stack.pins
            if "==" in pin and "pydantic" not in pin
        ]
        assert stack.python in table
        assert [v for v in exact if v.removesuffix(".0") not in table] == []
