"""The README says what is there: options, commands, files, code that runs."""

import re

import pytest

from parity.differences import table
from support.stacks import STACKS
from toolloop_jupyter.notebook.magic import commands, options


@pytest.fixture(scope="module")
def readme(repository):
    return (repository / "README.md").read_text("utf-8")


def test_every_option_is_in_the_table(readme):
    """The table of options has each flag of the magic, and no other."""
    table = readme.split("\n## The magic\n")[1].split("\n## ")[0]
    rows = "\n".join(
        line.split("|")[1].replace("\\", "")
        for line in table.replace("\\|", "/").splitlines()
        if line.startswith("|")
    )
    told = set(re.findall(r"(?<!\w)--?[a-z][\w-]*", rows))
    there = set(
        re.findall(
            r"(?m)(?<!\S)--?[a-z][\w-]*",
            "\n".join(line[:36] for line in options.help_text().replace(",", "").splitlines()),
        )
    )
    assert told == there


def test_every_command_of_the_line_magic_is_named(readme):
    """Each word that `%toolloop` knows is in the guide."""
    assert [
        word for word in commands.COMMANDS if f"`{word}`" not in readme and f"%toolloop {word}" not in readme
    ] == []


def test_links_lead_to_files(readme, repository):
    """Each link and picture that is no web address is a file of this repository."""
    links = re.findall(r"\]\(([^)#\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", readme)
    local = [a or b for a, b in links if "://" not in (a or b)]
    assert [link for link in local if not (repository / link).exists()] == []


def test_every_notebook_is_in_the_index(readme, repository):
    """No notebook is missing from the table of notebooks."""
    assert [
        p.name
        for p in sorted((repository / "notebooks").glob("*.ipynb"))
        if f"(notebooks/{p.name})" not in readme
    ] == []


def test_python_examples_run(readme, capsys):
    """The Python of the guide runs as it stands, on the demonstration model."""
    blocks = [b for b in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "%load_ext" not in b]
    names = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "`word_count` says: 4" in printed
    assert "`word_count` says: 3" in printed


def between(readme, name):
    return readme.split(f"<!-- {name}:begin -->\n")[1].split(f"<!-- {name}:end -->")[0]


def test_the_differences_to_litellm_are_those_that_are_tested(readme):
    """The table is the one that `python -m tests.parity` prints."""
    assert between(readme, "beyond").strip() == table().strip(), (
        "README.md: put what `python -m tests.parity` prints between the marks"
    )


def test_the_stacks_are_those_that_are_tested(readme):
    """Each stack that the tests build has its Python, and its older versions, in the table."""
    told = between(readme, "stacks")
    for stack in STACKS:
        exact = [
            pin.partition("==")[2].removesuffix(".*")
            for pin in stack.pins
            if "==" in pin and "pydantic" not in pin
        ]
        assert stack.python in told
        assert [v for v in exact if v.removesuffix(".0") not in told] == []
