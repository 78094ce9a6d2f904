"""A scripted provider in another process, so that its work is not measured.

As a script, it prints its address, and serves until its input ends.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODEL = "openai/bench"
PRICE = {
    "input_cost_per_token": 1e-6,
    "output_cost_per_token": 1e-6,
    "litellm_provider": "openai",
    "mode": "chat",
}
"""The model that is measured, and its price for LiteLLM."""
STEPS = int(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else 20
"""Tool calls of a run."""


def next_entry(received: Any) -> Any:
    """Return a call of the first tool until there are STEPS results after the last user message; then an answer."""
    done = 0
    for message in reversed(received.messages):
        if message["role"] == "user":
            break
        done += message["role"] == "tool"
    if done >= STEPS:
        return {"content": "Done."}
    name = received.tools[0]["function"]["name"]
    return {"tool_calls": [{"id": f"c{len(received.messages)}", "name": name, "arguments": '{"a": 1}'}]}


@contextlib.contextmanager
def serving(steps: int = STEPS) -> Iterator[str]:
    """Run the provider. Gives its base URL."""
    command = [sys.executable, __file__, str(steps)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.servers import ScriptedServer

    with ScriptedServer(next_entry) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()
