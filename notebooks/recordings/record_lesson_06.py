"""Record lesson-06.jsonl again: needed when the lesson's prompts or tools change, or how tools are described to models.

    python notebooks/recordings/record_lesson_06.py

Runs the lesson's replayed cells against a local stand-in for a gateway, whose lines are below.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

LESSONS = Path(__file__).parents[1]
sys.path.insert(0, str(LESSONS.parent / "tests"))

from support.servers import ScriptedServer, answer, calls  # noqa: E402 - from the tests' folder

FILE = "recordings/lesson-06.jsonl"
PACE = 0.03  # seconds after each piece
LINES = [
    answer("Ready."),  # to WARM_UP
    calls(("find_books", {"author": "Melville"}), content="I'll look at the shelves.", delay=PACE),
    calls(("reserve", {"title": "Moby-Dick", "reader": "Ada"}), content="Two of them are there.", delay=PACE),
    answer("We have *Moby-Dick* and *Typee*. I reserved **Moby-Dick** for Ada.", delay=PACE),
    answer("Please put *Moby-Dick* aside for Ada.", delay=PACE),
]

# LiteLLM's import and its first request take seconds, which are no part of an answer's pace.
WARM_UP = """
import litellm
await litellm.acompletion(model="litellm_proxy/coder", messages=[{"role": "user", "content": "Ready?"}])
"""


def recorded(source: str) -> str:
    """Turn a cell that replays into one that records."""
    head, _, prompt = source.partition("\n")
    return head.replace(f"--replay {FILE}", f"--model litellm_proxy/coder --record {FILE}") + "\n" + prompt


def main() -> None:
    notebook = nbformat.read(LESSONS / "06-real-models-and-the-gateway.ipynb", as_version=4)
    wanted = []
    for cell in notebook.cells:
        tagged = "raises-exception" in cell.metadata.get("tags", [])
        if cell.cell_type != "code" or tagged or "assert_" in cell.source or "--dry-run" in cell.source:
            continue
        if re.match(r"%load_ext|SHELVES", cell.source):
            wanted.append(cell)
        elif f"--replay {FILE}" in cell.source:
            cell.source = recorded(cell.source)
            wanted.append(cell)
    notebook.cells = [nbformat.v4.new_code_cell(WARM_UP), *wanted]
    with ScriptedServer(LINES) as gateway:
        os.environ |= {"LITELLM_PROXY_API_BASE": gateway.base_url, "LITELLM_PROXY_API_KEY": "none"}
        NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(LESSONS)}}
        ).execute()
    print(f"recorded {len((LESSONS / FILE).read_text('utf-8').splitlines())} lines")


if __name__ == "__main__":
    main()
