"""Take the pictures of the README and of the lessons again, in JupyterLab, in its light and its dark theme.

    python notebooks/take_pictures.py        in an environment with the package, its dev and lab extras and a Chromium

Writes docs/quickstart-*.png, one run done and one waiting for a click, and notebooks/pictures/*.png, the card as it waits
and as it is edited, that of an MCP server's call, and a server's question. Look at them before you keep them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.browsing import Desk, browser_context  # noqa: E402 - from the tests' folder
from support.jupyter import JupyterServer  # noqa: E402
from support.optional import find_chromium  # noqa: E402

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
LITELLM_IS_THERE = "import litellm"
"""A cell of a reader who takes his time before the first run."""

# Nothing selected, focused or pointed at, no toolbar of a cell; the cell of the card below the menus.
TIDY = """() => {
    document.activeElement.blur();
    document.querySelectorAll('.jp-Cell-toolbar, .jp-cell-toolbar').forEach(e => e.remove());
    for (const cell of document.querySelectorAll('.jp-mod-active, .jp-mod-selected'))
        cell.classList.remove('jp-mod-active', 'jp-mod-selected');
}"""
# From the first cell that runs a model down to the card, below the menus.
TO_THE_CARD = """() => {
    const run = [...document.querySelectorAll('.jp-CodeCell')].find(e => e.innerText.includes('%%toolloop'));
    document.querySelector('.jp-WindowedPanel-outer').scrollTop += run.getBoundingClientRect().y - 150;
    const [top, card] = [run, document.querySelector('.tlj-card')].map(e => e.getBoundingClientRect());
    return {x: top.x + 26, y: top.y - 6, width: top.width - 22, height: card.bottom - top.y + 20};
}"""
THE_CARD = """() => {
    const card = document.querySelector('.tlj-card');
    card.scrollIntoView({block: 'center'});
    const {x, y, width, height} = card.getBoundingClientRect();
    return {x: x - 3, y: y - 3, width: width + 6, height: height + 6};
}"""


@contextmanager
def waiting_at_the_card(server: JupyterServer, chromium: str, stem: str, width: int) -> Iterator[Desk]:
    """A notebook in JupyterLab, run up to its first approval card."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    loaded = next(n for n, cell in enumerate(notebook.cells) if cell.source.startswith("%load_ext"))
    notebook.cells.insert(loaded + 1, nbformat.v4.new_code_cell(LITELLM_IS_THERE))
    server.write(f"{stem}.ipynb", notebook)
    with (
        browser_context(chromium, device_scale_factor=2) as context,
        Desk(server, context.new_page()) as desk,
    ):
        desk.page.set_viewport_size({"width": width, "height": 1500})
        desk.page.goto(f"{server.url}/doc/tree/{stem}.ipynb")
        desk.page.wait_for_selector(".jp-Notebook .jp-Cell")
        desk.page.wait_for_selector("text=| Idle")
        desk.run_all()
        desk.see(desk.button("Approve"), "the card")
        yield desk
    server.close(f"{stem}.ipynb")


def picture(desk: Desk, part: str, path: Path) -> None:
    """Write a picture of a part of the page."""
    desk.page.mouse.move(5, 1490)
    desk.page.evaluate(TIDY)
    desk.page.evaluate(part)
    desk.page.wait_for_timeout(500)
    path.parent.mkdir(exist_ok=True)
    desk.page.screenshot(path=path, clip=desk.page.evaluate(part), animations="disabled")
    print(f"wrote {path.relative_to(ROOT)}", flush=True)


def edit(desk: Desk, values: dict[str, Any]) -> None:
    """Open the form, and fill in some fields."""
    desk.page.click(".tlj-card button:has-text('Edit')")
    for name, value in values.items():
        field = desk.page.locator(f".tlj-field:has-text({name!r}) input")
        desk.see(field, f"the field {name}")
        field.fill(str(value))


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium was found; install one, or set TOOLLOOP_CHROMIUM")
    lessons = ROOT / "notebooks" / "pictures"
    with JupyterServer() as server:
        server.settings("@jupyterlab/notebook-extension:tracker", {"windowingMode": "none"})
        for theme, name in THEMES.items():
            server.settings("@jupyterlab/apputils-extension:themes", {"theme": name})
            with waiting_at_the_card(server, chromium, "quickstart", 960) as desk:
                picture(desk, TO_THE_CARD, ROOT / "docs" / f"quickstart-{theme}.png")
            with waiting_at_the_card(server, chromium, "03-approvals", 620) as desk:
                picture(desk, THE_CARD, lessons / f"card-{theme}.png")
                edit(desk, {"keep": 10})
                picture(desk, THE_CARD, lessons / f"edit-{theme}.png")
            with waiting_at_the_card(server, chromium, "09-mcp", 760) as desk:
                picture(desk, THE_CARD, lessons / f"mcp-{theme}.png")
                desk.click("Approve")
                desk.see(desk.page.locator(".tlj-card:has-text('reserve')"), "the card of the next run")
                desk.click("Approve")
                desk.see(desk.button("Send"), "the question")
                picture(desk, THE_CARD, lessons / f"question-{theme}.png")


if __name__ == "__main__":
    main()
