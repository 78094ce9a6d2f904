"""A real LiteLLM proxy in its own environment, on a local port, in front of a scripted server.

The environment is built once under build/stacks/gateway. With `TOOLLOOP_STACK_GATEWAY=/path/to/python`, an existing
environment is used. The pinned release is the newest one whose companion packages are all published.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support import stacks
from support.optional import optional
from support.servers import find_port

PIN = "litellm[proxy]==1.106.12"
PRICES = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.002}
"""The price of the group `coder` in US dollars. The group `unpriced` has no price."""
MASTER, ALLOWED, REVOKED = "sk-master-of-tests", "sk-allowed", "sk-revoked"
START_TIMEOUT = 180.0
"""The most seconds for the start. The import of the proxy alone takes ten seconds or more."""


def python() -> str:
    """Return the Python of the proxy's environment. The first call builds it."""
    if given := os.environ.get("TOOLLOOP_STACK_GATEWAY"):
        return given
    folder = stacks.ROOT / "build" / "stacks" / "gateway"
    executable, stamp = folder / "bin" / "python", folder / "stamp"
    wanted = f"{sys.version_info[:2]} {PIN}"
    with stacks.hold_lock(folder):
        if not (stamp.exists() and stamp.read_text("utf-8") == wanted):
            print(f"building the environment of the gateway ({PIN}) …", file=sys.stderr, flush=True)
            stacks.make_environment(sys.executable, folder, PIN)
            stamp.write_text(wanted, "utf-8")
    return str(executable)


class Proxy:
    """A running proxy. `entries()` returns what its callback has logged."""

    def __init__(self, base_url: str, log: Path) -> None:
        self.base_url = base_url
        self._log = log

    def entries(self, count: int, timeout: float = 20.0) -> list[dict[str, Any]]:
        """Wait for `count` logged calls, and return all of them. The proxy writes its log after it has answered."""
        deadline = time.monotonic() + timeout
        while len(lines := self._log.read_text("utf-8").splitlines()) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(lines)} of {count} calls were logged within {timeout} s")
            time.sleep(0.1)
        return [json.loads(line) for line in lines]

    def forget(self) -> None:
        """Empty the log."""
        self._log.write_text("", "utf-8")


def _group(name: str, upstream: str, prices: dict[str, float]) -> dict[str, Any]:
    parameters = {
        "model": "openai/scripted",
        "api_base": upstream,
        "api_key": "sk-upstream",
        "max_retries": 0,
    }
    return {"model_name": name, "litellm_params": {**parameters, **prices}}


@contextlib.contextmanager
def running(
    folder: Path, upstream: str, *, mcp_servers: Mapping[str, Any] | None = None, **settings: Any
) -> Iterator[Proxy]:
    """Start the proxy with the groups `coder` and `unpriced`, whose provider is at `upstream`. `settings` are its
    `litellm_settings`.
    """
    optional(os.name == "posix", "a POSIX system (for the proxy)")
    shutil.copy(Path(__file__).with_name("proxy_hooks.py"), folder)
    config = {
        "model_list": [_group("coder", upstream, PRICES), _group("unpriced", upstream, {})],
        "general_settings": {"master_key": MASTER, "custom_auth": "proxy_hooks.authenticate"},
        "litellm_settings": {"callbacks": ["proxy_hooks.log"], "num_retries": 0, **settings},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "mcp_servers": dict(mcp_servers or {}),
    }
    (folder / "config.yaml").write_text(json.dumps(config), "utf-8")  # JSON is YAML
    (folder / "log.jsonl").write_text("", "utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LITELLM_", "PYTHON"))}
    environment = {
        **kept,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": MASTER,
        "PROXY_LOG": str(folder / "log.jsonl"),
    }
    command = [str(Path(python()).with_name("litellm")), "--config", "config.yaml", "--host", "127.0.0.1"]
    for _ in range(3):  # another process may take the port before the proxy does
        port = find_port()
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [*command, "--port", str(port)],
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            if _answers(process, f"http://127.0.0.1:{port}/health/liveliness"):
                yield Proxy(f"http://127.0.0.1:{port}", folder / "log.jsonl")
                return
        finally:
            _end(process)
    log_text = (folder / "output.txt").read_text("utf-8")
    raise RuntimeError(f"the proxy did not start; its output ends:\n{log_text[-3000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(15)


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    """Wait until the proxy answers. Return False if its process has ended, or after START_TIMEOUT."""
    deadline = time.monotonic() + START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return process.poll() is None
        time.sleep(0.3)
    return False
