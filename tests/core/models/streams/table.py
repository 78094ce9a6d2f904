"""Print the corpus as a table with the result of each case."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .case import Case, Outcome, run_case


async def run_table(cases: Sequence[Case]) -> int:
    """Run the cases. Print a row for each when it is done, and below it what is wrong. Return how many cases are wrong."""
    wide = max(len(case.name) for case in cases)
    print(
        f"{'case':<{wide}}  from  requests  stop           tool runs                      answer                          right"
    )
    began, bad = time.monotonic(), 0
    for case in cases:
        outcome = await run_case(case)
        bad += bool(outcome.wrong)
        print(_row(outcome, wide))
        for problem in outcome.wrong:
            print(f"    {problem}")
    print(f"{len(cases) - bad} of {len(cases)} cases are right, in {time.monotonic() - began:.1f} s")
    return bad


def _row(outcome: Outcome, wide: int) -> str:
    case = outcome.case
    runs = _short(", ".join(outcome.ran) or "–", 29)
    text = _short(outcome.result.text.replace("\n", " "), 30)
    verdict = "no" if outcome.wrong else "yes"
    return (
        f"{case.name:<{wide}}  {case.source or '':<4}  {outcome.requests:>8}  {outcome.result.stop_reason:<13}  "
        f"{runs:<29}  {text:<30}  {verdict}"
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
