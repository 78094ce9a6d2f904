"""Prints figures about the code: `.venv/bin/python tests/house.py`. CONTRIBUTING.md has the rules behind them.

Sizes, rooms, import floors and circles come from the source. The functions of one call are counted by `sys.setprofile` and
`threading.setprofile` while `aagent()` runs one tool on a scripted model.
"""

from __future__ import annotations

import ast
import asyncio
import os
import statistics
import sys
import threading
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from support.house import House, count_attributes, count_floors, find_circles, read_modules

PUBLIC_RECORDS = {"Approval", "Keywords", "Result", "ToolResult"}
"""Data classes: people read and write their fields, so these fields are not internal state."""


def print_sizes(house: House) -> None:
    """Print the number of modules and lines, of the package and of each room."""
    modules = house.modules
    bodies = [m for m in modules if not m.is_face]
    print(f"modules {len(modules)} ({len(bodies)} without faces), lines {sum(m.lines for m in modules):,}")
    print(f"lines a module: {sum(m.lines for m in bodies) / len(bodies):.0f}")
    for room in sorted({m.room for m in modules}):
        inside = [m for m in modules if m.room == room]
        longest = max(inside, key=lambda m: m.lines)
        print(
            f"  {room or '(top)':24} {len([m for m in inside if not m.is_face]):3} modules "
            f"{sum(m.lines for m in inside):6,} lines, longest {longest.name.rpartition('/')[2]} {longest.lines}"
        )


def print_floors(house: House) -> None:
    """Print circles and import floors. All imports count, also lazy ones."""
    circles = find_circles(house.module_graph) + find_circles(house.room_graph)
    print(f"circles {len(circles)}")
    for circle in circles:
        print("  ", ", ".join(sorted(circle)))
    if not circles:
        rooms = {m.room for m in house.modules if m.room}
        inside = {room: count_floors(house.graph_in(room)) for room in rooms}
        deepest = max(inside, key=inside.__getitem__)
        print(f"floors: rooms {count_floors(house.room_graph)}, inside a room {inside[deepest]} ({deepest})")


def print_code(house: House) -> None:
    """Print how often `Any` is used, the lengths of functions, and the classes with the most attributes."""
    count = sum(isinstance(n, ast.Name) and n.id == "Any" for m in house.modules for n in ast.walk(m.tree))
    print(f"Any {count}")
    lengths = sorted(f.end_lineno - f.lineno + 1 for m in house.modules for f in m.functions)
    p95 = lengths[int(len(lengths) * 0.95)]
    print(
        f"functions {len(lengths)}: p50 {statistics.median(lengths):.0f}, p95 {p95}, max {lengths[-1]} lines"
    )
    holders = Counter({f"{m.name}:{c.name}": count_attributes(c) for m in house.modules for c in m.classes})
    records = {name: holders.pop(name) for name in list(holders) if name.rpartition(":")[2] in PUBLIC_RECORDS}
    print("largest state holders:", ", ".join(f"{name} {n}" for name, n in holders.most_common(5)))
    print("public records:", ", ".join(f"{name} {n}" for name, n in records.items()))


def count_call() -> tuple[Counter[str], list[str]]:
    """Run one API call with one tool, the second in this process. Return (function -> number of entries, frames in the tool)."""
    from toolloop_jupyter import Harness, aagent
    from toolloop_jupyter.teaching import ScriptedModel, call

    frames: list[str] = []

    def double(x: int) -> int:
        """Twice x."""
        frame, here = sys._getframe(0), []
        while frame is not None:
            here.append(frame.f_code.co_filename + ":" + frame.f_code.co_name)
            frame = frame.f_back
        frames[:] = here
        return 2 * x

    entered: Counter[str] = Counter()

    def profile(frame, event, argument):
        code = frame.f_code
        if (
            event == "call"
            and "toolloop_jupyter" in code.co_filename
            and "/teaching/" not in code.co_filename
        ):
            entered[f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}"] += 1

    async def run():
        model = ScriptedModel(call("double", x=2), "4")
        await aagent(Harness.TOOL_LOOP, "Twice 2?", model=model, tools=[double])

    asyncio.run(run())  # imports, caches
    entered.clear()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        asyncio.run(run())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered, frames


def main() -> None:
    house = House(read_modules())
    print_sizes(house)
    print_floors(house)
    print_code(house)
    entered, frames = count_call()
    files = {name.split(":")[0] for name in entered}
    ours = [f for f in frames if "toolloop_jupyter" in f]
    inside = sum(":<" in name for name in entered)
    print(
        f"one API call with one tool: {len(entered)} own functions in {len(files)} files "
        f"({inside} of them are comprehensions and lambdas, which Python 3.12 counts less)"
    )
    print(f"frames at the tool's body: {len(frames)}, of the package {len(ours)}")
    if "-v" in sys.argv:
        for name, number in sorted(entered.items()):
            print(f"  {number:4} {name}")


if __name__ == "__main__":
    main()
