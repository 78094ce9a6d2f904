"""Both implementations with the same interface, and what is seen of a run: requests, events, result, history.

Some differences are decided for every scenario. They are removed here, once, and have tests of their own (see
differences.py): the `stream` fields of a streamed request, the cuts between deltas, fields that only our events have, and the
titles that pydantic writes into schemas.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import litellm
from litellm import harness as theirs

import toolloop_jupyter as ours
from support.servers import ScriptedServer, Step

MODEL = "openai/priced"
PRICE = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
"""The prices in US dollars. Without a price, the test could not compare the costs."""

END_OF_WORK = threading.Event()
"""Set when a run is over. A slow tool, which LiteLLM's loop may have left behind in a thread, then ends."""
EVENT_FIELDS = {
    "Text": ("delta",),
    "Reasoning": ("delta",),
    "ToolCall": ("id", "name", "native_name", "input", "builtin"),
    "ToolResult": ("id", "output", "is_error"),
    "Approval": ("tool", "input"),
    "FileChange": ("path", "kind", "diff"),
    "Retry": ("attempt",),
}
RESULT_FIELDS = ("text", "output", "files", "usage", "cost", "stop_reason")
HEADERS = ("authorization", "x-litellm-tags", "x-litellm-spend-logs-metadata", "x-own")


def set_prices() -> None:
    """Give LiteLLM a price for the scripted model. The price stays: no other test uses this model's name."""
    entry = {**PRICE, "litellm_provider": "openai", "mode": "chat", "max_tokens": 4096}
    litellm.register_model({MODEL: entry})
    litellm.suppress_debug_info = True


@dataclass(frozen=True)
class Side:
    """One implementation. `streamed` says how ours calls the model. (LiteLLM's loop never streams.)"""

    name: str
    api: Any
    streamed: bool = False

    @property
    def is_ours(self) -> bool:
        return self.api is ours

    def options(self, **completion_kwargs: Any) -> Any:
        if self.is_ours and not self.streamed:
            completion_kwargs = {"stream": False, **completion_kwargs}
        return self.api.ToolLoopOptions(completion_kwargs=completion_kwargs)

    @property
    def sandbox(self) -> Any:
        return self.api.sandbox if self.is_ours else litellm.sandbox


THEIRS = Side("litellm", theirs)
OURS = Side("ours", ours)
OURS_STREAMED = Side("ours, streamed", ours, streamed=True)

Reader = Callable[[Any, Any], "Awaitable[None] | None"]
"""A function that is called with the stream and each event."""


@dataclass(frozen=True)
class Scenario:
    """The server's script, the call, and all expected differences."""

    name: str
    script: Sequence[Step]
    prompts: Sequence[str] = ("Go",)
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the API. If a value is a `Made`, it is made for each run."""
    completion_kwargs: Mapping[str, Any] = field(default_factory=dict)
    model: str = MODEL
    reader: Callable[[], Reader] | None = None
    """Makes the reader of a stream. Without it, the turn runs without a stream."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The files in the sandbox folder before the run."""
    streamed: bool = True
    """True if our side also runs with a streamed model call."""
    expected: Sequence[Expected] = ()


@dataclass(frozen=True)
class Expected:
    """A deliberate difference in a scenario. Everything else must be the same."""

    difference: str
    """The name of the difference in differences.py."""
    at: str
    """The place, as a pattern of `fnmatch`: "history.*.content"."""
    theirs: Any
    """A value, a regular expression that is found in the value, or a function that takes it."""
    ours: Any

    def fits(self, path: str, values: tuple[Any, Any]) -> bool:
        return fnmatchcase(path, self.at) and _fits(self.theirs, values[0]) and _fits(self.ours, values[1])


def _fits(expected: Any, value: Any) -> bool:
    if isinstance(expected, re.Pattern):
        return isinstance(value, str) and expected.search(value) is not None
    return bool(expected(value)) if callable(expected) else expected == value


@dataclass(frozen=True)
class Run:
    """One run of a scenario: its side, its folder and its server."""

    side: Side
    folder: Path
    base_url: str


class Made:
    """A keyword that is made anew for each run: `Made(lambda run: …)`."""

    def __init__(self, make: Callable[[Run], Any]) -> None:
        self.make = make


def plain(value: Any) -> Any:
    """Return a value of either side as data that can be compared."""
    if type(value).__name__ == "Usage":
        return {"input": value.input_tokens, "output": value.output_tokens, "calls": value.calls}
    if type(value).__name__ in EVENT_FIELDS:
        name = type(value).__name__
        return {"event": name, **{key: plain(getattr(value, key)) for key in EVENT_FIELDS[name]}}
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key: plain(item) for key, item in vars(value).items()}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return round(value, 9) if isinstance(value, float) else value


def joined(events: Sequence[Any]) -> list[Any]:
    """Return the events as data. Neighbouring deltas are joined."""
    events_joined: list[Any] = []
    for event in events:
        item = plain(event)
        if events_joined and "delta" in item and events_joined[-1]["event"] == item["event"]:
            events_joined[-1]["delta"] += item["delta"]
        else:
            events_joined.append(item)
    return events_joined


def without_titles(value: Any) -> Any:
    """Return a JSON schema without `title`. A property with this name stays."""
    if isinstance(value, Mapping):
        return {
            key: {name: without_titles(item) for name, item in part.items()}
            if key == "properties"
            else without_titles(part)
            for key, part in value.items()
            if key != "title"
        }
    return [without_titles(item) for item in value] if isinstance(value, list) else value


def sent(server: ScriptedServer, side: Side) -> list[dict[str, Any]]:
    """Return the requests that arrived, in the form in which they are compared."""
    requests = []
    for request in server.requests:
        body = dict(request.body)
        if side.streamed:
            assert body.pop("stream") is True
            assert body.pop("stream_options") == {"include_usage": True}
        if "tools" in body:
            body["tools"] = [without_titles(tool) for tool in body["tools"]]
        headers = {name: request.headers[name] for name in HEADERS if name in request.headers}
        requests.append({"path": request.path, "body": body, "headers": headers})
    return requests


async def observe(side: Side, scenario: Scenario, folder: Path) -> dict[str, Any]:
    """Run all turns of a scenario on one side, and return what was seen. An exception ends the scenario, and is a part of
    what was seen.
    """
    END_OF_WORK.clear()
    turns: list[Any] = []
    seen: dict[str, Any] = {"turns": turns}
    for name, data in scenario.files.items():
        (folder / name).write_bytes(data)
    with ScriptedServer(list(scenario.script)) as server:
        run = Run(side, folder, server.base_url)
        keywords = {
            "sandbox": side.sandbox.local(folder),
            "model": scenario.model,
            "api_base": server.base_url,
            "api_key": "sk-test",
            "options": side.options(
                **{
                    k: v.make(run) if isinstance(v, Made) else v
                    for k, v in scenario.completion_kwargs.items()
                }
            ),
            **scenario.keywords,
        }
        keywords = {k: v.make(run) if isinstance(v, Made) else v for k, v in keywords.items()}
        try:
            async with side.api.aagent_session(side.api.Harness.TOOL_LOOP, **keywords) as session:
                for prompt in scenario.prompts:
                    await _turn(session, prompt, scenario, turns, seen)
                seen["session"] = {"usage": plain(session.usage), "cost": plain(session.cost)}
                seen["history"] = plain(await session.history())
        except Exception as error:
            seen["raised"] = f"{caught_as(error)}: {error}"
        END_OF_WORK.set()
        seen["requests"] = sent(server, side)
    return seen


def caught_as(error: Exception) -> str:
    """Return the class with which code for LiteLLM catches an error. Our own class may be a subclass of it."""
    for kind in (ValueError, TypeError):
        if isinstance(error, kind):
            return kind.__name__
    return next(kind.__name__ for kind in type(error).__mro__ if hasattr(theirs, kind.__name__))


async def _turn(
    session: Any, prompt: str, scenario: Scenario, turns: list[Any], seen: dict[str, Any]
) -> None:
    turn: dict[str, Any] = {}
    turns.append(turn)
    try:
        result = await _result(session, prompt, scenario)
    except (theirs.OutputInvalid, ours.OutputInvalid) as error:
        turn["invalid"] = {"raw": error.raw, "problem": str(error).split("\n")[0]}
        result = error.result
    turn["events"] = joined(result.events)
    turn["result"] = {name: plain(getattr(result, name)) for name in RESULT_FIELDS}


async def _result(session: Any, prompt: str, scenario: Scenario) -> Any:
    if scenario.reader is None:
        return await session.arun(prompt)
    stream, reader = session.astream(prompt), scenario.reader()
    async for event in stream:
        answer = reader(stream, event)
        if inspect.isawaitable(answer):
            await answer
    return stream.result


MISSING = "(nothing)"


def differences(theirs_seen: Any, ours_seen: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Return path ("turns.0.result.cost") -> (LiteLLM's value, our value) for each place where two observations differ."""
    different: dict[str, tuple[Any, Any]] = {}
    dot = f"{path}." if path else ""
    kinds = [side.get("event") for side in (theirs_seen, ours_seen) if isinstance(side, dict)]
    if len(kinds) == 2 and kinds[0] == kinds[1]:
        for key in {**theirs_seen, **ours_seen}:
            different.update(
                differences(theirs_seen.get(key, MISSING), ours_seen.get(key, MISSING), f"{dot}{key}")
            )
        return different
    if isinstance(theirs_seen, list) and isinstance(ours_seen, list):
        left, right = len(theirs_seen), len(ours_seen)
        at = 0  # items that only one side has are searched between the common beginning and the common end
        while at < min(left, right) and (left == right or theirs_seen[at] == ours_seen[at]):
            different.update(differences(theirs_seen[at], ours_seen[at], f"{dot}{at}"))
            at += 1
        while left > at and right > at and theirs_seen[left - 1] == ours_seen[right - 1]:
            left, right = left - 1, right - 1
        for number in range(at, max(left, right)):
            values = [
                side[number] if number < end else MISSING
                for side, end in ((theirs_seen, left), (ours_seen, right))
            ]
            different.update(differences(*values, f"{dot}{number}"))
        return different
    return {} if theirs_seen == ours_seen else {path: (theirs_seen, ours_seen)}
