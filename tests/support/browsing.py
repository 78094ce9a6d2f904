"""A notebook in JupyterLab or Notebook 7. A test uses it as a person does, and everything that must not happen is noted.

    with browser_context(chromium) as context, Desk(server, context.new_page()) as desk:
        desk.open("a.ipynb")
        desk.run_all()
        desk.click("Approve")
        desk.wait_for("done ·")

Each wait has a time limit. The error after it says what was on the page.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from .jupyter import JupyterServer
from .optional import CHROMIUM_FLAGS

App = Literal["lab", "notebook"]

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE = 180.0
"""The most seconds of a wait. They are enough for a very busy machine. Only a failure takes so long."""
NOWHERE = "about:blank"
_ADDRESSES: dict[App, str] = {"lab": "lab/tree", "notebook": "notebooks"}

# The front-ends' own messages. They also come for a notebook without our package (JupyterLab 4.6, Notebook 7.6).
_NOT_OURS = re.compile(
    r"\(reading 'schema'\)|Command 'filebrowser:open-path' not registered|favicon|\[yjs#509\]|websocket.*(?:clos|fail)",
    re.IGNORECASE,
)

# The browser finds only the server's name, and uses no proxy. Playwright's `page.route` could block requests, too, but a page
# with a route has no cache, so each page would load all of JupyterLab again.
_NO_OUTSIDE = ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--no-proxy-server")

_CONTEXT = "(w => w?.context?.sessionContext)(window.jupyterapp?.shell?.currentWidget)"
_SHOWN = "(w => w?.content?.widgets)(window.jupyterapp?.shell?.currentWidget)"
_IDLE = f"() => {_CONTEXT}?.session?.kernel?.status === 'idle' && {_CONTEXT}.session.kernel.connectionStatus === 'connected'"
_DONE = "(widgets => widgets.every(c => c.model.type !== 'code' || c.model.executionState === 'idle' || !c.prompt?.includes?.('*')) && widgets.every(c => c.model.type !== 'code' || !(c.inputArea?.promptNode?.innerText ?? '').includes('*')))"
_AT_REST = f"() => (kernel => !kernel || kernel.status === 'dead' || kernel.status === 'idle' && {_DONE}({_SHOWN} ?? []))({_CONTEXT}?.session?.kernel)"
_IS_LAB = "() => !!window.jupyterapp?.commands.hasCommand('application:close-all')"
_IS_AS_LOADED = f"() => ({_IS_LAB})() && document.body.dataset.jpThemeLight === 'true'"
_STILL = "() => document.getAnimations().every(a => a.playState !== 'running' || a.effect.getComputedTiming().endTime === Infinity)"
_END_WATCHES = "() => { for (const end of window.watches?.splice(0) ?? []) end(); }"
_OPEN = "[...window.jupyterapp.shell.widgets('main')].filter(w => w.context)"
_CLOSE_ALL = f"""() => {{
    for (const widget of {_OPEN}) {{ widget.context.model.dirty = false; widget.close(); }}
    window.jupyterapp.shell.expandLeft();
}}"""
_OPEN_HERE = "async path => { await window.jupyterapp.commands.execute('docmanager:open', {path}); }"


def _button(label: str) -> str:
    return f"button.tlj-btn:enabled:text-is({label!r})"


@contextmanager
def browser_context(chromium: str, **options: Any) -> Iterator[Any]:
    """A headless Chromium with one context. All its pages share one cache."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*CHROMIUM_FLAGS, *_NO_OUTSIDE])
        yield browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        browser.close()


class SharedPage:
    """A page that several tests use, one after the other. It is made when a test first needs it, and again after `drop`."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._page: Any = None

    def __enter__(self) -> SharedPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    @property
    def page(self) -> Any:
        if self._page is None:
            self._page = self._context.new_page()
        return self._page

    @contextmanager
    def desk(self, server: JupyterServer, has_failed: Callable[[], bool] = lambda: False) -> Iterator[Desk]:
        """Return a Desk on this page. At its end, nothing is left for the next test: no settings, and no kernel but the shared one.

        After a failure, the page and the shared kernel are closed, because something may still wait in them.
        """
        is_fine = False
        try:
            with Desk(server, self.page) as desk:
                try:
                    yield desk
                    if not has_failed():
                        desk.come_to_rest()
                        is_fine = True
                finally:
                    if not is_fine:
                        self.drop()
        finally:
            if not is_fine:
                server.end_shared_kernel()
            server.end_own_kernels()
            if server.forget_settings() and self._page is not None:
                self._page.goto(NOWHERE)

    def drop(self) -> None:
        """Close the page."""
        if self._page is not None:
            self._page.close(run_before_unload=False)
            self._page = None


class Desk:
    """What one test does on a page, which other tests may have used before.

    `errors` has the console's errors and uncaught exceptions. `outside` has the requests to other machines; the browser of
    `browser_context` does not send them.
    """

    def __init__(self, server: JupyterServer, page: Any) -> None:
        self.server = server
        self.page = page
        self.page.set_default_timeout(PATIENCE * 1000)
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.dialogs: list[str] = []
        self.app: App = "lab"
        self.clicks_over: list[str] = []
        """For each click, the way that it took to the kernel: "subshell" or "main shell"."""
        self._size = page.viewport_size
        self._listeners: dict[str, Callable[[Any], None]] = {
            "websocket": self._socket,
            "console": lambda message: self._note(message.text) if message.type == "error" else None,
            "pageerror": lambda error: self._note(f"uncaught: {error}"),
            "dialog": self._dialog,
            "popup": lambda popup: self.outside.append(f"window {popup.url}"),
            "request": lambda request: self._requested(request.url),
        }

    def __enter__(self) -> Desk:
        for event, listener in self._listeners.items():
            self.page.on(event, listener)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the page as the next test expects it: the same size and sidebar, nothing open. If this fails, close the page."""
        if not self.page.is_closed():
            self.page.evaluate(_END_WATCHES)
            self.page.emulate_media(media="null")
            self.page.set_viewport_size(self._size)
            if self.page.evaluate(_IS_AS_LOADED):
                self._close_notebooks()
            else:
                self.page.goto(NOWHERE)
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    # --- notebook -----------------------------------------------------------------------------------------

    def open(self, name: str, app: App = "lab", *, kernel: bool = True, anew: bool = False) -> None:
        """Open a notebook. Wait until it is there and, unless `kernel` is false, until its kernel is idle.

        If the page shows JupyterLab already, the notebook is opened there: this takes a fifth of the processor time. With
        `anew`, the page is loaded again: for changed settings, and to remove what a script may have left.
        """
        self.app = app
        if app == "lab" and not anew and self.page.evaluate(_IS_LAB):
            self._close_notebooks()
            self.page.evaluate(_OPEN_HERE, name)
        else:
            query = "?reset" if app == "lab" else ""  # JupyterLab opens no notebook of the last page
            self.page.goto(f"{self.server.url}/{_ADDRESSES[app]}/{name}{query}")
        self.see(self.page.locator(".jp-Notebook .jp-Cell"), f"the notebook {name}")
        if kernel:
            self.until(_IDLE, "an idle kernel")

    def choose_no_kernel(self) -> None:
        """Choose no kernel. The front-end asks this if the notebook's own kernel does not exist."""
        dialog = self.page.locator(".jp-Dialog")
        self.see(dialog, "the question for a kernel")
        dialog.locator("button:has-text('No Kernel')").click()
        dialog.wait_for(state="hidden")

    def menu(self, menu: str, item: str) -> None:
        """Choose an item of the menu bar."""
        self.page.click(f".lm-MenuBar-itemLabel:text-is({menu!r})")
        self.page.click(f".lm-Menu-itemLabel:text-is({item!r})")

    def run_all(self) -> None:
        self.menu("Run", "Run All Cells")

    def save(self) -> None:
        """Save the notebook, and wait until the file is written."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")

    def until(self, condition: str, what: str, timeout: float = PATIENCE, argument: Any = None) -> Any:
        """Wait until a JavaScript function returns a true value. The AssertionError after the time limit says what is on the page."""
        return self._waiting(
            lambda: self.page.wait_for_function(condition, arg=argument, timeout=timeout * 1000), what
        )

    def read_until(self, script: str, expected: Any) -> Any:
        """Call a JavaScript function until it returns `expected`. Return its last value, so that the test can compare it."""
        end = time.monotonic() + PATIENCE
        while (found := self.page.evaluate(script)) != expected and time.monotonic() < end:
            self.page.wait_for_timeout(50)
        return found

    def until_noted(self, is_there: Callable[[], bool], what: str) -> None:
        """Wait until something is in `outside`, `dialogs` or another list of this page. The browser adds it a moment later."""
        end = time.monotonic() + PATIENCE
        while not is_there():
            assert time.monotonic() < end, f"waited for {what}: {self.outside} {self.dialogs} {self.errors}"
            self.page.wait_for_timeout(20)

    def wait_for(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait for a text in the outputs."""
        condition = "text => [...document.querySelectorAll('.jp-OutputArea-output')].some(e => e.textContent.includes(text))"
        self.until(condition, f"the output {text!r}", timeout, text)

    def wait_until_done(self, timeout: float = PATIENCE) -> None:
        """Wait until every cell has run: none shows [*]."""
        self.until(f"() => {_DONE}({_SHOWN})", "all cells to have run", timeout)

    def come_to_rest(self) -> None:
        """Wait until the notebook's kernel has nothing to do, so that it sends nothing to the next test."""
        self.until(_AT_REST, "a kernel at rest")

    def watch(self, begin: str) -> None:
        """Call a JavaScript function that begins to watch something. At the end, the function that it returns is called, to stop."""
        self.page.evaluate(f"() => {{ (window.watches ??= []).push(({begin})()); }}")

    def cell(self, number: int) -> Any:
        """The output area of a cell, counted from 0."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number).locator(".jp-Cell-outputArea")

    def text_of(self, number: int) -> str:
        return str(self.cell(number).inner_text())

    def set_theme(self, name: Literal["Light", "Dark"]) -> None:
        """Change JupyterLab's theme. Wait for its styles, and until its colours have faded and its splash screen is gone: two
        splash screens at the same time are an error of JupyterLab.
        """
        self.page.evaluate(
            "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})",
            f"JupyterLab {name}",
        )
        is_light = "true" if name == "Light" else "false"
        self.until(f"() => document.body.dataset.jpThemeLight === '{is_light}'", "the theme")
        self.until("() => !document.querySelector('#jupyterlab-splash')", "the end of the splash")
        self.until(_STILL, "the end of what fades or moves")

    # --- what a person clicks ------------------------------------------------------------------------------

    def button(self, label: str) -> Any:
        """Return our enabled buttons with this label."""
        return self.page.locator(f".jp-OutputArea {_button(label)}")

    def click(self, label: str, timeout: float = PATIENCE) -> None:
        """Wait for a button in an output, and click it."""
        button = self.button(label).first
        self._waiting(
            lambda: button.wait_for(state="visible", timeout=timeout * 1000), f"the button {label!r}"
        )
        button.click()

    def see(self, locator: Any, what: str, timeout: float = PATIENCE) -> None:
        """Wait until something is visible."""
        self._waiting(lambda: locator.first.wait_for(state="visible", timeout=timeout * 1000), what)

    def see_number(self, locator: Any, number: int, what: str) -> None:
        """Wait until this number of elements fits the locator. Widgets come and go a moment later than the rest of an output."""
        self.until_noted(lambda: locator.count() == number, what)

    def button_or(self, label: str, number: int, text: str) -> Any:
        """Wait for the button or for the text in this cell. Return the button's element; None if the text came first."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if buttons := self.cell(number).locator(_button(label)).element_handles():
                return buttons[0]
            if text in self.text_of(number):
                return None
            self.page.wait_for_timeout(50)
        raise AssertionError(f"neither {label!r} nor {text!r} came: {self.text_of(number)}")

    def has_gone(self, element: Any, what: str) -> None:
        """Wait until this element is no longer visible. There may be another element like it."""
        self._waiting(
            lambda: element.wait_for_element_state("hidden", timeout=PATIENCE * 1000), f"the end of {what}"
        )

    # --- what is left of it --------------------------------------------------------------------------------

    def screenshot(self, name: str, part: Any = None) -> None:
        """Save a picture of the page, or of a part of it, in build/screenshots."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        (part or self.page).screenshot(path=SCREENSHOTS / f"{name}.png", animations="disabled")

    def unfold(self) -> None:
        """Open everything that is folded."""
        self.page.evaluate(
            "() => document.querySelectorAll('.jp-OutputArea details').forEach(e => e.open = true)"
        )

    # --- inside -------------------------------------------------------------------------------------------

    def _close_notebooks(self) -> None:
        """Close everything that is open in JupyterLab, without a question about unsaved files. On another page, do nothing."""
        if self.page.evaluate(_IS_LAB):
            self.page.evaluate(_CLOSE_ALL)
            self.page.wait_for_function(f"() => !{_OPEN}.length")

    def _is_ours(self, url: str) -> bool:
        return url.startswith(
            (self.server.url, self.server.url.replace("http", "ws", 1), "data:", "blob:", "about:")
        )

    def _requested(self, url: str) -> None:
        if not self._is_ours(url):
            self.outside.append(url)

    def _socket(self, socket: Any) -> None:
        self._requested(socket.url)
        socket.on("framesent", self._sent)

    def _sent(self, frame: str | bytes) -> None:
        data = frame.encode() if isinstance(frame, str) else frame
        if re.search(rb'"event": ?"click"', data):
            self.clicks_over.append("subshell" if re.search(rb'"subshell_id": ?"', data) else "main shell")

    def _note(self, text: str) -> None:
        if not _NOT_OURS.search(text):
            self.errors.append(text)

    def _dialog(self, dialog: Any) -> None:
        if dialog.type == "beforeunload":
            dialog.accept()
            return
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _waiting(self, wait: Any, what: str) -> Any:
        from playwright.sync_api import TimeoutError as TimedOut

        try:
            return wait()
        except TimedOut:
            self.screenshot("failed")
            where = f"at {self.page.url} ({self.page.title()})"
            texts = self.page.locator(".jp-OutputArea-output").all_inner_texts()
            shown = "\n---\n".join(text[-600:] for text in texts[-8:])
            raise AssertionError(
                f"waited for {what} {where}; the last outputs are:\n{shown}\nerrors: {self.errors}"
            ) from None
