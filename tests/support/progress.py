"""The progress of `./dev test`: in a terminal, one line for all steps, which is replaced; else a line after each tenth of a step.

As a script, it writes the sum of all steps, and above it as many of the slowest tests as TOOLLOOP_SLOWEST says. The sum names
each step that did not reach its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


class Progress:
    """Writes `kernels  45 %  410 of 905, 2 failed, about 3 min left` to stderr; at the end, counts and seconds to the file `tally`.

    The line replaces pytest's dots. The name of a failed test is shown at once, its report at the end. Steps that run at the same
    time write files beside `tally`, and each step makes the same line from all of them.
    """

    def __init__(self, step: str, tally: str) -> None:
        self.step, self.tally = step, Path(tally)
        self.own = self.tally.with_name(f"{self.tally.name}-{step.partition('/')[0]}")
        self.total, self.done = 0, 0
        self.counts: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        """The seconds of each test, with its set-up and clean-up."""
        self.not_collected: set[str] = set()
        """Files that were reported already. (With several processes, each process reports the same file.)"""
        self.began = time.monotonic()
        self.tenth = -1

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.total = self.total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self.total = len(ids)
        self.began = time.monotonic()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> Any:
        """Return pytest's own category and word, but no letter."""
        category, _, word = yield
        return category, "", word

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that cannot be imported as an error, and a file that skips itself as skipped."""
        if report.passed or report.nodeid in self.not_collected:
            return
        self.not_collected.add(report.nodeid)
        self.counts["errors" if report.failed else "skipped"] += 1
        if report.failed:
            self._line(f"ERRORS {report.nodeid}", keep=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        kind = count_as(report)
        if kind is not None:
            self.counts[kind] += 1
            if kind in ("failed", "errors"):
                self._line(f"{kind.upper()} {report.nodeid}", keep=True)
        if report.when == "teardown":
            self.done += 1
            self._show()

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._line(f"{self.step}: {tell_counts(self.counts)}", keep=True)
        self.own.unlink(missing_ok=True)
        with self.tally.open("a", encoding="utf-8") as file:
            tally = {
                "step": self.step,
                "status": int(exitstatus),
                "counts": self.counts,
                "seconds": self.seconds,
            }
            file.write(json.dumps(tally) + "\n")

    def _show(self) -> None:
        share = self.done / max(self.total, 1)
        left = (time.monotonic() - self.began) * (1 - share) / share / 60
        bad = self.counts["failed"] + self.counts["errors"]
        words = f"{self.step} {share:4.0%}  {self.done} of {self.total}" + (f", {bad} failed" if bad else "")
        if share > 0.05:  # earlier, the builds and imports at the beginning would count too much
            words += f", about {left:.0f} min left" if left >= 1 else ", less than a minute left"
        if sys.stderr.isatty():
            self.own.write_text(words, "utf-8")
            self._line(" · ".join(self._words_of_all()))
        elif int(share * 10) > self.tenth:
            self.tenth = int(share * 10)
            self._line(words, keep=True)

    def _words_of_all(self) -> list[str]:
        """Return the progress of each step that runs now."""
        words = []
        for file in sorted(self.tally.parent.glob(f"{self.tally.name}-*")):
            with contextlib.suppress(OSError):  # the step is ending now
                words.append(file.read_text("utf-8"))
        return words

    def _line(self, words: str, *, keep: bool = False) -> None:
        """Replace the last line. With `keep`, the new line stays and is complete; without, it is cut to the terminal's width."""
        if sys.stderr.isatty():
            shown = words if keep else words[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write(f"\r\x1b[K{shown}" + ("\n" if keep else ""))
        elif keep:
            sys.stderr.write(f"{words}\n")
        sys.stderr.flush()


def count_as(report: pytest.TestReport) -> str | None:
    """Return what a report counts as; None for a set-up or a clean-up without an error."""
    expected = hasattr(report, "wasxfail")
    if report.when == "call" or (report.when == "setup" and report.skipped):
        if expected:
            return "xfailed" if report.skipped else "xpassed"
        return str(report.outcome)
    return "errors" if report.failed else None


def tell_counts(counts: Counter[str]) -> str:
    """Return for example `5219 passed, 0 failed, 1 skipped`. An error before or after a test counts as a failure."""
    words = [f"{counts['passed']} passed", f"{counts['failed'] + counts['errors']} failed"]
    words += [f"{counts[kind]} {kind}" for kind in ("skipped", "xfailed", "xpassed") if counts[kind]]
    return ", ".join(words)


WHOLE = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
"""pytest's exit statuses after it has run all tests. Any other status means: interrupted, used wrongly, broken, or no test found."""


def main(tally: str, seconds: str, *names: str) -> int:
    """Print the slowest tests of all steps, as many as TOOLLOOP_SLOWEST says. Then print the sum in one line.

    Return the exit status: 1 if one of the steps `names` has written nothing or has not reached its end.
    """
    steps = [json.loads(line) for line in Path(tally).read_text("utf-8").splitlines()]
    taken: Counter[str] = sum((Counter(step["seconds"]) for step in steps), Counter())
    for test, long in taken.most_common(int(os.environ.get("TOOLLOOP_SLOWEST") or 0)):
        print(f"{long:7.1f} s  {test}")
    counts: Counter[str] = sum((Counter(step["counts"]) for step in steps), Counter())
    statuses = {step["step"]: step["status"] for step in steps}
    broken = [f"{name} ended without counts" for name in names if name not in statuses]
    broken += [
        f"{name} ended with status {status}" for name, status in statuses.items() if status not in WHOLE
    ]
    print("; ".join([f"{tell_counts(counts)} in {int(seconds) / 60:.1f} minutes", *broken]))
    return 1 if broken else 0


if __name__ == "__main__":  # python progress.py TALLY SECONDS STEP …
    sys.exit(main(*sys.argv[1:]))
