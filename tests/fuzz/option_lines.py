"""Option lines of `%%toolloop`: words in any order, quotes, data, keys and junk, up to the session that is made from them."""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel

from fuzz.running import told, unexpected_in
from fuzz.seam import KEY, Seam, Seen
from toolloop_jupyter.core.events import HarnessError, Mistake
from toolloop_jupyter.notebook.magic import cell, names, options
from toolloop_jupyter.notebook.magic.options import OPTIONS, Kind
from toolloop_jupyter.teaching import ScriptedModel


class Answer(BaseModel):
    n: int


def look(path: str) -> str:
    """Look."""
    return path


class Hostile:
    """An object whose own code raises errors."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@functools.cache
def _names() -> dict[str, Any]:
    return {
        "__name__": "notebook",
        "look": look,
        "both": [look, len],
        "Answer": Answer,
        "policy": {"look": "ask", "*": "full"},
        "decide": lambda call: "full",
        "model": ScriptedModel("Hi.", name="fuzz-options"),
        "text": "a text",
        "number": 3,
        "nothing": None,
        "my_key": KEY,
        "hostile": Hostile(),
        "place": SimpleNamespace(look=look, inner=SimpleNamespace(number=1)),
        "größe": 1.5,
    }


FLAGS = [flag for option in OPTIONS for flag in option.typed]
VALUES = (  # noqa: SIM905 - one can read it
    "full ask deny policy decide look both look,both place.look place.nope hostile hostile.x model text number nothing my_key Answer int "
    "list[int] toolloop/demo openai/gpt-4o litellm_proxy/ 3 -1 0 1.5 nan inf 1e999 true stop answer card input auto error . /nowhere "
    'OPENAI_API_KEY {{text}} {{hostile}} {{größe}} $text temperature=0 stop=["a",\'b\'] x={"a":{}} n=NaN =1 a= a=b=c http://u:p@h/v1 größe'
).split()
WORD = st.one_of(
    st.sampled_from(FLAGS),
    st.sampled_from(VALUES),
    st.sampled_from(
        (
            f" {KEY}",
            f" api_key={KEY}",
            f" x={KEY}",
            f" --api-key={KEY}",
            f" http://h/v1?key={KEY}",
            f' headers={{"Authorization":"Bearer {KEY}"}}',
        )
    ),
    st.sampled_from(
        (
            "'",
            '"',
            "\\",
            "'a b'",
            '"a b"',
            "#",
            "=",
            "-",
            "--",
            "---",
            "--x",
            "--temperature",
            "--temperature=0.5",
            "--instruction",
            "-h",
            "\u00a0",
            "\x00",
            "\ud83d",
            "[",
            "{1:",
            "{'a': 'b c'}",
            "[1, 'x y']",
            "--set=",
            "--tools=look",
            "-t=",
            "é",
            "\u202e",
        )
    ),
    st.text("ab-=\"'\\{}[],. \u00a0#", max_size=5),
)
BLANK = st.sampled_from((" ", " ", " ", "  ", "\t", "", "\u00a0", "="))


@st.composite
def lines(draw: st.DrawFn) -> dict[str, Any]:
    """Draw {"line"}, or {"line", "means"}: options with values that they accept, with the quotes of a shell."""
    if draw(st.integers(0, 3)) == 0:
        chosen = draw(
            st.lists(
                st.sampled_from(
                    [
                        o
                        for o in OPTIONS
                        if o.typed
                        and o.kind
                        in (Kind.TEXT, Kind.FILE, Kind.FOLDER, Kind.SESSION, Kind.SWITCH, Kind.PAIRS)
                    ]
                ),
                max_size=4,
                unique=True,
            )
        )
        means = {
            o.name: True
            if o.kind is Kind.SWITCH
            else draw(st.text("ab c=-\"'\\{}[]ü", min_size=1, max_size=6))
            for o in chosen
        }
        means = {
            name: f"k={value}" if name in ("set", "metadata") else value for name, value in means.items()
        }
        words = []
        for option in chosen:
            flag = option.typed[-1]
            words.append(flag if option.kind is Kind.SWITCH else f"{flag}={shlex.quote(means[option.name])}")
        return {"line": " ".join(words), "means": means}
    pieces = draw(st.lists(st.tuples(WORD, BLANK), max_size=7))
    return {"line": "".join(word + blank for word, blank in pieces)}


class Shell:
    """The parts of a shell that the state of the magic needs."""

    def __init__(self) -> None:
        self.user_ns = _names()
        self.autoawait = True


def run_line(given: dict[str, Any]) -> Seen:
    """Parse a line, complete its last word, and make the session."""
    seen, line = Seen(), given["line"]
    shell = Shell()
    with unexpected_in(seen):
        try:
            book = cell.Notebook(shell, options.ToolLoop())
            with _a_mistake_is_none(seen):
                typed = options.parse(line, book.names)
                _check_values(seen, typed)
                if "means" in given:
                    right = {
                        name: [value] if name in ("set", "metadata") else value
                        for name, value in given["means"].items()
                    }
                    seen.pairs.append(("what was said", typed, right))
                book.new_session(typed)
            with _a_mistake_is_none(seen):
                names.fill_in(line, book.names)
            word = line.rpartition(" ")[2]
            offered = names.find_candidates(f"%%toolloop {line}", word, book.names)
            seen.texts += [("a candidate", one) for one in list(offered)[:3]]
            seen.texts += [("a note", note) for note, _ in names.note_unknown_names(line, book.names)]
        except Exception as error:  # the fault that is looked for
            seen.escaped.append(told(error))
    return seen


@contextlib.contextmanager
def _a_mistake_is_none(seen: Seen) -> Any:
    """In this context, an error of ours counts as a mistake of the person. Note its text, which must not be empty."""
    try:
        yield
    except HarnessError as error:
        seen.texts.append(("a mistake", str(error)))
        if isinstance(error, Mistake) and not str(error).strip():
            seen.escaped.append("a mistake without words")


def _check_values(seen: Seen, said: dict[str, Any]) -> None:
    """Check that the table allows each value that was read, and that the value is read again unchanged."""
    for option in OPTIONS:
        if option.name in said:
            value = said[option.name]
            seen.pairs.append((f"{option.name} read again", option.read(value, _names()), value))
            json.dumps(value, allow_nan=False)


OPTION_LINES = Seam("options", "option lines of the magic", lines(), run_line, share=15, quick=150)
