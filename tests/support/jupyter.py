"""A Jupyter server with JupyterLab and Notebook 7, and notebooks to open in it.

The machine's settings have no effect: the root, configuration, data, settings, runtime and IPython folders are new, the kernel
is the Python that runs the tests, and the server asks nobody for news.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

from .servers import find_port

_OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
"""Settings of both front-ends: no pop-up asks for news; a notebook is saved only when the test saves it; cells out of sight
are rendered, too.
"""


class JupyterServer:
    """See the module. `root` is the folder that the front-ends show; `log` has what the server printed."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="jupyter-server-"))
        self.root = self._home / "root"
        self.log = self._home / "server.log"
        self._settings = self._home / "settings"
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._shared = ""
        self._has_settings = False

    def __enter__(self) -> JupyterServer:
        self.root.mkdir()
        self._write("config/labconfig/default_setting_overrides.json", _OVERRIDES)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._write(
            "data/kernels/python3/kernel.json",
            {"argv": argv, "display_name": "Python 3", "language": "python"},
        )
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._stop_kernels()
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    # --- files --------------------------------------------------------------------------------------------

    def notebook(self, name: str, cells: Sequence[str], **metadata: Any) -> str:
        """Write a notebook of code cells. Return its path for the front-ends."""
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        made.metadata.update(kernelspec={"name": "python3", "display_name": "Python 3"}, **metadata)
        nbformat.write(made, self.root / name)
        return name

    def write(self, name: str, notebook: Any, **metadata: Any) -> None:
        """Write a notebook with something else in its metadata; the signature of the one that ran it is no more."""
        notebook.metadata.update(metadata)
        nbformat.write(notebook, self.root / name)

    def read(self, name: str) -> Any:
        """Return a notebook as it was saved."""
        return nbformat.read(self.root / name, as_version=4)

    def settings(self, plugin: str, values: dict[str, Any] | None) -> None:
        """Set a person's settings for a plugin of a front-end ("@jupyterlab/…:name"). None removes them."""
        package, _, name = plugin.partition(":")
        self._has_settings = True
        file = self._settings / package / f"{name}.jupyterlab-settings"
        file.unlink(missing_ok=True)
        if values is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values), "utf-8")

    def forget_settings(self) -> bool:
        """Remove all settings, also those that a front-end has written. Return True if one of them came from `settings`."""
        shutil.rmtree(self._settings, ignore_errors=True)
        had, self._has_settings = self._has_settings, False
        return had

    # --- kernels ------------------------------------------------------------------------------------------

    def share_kernel(self, name: str) -> str:
        """Connect a notebook to the kernel that all tests share, so that litellm is imported only once. Return the kernel's id."""
        alive = {kernel["id"] for kernel in self.api("GET", "kernels")}
        kernel = {"id": self._shared} if self._shared in alive else {"name": "python3"}
        made = self.api(
            "POST", "sessions", {"path": name, "name": name, "type": "notebook", "kernel": kernel}
        )
        self._shared = made["kernel"]["id"]
        return self._shared

    def kernel_of(self, name: str) -> str:
        """Return the id of the kernel to which a notebook is connected."""
        return next(s["kernel"]["id"] for s in self.api("GET", "sessions") if s["path"] == name)

    def interrupt(self, name: str) -> None:
        self.api("POST", f"kernels/{self.kernel_of(name)}/interrupt")

    def end_shared_kernel(self) -> None:
        """End the shared kernel, in which a failed test may have left something that waits. The next test gets a new one."""
        if self._shared in {kernel["id"] for kernel in self.api("GET", "kernels")}:
            self.api("DELETE", f"kernels/{self._shared}")

    def end_own_kernels(self) -> None:
        """End all kernels except the shared one."""
        for kernel in self.api("GET", "kernels"):
            if kernel["id"] != self._shared:
                self.api("DELETE", f"kernels/{kernel['id']}")

    def close(self, name: str) -> None:
        """End the notebook's own kernel."""
        self.api("DELETE", f"kernels/{self.kernel_of(name)}")

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the server's REST interface. Return the JSON of the response."""
        data = json.dumps(body).encode() if body is not None else b"" if method == "POST" else None
        request = urllib.request.Request(f"{self.url}/api/{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text else None

    # --- inside -------------------------------------------------------------------------------------------

    def _write(self, name: str, content: Any) -> None:
        file = self._home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content), "utf-8")

    def _start(self) -> None:
        for _ in range(3):  # another process may take the port before the server does
            port = find_port()
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command(port),
                    cwd=self.root,
                    env=self._environment(),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self.url = f"http://127.0.0.1:{port}"
            if self._answers(180):
                return
        raise self._failure()

    def _failure(self) -> TimeoutError:
        said = self.log.read_text("utf-8")
        return TimeoutError(f"the Jupyter server does not answer; it said:\n{said[-3000:]}")

    def _command(self, port: int) -> list[str]:
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.root,
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
            "ServerApp.disable_check_xsrf": True,
            "IdentityProvider.token": "",
            "LabApp.expose_app_in_browser": True,
            "JupyterNotebookApp.expose_app_in_browser": True,
            "LabApp.news_url": "None",
            "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        }
        return [
            sys.executable,
            "-m",
            "jupyterlab",
            *(f"--{key}={value}" for key, value in options.items()),
        ]

    def _environment(self) -> dict[str, str]:
        ours = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("JUPYTER", "JPY_", "IPYTHON"))
        }
        made = {key: str(self._home / folder) for key, folder in ours.items()}
        # Our kernel spec in the data folder comes before a spec of the environment.
        return {**kept, **made, "JUPYTER_PREFER_ENV_PATH": "0", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

    def _answers(self, seconds: float) -> bool:
        """Wait until the server answers. Return False if its process has ended. Raises TimeoutError after the time limit."""
        assert self._process is not None
        end = time.monotonic() + seconds
        while self._process.poll() is None:
            try:
                self.api("GET", "status")
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError):
                time.sleep(0.2)  # or another program uses this port, and its answer is not JSON
            else:
                return self._process.poll() is None
            if time.monotonic() > end:
                raise self._failure()
        return False

    def _stop_kernels(self) -> None:
        try:
            for kernel in self.api("GET", "kernels"):
                self.api("DELETE", f"kernels/{kernel['id']}")
        except (urllib.error.URLError, OSError):
            pass  # the server is gone, and its kernels with it
