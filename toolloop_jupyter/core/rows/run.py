"""A rows run: one session for each row, on the loop of whoever awaits it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ..events import Approval
from ..loop import Config
from .values import Rows, RowsOptions, RowsPresenter, RowsWatcher

AskRow: TypeAlias = Callable[[Approval, int, int | None], Awaitable[None]]
"""Asks a person about a call: (the request, the row's number, how many rows there are). One at a time."""


class RowsRun:
    """One tool loop for each row of a table.

    run = RowsRun(config, "Classify {{text}}", reviews, RowsOptions(store="labels.jsonl"))
    rows = await run.collect()
    """

    def __init__(
        self,
        config: Config,
        prompt: str,
        rows: object,
        options: RowsOptions = RowsOptions(),  # noqa: B008 - it is frozen
        *,
        watcher: RowsWatcher = RowsWatcher(),  # noqa: B008
        ask: AskRow | None = None,
        presenter: RowsPresenter = RowsPresenter(),  # noqa: B008
    ) -> None:
        """Check everything; nothing goes out before `collect`.

        `config`: what each row is run with, made by `build_config` (its `timeout` and limits are for one row).
        `ask`: instead of the host's own way to ask a person. While it waits, other rows go on.
        Raises ArgumentInvalid or ArgumentTypeInvalid for rows that are none, a name in the prompt that is neither a column
        nor among `variables`, options that no run can have.
        """
        self.rows = Rows()
        """What there is, valid at any moment: also before, during and after the run, and when it was stopped."""

    async def collect(self) -> Rows:
        """Run all rows and return them. A second call is an error.

        Raises CancelledError when it is cancelled, after a moment in which the rows under way are stopped; `.rows` has what
        there is. A failure that ends the whole (a key that is refused, a store that cannot be written) raises nothing:
        `.rows.message` says it.
        """
        raise NotImplementedError

    def cancel(self) -> None:
        """Stop the run, from any thread: `collect` returns within half a second with what there is."""
