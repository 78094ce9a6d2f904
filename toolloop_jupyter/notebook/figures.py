"""Figures that a tool leaves open in pyplot: shown under its call, where the inline backend would show them below the cell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..core.foreign import attempt

_watching: list[object] = []
"""One for each tool that runs now: with several at once nobody can tell whose a figure is, so they are left alone."""


class FigureBundle(dict[str, Any]):
    """A MIME bundle that knows the figure that it was made of."""

    def __init__(self, data: Mapping[str, Any], figure: Any) -> None:
        super().__init__(data)
        self.figure = figure


@contextmanager
def taken_up(
    sink: Callable[[str, Any], None], bundle_of: Callable[[Any], Mapping[str, Any]]
) -> Iterator[None]:
    """Give `sink` a bundle for each figure that the code inside opened and did not close, and close it in pyplot.

    Only with the inline backend, and only where it closes figures at a cell's end itself (its own default).
    """
    before = {id(figure) for figure in _open_figures()}
    me = object()
    _watching.append(me)
    try:
        yield
    finally:
        alone = _watching == [me]
        _watching.remove(me)
        new = (
            [figure for figure in _open_figures() if id(figure) not in before]
            if alone and _is_inline()
            else []
        )
        for figure in new:
            sink("display", FigureBundle(bundle_of(figure), figure))
            attempt(sys.modules["matplotlib.pyplot"].close, figure)


def _open_figures() -> list[Any]:
    helpers = sys.modules.get(
        "matplotlib._pylab_helpers"
    )  # where pyplot keeps them; the inline backend reads it, too
    return (
        [] if helpers is None else [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]
    )


def _is_inline() -> bool:
    pyplot, config = sys.modules.get("matplotlib.pyplot"), sys.modules.get("matplotlib_inline.config")
    if pyplot is None or "inline" not in str(pyplot.get_backend()).lower():
        return False
    return config is None or bool(config.InlineBackend.instance().close_figures)
