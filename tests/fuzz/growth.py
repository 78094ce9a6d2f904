"""Growth: a piece of foreign data is repeated. For so many times the data, there must not be more than so many times the
steps.

The Markdown parser is a library, and slower than that for some texts. So for it, the longest text must take a limited number
of steps. Steps are lines and calls of Python, as in tests/core/test_growth.py. Nothing is timed. Option lines are left out: a
person types them, and argparse reads all words again for each unknown one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from core.test_growth import lines_run
from fuzz.histories import MESSAGE
from fuzz.running import NAMES, told
from fuzz.seam import Seam, Seen
from fuzz.streams import spoilt
from fuzz.values import VALUES, make_value
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.models.assembly import Assembly
from toolloop_jupyter.core.results import describe
from toolloop_jupyter.core.tools.arguments import InvalidArguments, parse_arguments
from toolloop_jupyter.notebook.html import render_markdown
from toolloop_jupyter.teaching.tape import RecordingError, load_tape

FEW, MANY = 20, 160
MOST_OF_MARKDOWN = 30_000_000
"""The most steps for a text of any length. They take about half a second."""
FOLDER = tempfile.TemporaryDirectory(prefix="toolloop-fuzz-")
CALM = sorted(
    set(VALUES) - {"many", "long text", "deep", "everything", "range", "file", "module", "odd attributes"}
)


def _assemble(deltas: list[Any], times: int) -> None:
    assembly = Assembly(NAMES)
    for delta in deltas * times:
        assembly.add(delta)
    assembly.message()


def _renumbered(deltas: list[Any], times: int) -> None:
    """Return as many calls as there are repetitions, each with its own index and id."""
    assembly = Assembly(NAMES)
    for number, delta in itertools.product(range(times), [dict(delta) for delta in deltas]):
        calls = delta.get("tool_calls") or ()
        copies = [
            {**one, "index": number * 10 + (one.get("index") or 0), "id": f"{one.get('id')}-{number}"}
            for one in calls
        ]
        assembly.add({**delta, **({"tool_calls": copies} if copies else {})})
    assembly.message()


def _read_arguments(piece: str, times: int) -> None:
    with contextlib.suppress(InvalidArguments):
        parse_arguments(piece * times)


def _repair(messages: list[Any], times: int) -> None:
    history.validate(messages * times)
    history.repair(messages * times)


def _load(lines: str, times: int) -> None:
    path = Path(FOLDER.name, "tape.jsonl")
    path.write_text(
        '{"toolloop-recording": 1}\n{"call": 1, "model": "m"}\n' + lines * times, encoding="utf-8"
    )
    with contextlib.suppress(RecordingError):
        load_tape(path)


def _describe(given: Any, times: int) -> None:
    describe([make_value(given) for _ in range(times)])


READERS: dict[str, Callable[[Any, int], None]] = {
    "deltas": _assemble,
    "calls": _renumbered,
    "arguments": _read_arguments,
    "messages": _repair,
    "tape": _load,
    "value": _describe,
}
LINE = st.builds(
    json.dumps,
    st.one_of(
        st.just({"call": 2, "kept": 3, "tools": "kept"}),
        st.just({"tool": {"name": "f"}}),
        st.just({"sent": {"role": "user", "content": "x"}}),
        st.just({"at": 0, "delta": {"content": "x"}}),
        st.just({"end": {}}),
    ),
)
PIECES: dict[str, st.SearchStrategy[Any]] = {
    "deltas": spoilt().map(lambda made: made["deltas"]),
    "calls": spoilt().map(lambda made: made["deltas"]),
    "arguments": st.lists(
        st.sampled_from(
            ('{"a":', "1", "[", "]", "}", ",", '"', "\\", "\\u00e9", " ", "null", "\n", '"a":[1,2],', "{}")
        ),
        min_size=1,
        max_size=5,
    ).map("".join),
    "messages": st.lists(MESSAGE, min_size=1, max_size=4),
    "tape": st.lists(LINE, min_size=1, max_size=3).map(lambda lines: "\n".join([*lines, ""])),
    "value": st.sampled_from(CALM).map(lambda name: {"odd": name}),
    "markdown": st.lists(
        st.sampled_from(
            (
                "*",
                "_",
                "[",
                "](x)",
                "`",
                "```\n",
                "> ",
                "- ",
                "\n",
                "\n\n",
                "a ",
                "<b>",
                "|",
                "|-|\n",
                "$",
                "![",
                "\\",
                "&amp;",
                "http://x ",
                "1. ",
                "# ",
            )
        ),
        min_size=1,
        max_size=5,
    ).map("".join),
}
INPUTS = st.sampled_from(sorted(PIECES)).flatmap(
    lambda what: PIECES[what].map(lambda piece: {"what": what, "piece": piece})
)


def run_growth(given: dict[str, Any]) -> Seen:
    """Read the piece a few times, and many times, and count the steps."""
    seen = Seen()
    try:
        if given["what"] == "markdown":
            for size in (1_000, 5_000, 20_000, 100_000):
                text = given["piece"] * (size // len(given["piece"]))
                steps = lines_run(lambda text=text: render_markdown(text))  # type: ignore[misc]
                seen.steps.append((f"markdown of {size} characters", MOST_OF_MARKDOWN, steps, 1 / 1.5))
            return seen
        read = READERS[given["what"]]
        read(given["piece"], FEW)  # caches
        few, many = (lines_run(lambda times=times: read(given["piece"], times)) for times in (FEW, MANY))  # type: ignore[misc]
        seen.steps.append((given["what"], few, many, MANY / FEW))
    except Exception as error:  # the fault that is looked for
        seen.escaped.append(told(error))
    return seen


GROWTH = Seam("growth", "pieces of all of these, repeated", INPUTS, run_growth, share=2, quick=8)
