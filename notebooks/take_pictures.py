"""Take the README's pictures again: the quickstart in JupyterLab, one run done and one waiting for a click.

    python notebooks/take_pictures.py        in an environment with the package, its dev and lab extras and a Chromium

Writes docs/quickstart-light.png and docs/quickstart-dark.png. Look at them before you keep them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.browsing import Desk, browser_context  # noqa: E402 - from the tests' folder
from support.jupyter import JupyterServer  # noqa: E402
from support.optional import find_chromium  # noqa: E402

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
IMPORTS = 30_000  # milliseconds that a reader takes to get to the first run; litellm is imported meanwhile

# Nothing selected, no cell toolbar, the first run's cell below the menus; gives what is to be in the picture.
TIDY = """() => {
    document.activeElement.blur();
    document.querySelectorAll('.jp-Cell-toolbar, .jp-cell-toolbar').forEach(e => e.remove());
    for (const cell of document.querySelectorAll('.jp-mod-active, .jp-mod-selected'))
        cell.classList.remove('jp-mod-active', 'jp-mod-selected');
    const run = [...document.querySelectorAll('.jp-CodeCell')].find(e => e.innerText.includes('%%toolloop'));
    document.querySelector('.jp-WindowedPanel-outer').scrollTop += run.getBoundingClientRect().y - 150;
    const [top, card] = [run, document.querySelector('.tlj-card')].map(e => e.getBoundingClientRect());
    return {x: top.x + 26, y: top.y - 6, width: top.width - 22, height: card.bottom - top.y + 20};
}"""


def take(server: JupyterServer, chromium: str, theme: str) -> None:
    """Run the quickstart up to its approval card, and take the picture."""
    notebook = nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4)
    first = next(n for n, cell in enumerate(notebook.cells) if cell.source.startswith("%%toolloop"))
    name = f"quickstart-{theme}.ipynb"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    server.write(name, notebook)
    server.settings("@jupyterlab/apputils-extension:themes", {"theme": THEMES[theme]})
    server.settings("@jupyterlab/notebook-extension:tracker", {"windowingMode": "none"})
    with browser_context(chromium, device_scale_factor=2) as context, Desk(server, context) as desk:
        desk.page.set_viewport_size({"width": 960, "height": 1500})
        desk.page.goto(f"{server.url}/doc/tree/{name}")
        desk.page.wait_for_selector(".jp-Notebook .jp-Cell")
        desk.page.wait_for_selector("text=| Idle")
        desk.page.locator(".jp-Notebook .jp-Cell").nth(first).click()
        desk.menu("Run", "Run All Above Selected Cell")
        desk.page.wait_for_timeout(IMPORTS)
        desk.menu("Run", "Run Selected Cell and All Below")
        desk.see(desk.page.locator(".tlj-card"), "the card")
        desk.page.mouse.move(5, 1490)
        desk.page.wait_for_timeout(1500)
        desk.page.evaluate(TIDY)
        desk.page.wait_for_timeout(500)
        desk.page.screenshot(path=ROOT / "docs" / f"quickstart-{theme}.png", clip=desk.page.evaluate(TIDY))
    server.close(name)


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium was found; install one, or set TOOLLOOP_CHROMIUM")
    with JupyterServer() as server:
        for theme in THEMES:
            take(server, chromium, theme)
            print(f"wrote docs/quickstart-{theme}.png", flush=True)


if __name__ == "__main__":
    main()
