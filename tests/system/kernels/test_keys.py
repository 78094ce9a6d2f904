"""Guarantee: in a notebook, a key is in no output, traceback, recording or export."""

from __future__ import annotations

import json

import pytest

from support.kernels import LiveKernel
from support.leaks import KEY, PASSWORD, echoing
from support.servers import ScriptedServer, answer, calls

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel():
    with LiveKernel(env={"STUB_API_KEY": KEY, "ADDRESS": f"https://me:{PASSWORD}@127.0.0.1:9/v1"}) as live:
        live.execute("%load_ext toolloop_jupyter\nimport os", timeout=120)
        live.execute("%%toolloop\nWarm up.", timeout=120)
        yield live


CELLS = {
    "--api-key": "%%toolloop -m openai/stub --api-base {base} --api-key STUB_API_KEY --as r\nGo.",
    "defaults": "%toolloop -m openai/stub --api-base {base} --api-key STUB_API_KEY\n%toolloop",
    "recording": "%%toolloop -m openai/stub --api-base {base} --api-key STUB_API_KEY --record {folder}/tape.jsonl\nGo.",
    "dry run": "%%toolloop --dry-run -m openai/stub --api-base {base} --api-key STUB_API_KEY\nGo.",
    "mistake": "from toolloop_jupyter import agent, Harness\nagent(Harness.TOOL_LOOP, 'Go.', model='openai/stub', "
    "api_key=os.environ['STUB_API_KEY'], max_turns=0)",
    "type mistake": "agent('tool_loop', 'Go.', model='openai/stub', api_key=os.environ['STUB_API_KEY'])",
    "sync api": "r = agent(Harness.TOOL_LOOP, 'Go.', model='openai/stub', api_base='{base}', "
    "api_key=os.environ['STUB_API_KEY'])\nprint(r.text)\nr",
    "address": "get_ipython().run_line_magic('config', 'ToolLoop.api_base = \"' + os.environ['ADDRESS'] + '\"')\n"
    "%toolloop\n%toolloop --api-base {base}",
    "export": "%toolloop export {folder}/run.json\n%toolloop export {folder}/run.md\n%toolloop export {folder}/run.html\n"
    "%toolloop show",
}


@pytest.mark.parametrize("mode", ["Context", "Verbose"])
def test_no_output_has_it(kernel, tmp_path, mode):
    """The key is in no output, even under `%xmode Verbose`: a server repeats the request in its error, a cell has a mistake,
    a dry run, a recording, an export.
    """
    kernel.execute(f"%xmode {mode}")
    with echoing() as server:
        for cell in CELLS.values():
            kernel.execute(cell.format(base=server.base_url, folder=tmp_path.as_posix()))
        assert KEY in str([r.headers for r in server.requests])
    everything = json.dumps([m["content"] for m in kernel.messages], default=str)
    files = "".join(path.read_text() for path in tmp_path.iterdir())
    assert KEY not in everything.replace(json.dumps(KEY), "")
    assert PASSWORD not in everything
    assert KEY not in files
    assert sorted(path.name for path in tmp_path.iterdir())[:3] == ["run.html", "run.json", "run.md"]


def test_an_interrupted_call_under_verbose(kernel):
    """■ during a sync call with a key, under `%xmode Verbose`: no frame of this package shows the key."""
    kernel.execute("%xmode Verbose")
    with ScriptedServer([answer("late", stall=20.0)]) as server:
        before = len(kernel.messages)
        cell = kernel.submit(
            f"agent(Harness.TOOL_LOOP, 'Go.', model='openai/stub', api_base='{server.base_url}', "
            "api_key=os.environ['STUB_API_KEY'])"
        )
        server.wait_for_requests(1)
        kernel.interrupt()
        kernel.wait(cell)
    assert KEY not in str([m["content"] for m in kernel.messages[before:]])


@pytest.mark.parametrize(
    "line",
    [
        "--set api_key=opaque-typed-key-1",
        '--set extra_headers={"Authorization":"opaque-typed-key-1"}',
        "--api-key opaque-typed-key-1",
        "--api-key deadbeef0123cafe4567",
    ],
)
def test_a_key_typed_into_a_cell_is_refused(kernel, line):
    """No option takes a literal key, and the message does not repeat it."""
    done = kernel.execute(
        f"%%toolloop -m openai/stub '{line.split(' ', 1)[0]}' '{line.split(' ', 1)[1]}'\nGo."
    )
    assert done.status == "error"
    shown = done.text + str(done.error)
    assert "opaque-typed" not in shown
    assert "deadbeef" not in shown
    assert "--api-key" in shown


def test_kept_history_and_recordings_have_no_key(kernel, tmp_path):
    """A run succeeds with --keep-history and --record: neither the outputs nor the files have the key."""
    kernel.execute("%xmode Context")
    with ScriptedServer([calls(("nothing", {})), answer("Fine.")]) as server:
        before = len(kernel.messages)
        kernel.execute(
            f"%%toolloop -m openai/stub --api-base {server.base_url} --api-key STUB_API_KEY -s kept --keep-history "
            f"--record {tmp_path.as_posix()}/t.jsonl\nGo."
        )
        kernel.execute(f"%toolloop save kept {tmp_path.as_posix()}/s.json\n%toolloop history kept")
        assert KEY in str([r.headers for r in server.requests])
    assert KEY not in str([m["content"] for m in kernel.messages[before:]])
    assert [path.name for path in tmp_path.iterdir() if KEY in path.read_text()] == []
