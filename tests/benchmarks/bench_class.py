"""A class begins: twenty kernels start at the same time, and each runs a scripted lesson. Measures the seconds until the last
answer, and the memory.

`./dev bench -k class`, or, to compare with another version of the package, a folder that has it:

    pip install --no-deps --target /tmp/old THE_OTHER_VERSION
    python tests/benchmarks/bench_class.py --kernels 20 /tmp/old
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

if __name__ == "__main__":  # pytest finds `support` by pyproject.toml
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.processes import read_memory, read_processor_time
from support.kernels import LiveKernel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KERNELS = 20
LESSON = (
    "%load_ext toolloop_jupyter",
    """from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
def double(x: int) -> int:
    'Double a number.'
    return 2 * x
lesson = ScriptedModel(call('double', x=21), 'It is 42, the function says.')""",
    "%%toolloop --model lesson --tools double\nDouble 21",
)
"""These cells are queued together, as Run All does."""
ANSWER = "the function says"
EMPTY = ("print('the function says')",)
"""Cells without a lesson, for the time and memory of empty kernels."""


@dataclass(frozen=True)
class Measured:
    """The time and memory that all kernels of a class took, from the first start to the last answer."""

    seconds: float
    """Seconds of real time, including the start of the kernels."""
    processor: float
    """CPU seconds of all kernels. 0 if there is no /proc."""
    megabytes: float
    """The memory of all kernels. A page that several kernels share counts once. 0 if there is no /proc."""


def measure(cells: Sequence[str], count: int, package: str | None = None) -> Measured:
    """Start `count` kernels at the same time, each with these cells. `package`: a folder that comes first on their path."""
    kernels = [LiveKernel(env={"PYTHONPATH": package}, start_timeout=300) for _ in range(count)]
    failed: list[BaseException] = []

    def attend(kernel: LiveKernel) -> None:
        try:
            kernel.start()
            last = [kernel.submit(cell) for cell in cells][-1]
            kernel.wait_for_text(ANSWER, timeout=300)
            kernel.wait(last, timeout=300)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=attend, args=(kernel,)) for kernel in kernels]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, processes = time.monotonic() - began, [] if failed else [kernel.pid for kernel in kernels]
    memory = sum(read_memory(pid, is_shared=True) for pid in processes)
    taken = Measured(seconds, sum(map(read_processor_time, processes)), memory)
    for kernel in kernels:
        kernel.stop()
    if failed:
        raise failed[0]
    return taken


def print_table(measured: dict[str, Measured], count: int) -> None:
    """Print a line for each measurement: seconds, CPU seconds, memory."""
    print(f"\n{count} kernels started at once: until the last has its answer")
    print(f"{'':44}{'s':>8}{'CPU s':>8}{'MB':>9}{'MB each':>9}")
    for name, one in measured.items():
        print(
            f"{name:44}{one.seconds:8.1f}{one.processor:8.1f}{one.megabytes:9.0f}{one.megabytes / count:9.1f}"
        )


def test_class():
    """All lessons of a class are answered. Prints the time and memory, beside those of the same number of empty kernels."""
    measured = {"empty kernels": measure(EMPTY, KERNELS), "a scripted lesson": measure(LESSON, KERNELS)}
    print_table(measured, KERNELS)
    assert measured["a scripted lesson"].megabytes < 120 * KERNELS


def main() -> None:
    """Measure a class with this package, and with each package that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=KERNELS)
    parser.add_argument("package", nargs="*", help="a folder that has another version of toolloop_jupyter")
    asked = parser.parse_args()
    measured = {"empty kernels": measure(EMPTY, asked.kernels)}
    for package in (*asked.package, None):
        measured[package or "this package"] = measure(LESSON, asked.kernels, package)
    print_table(measured, asked.kernels)


if __name__ == "__main__":
    main()
