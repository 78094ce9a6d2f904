"""The outcomes of tools: values, errors, output and items of any kind, from each kind of function."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from fuzz.running import Script, told, watch
from fuzz.seam import Seam, Seen
from fuzz.values import ERRORS, VALUES, OddAwaitable, make_value
from toolloop_jupyter import tool

ODD = st.builds(lambda name: {"odd": name}, st.sampled_from(sorted(VALUES)))
JSON = st.builds(
    lambda value: {"json": value},
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-5, 2**70)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text('ab\n"😀', max_size=4),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2)
        ),
        max_leaves=4,
    ),
)
VALUE = st.one_of(
    ODD,
    ODD,
    JSON,
    st.builds(lambda items: {"list": items}, st.lists(ODD | JSON, max_size=2)),
    st.builds(lambda items: {"tuple": items}, st.lists(ODD | JSON, max_size=2)),
    st.builds(
        lambda items: {"dict": items},
        st.dictionaries(st.sampled_from(("a", "", "\ud83d")), ODD | JSON, max_size=2),
    ),
)
CALL = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(
            ("sync", "async", "here", "generator", "async generator", "awaitable", "odd awaitable")
        ),
        "value": VALUE,
        "raises": st.one_of(st.none(), st.none(), st.sampled_from(sorted(ERRORS))),
        "prints": st.sampled_from(("", "", "out\n", "1%\r2%\r", "\x1b[31mred", "\ud83d", "x" * 30_000)),
        "settings": st.fixed_dictionaries(
            {},
            optional={
                "capture_output": st.booleans(),
                "max_result": st.sampled_from((1, 50)),
                "timeout": st.just(20.0),
            },
        ),
    }
)
INPUTS = st.fixed_dictionaries(
    {"calls": st.lists(CALL, min_size=1, max_size=2), "rendered": st.integers(0, 3).map(lambda n: n == 0)}
)


def _make_tool(seen: Seen, number: int, given: dict[str, Any]) -> Callable[..., Any]:
    name = f"tool{number}"

    def body() -> Any:
        seen.ran[f"{name} 0"] += 1
        if given["prints"]:
            print(given["prints"])
        if given["raises"] is not None:
            error = ERRORS[given["raises"]]()
            raise error
        return make_value(given["value"])

    def sync() -> Any:
        return body()

    async def later() -> Any:
        return body()

    def generator() -> Any:
        yield 1
        yield body()

    async def async_generator() -> Any:
        yield 1
        yield body()

    def awaitable() -> Any:
        return later()

    def odd_awaitable() -> Any:
        body()
        return OddAwaitable()

    made = {
        "sync": sync,
        "here": sync,
        "async": later,
        "generator": generator,
        "async generator": async_generator,
        "awaitable": awaitable,
        "odd awaitable": odd_awaitable,
    }[given["kind"]]
    made.__name__ = name
    return tool(thread=given["kind"] != "here", **given["settings"])(made)


def run_outcomes(given: dict[str, Any]) -> Seen:
    """Run one turn that calls each tool once."""
    import contextlib
    import io

    seen = Seen()
    tools = [_make_tool(seen, number, call) for number, call in enumerate(given["calls"])]
    deltas = [
        {"tool_calls": [{"index": n, "id": f"c{n}", "function": {"name": f"tool{n}", "arguments": "{}"}}]}
        for n in range(len(tools))
    ]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        watch(seen, Script([{"deltas": deltas}], seen), tools=tools)
    if not seen.results:
        return seen
    result = seen.results[0]
    interrupts = [
        n
        for n, call in enumerate(given["calls"])
        if call["raises"] in ("KeyboardInterrupt", "group with an interrupt")
    ]
    if not interrupts:
        seen.must_run = [f"tool{n} 0" for n in range(len(tools))]
        seen.pairs.append(("the end", (result.stop_reason, result.text), ("done", "Done.")))
    for one, call in zip(result.tool_results, given["calls"], strict=False):
        limit = call["settings"].get("max_result", 20_000)
        seen.texts += [("an output", one.output), ("a traceback", one.traceback)]
        if len(one.output) > 2 * limit + 200:
            seen.escaped.append(f"{len(one.output)} characters of a result, with a limit of {limit}")
        if call["raises"] is not None and not one.is_error:
            seen.escaped.append(f"a tool that raised {call['raises']} is told as {one.output!r:.60}")
    if given["rendered"]:
        _render(seen, result)
    return seen


def _render(seen: Seen, result: Any) -> None:
    """Make everything that people see of the run, and write it to a file."""
    for view in (result._repr_mimebundle_, result.to_markdown, result.__repr__):
        try:
            made = view()
        except Exception as error:  # the fault that is looked for
            seen.escaped.append(f"{getattr(view, '__name__', view)}: {told(error)}")
            continue
        for text in made.values() if isinstance(made, dict) else [made]:
            seen.texts.append(("a view", text if isinstance(text, str) else json.dumps(text)))


OUTCOMES = Seam("outcomes", "tools' values, errors and output", INPUTS, run_outcomes, share=12, quick=60)
