"""The model "toolloop/demo". It follows rules and is not a language model, so it needs no API key and no network.

The model calls a tool if the prompt contains the tool's name, or words that fit the tool. Then the model answers with the
results. The same messages always get the same answer. In each process, the first answer in Markdown says that this is not a
language model. The line above a run says so for every run.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from ..core.events import read_content
from ..core.models import Answers, Delta, ProviderRequest
from . import registry
from .filling import AKIN, MISSING, STOP_WORDS, WEAK, Filler, find, parse_json, result_lines, stems
from .parts import End, ScriptedTurn, call, count_words, make_parts, reasoning, text

PACE, MOST_CALLS = 0.004, 5  # seconds for each word; the most calls in one turn
DISCLAIMER = "*This is a demonstration, not a language model: `toolloop/demo` follows a few rules. Choose a real model with `--model`.*"
WRITERS = {*stems("post write send delete create update comment save remove publish submit")}
EXPLAIN = re.compile(r"\b(explain|review|summari[sz]e|describe)\b", re.IGNORECASE)
RECALL = re.compile(r"\b(?:did|have|had|was|were|found|said|again)\b.*\?", re.IGNORECASE)
OUTLINE = re.compile(r"^[ \t]{0,8}(?:async[ ]+)?(?:def|class) (\w+)|^#{1,4} (.{1,80})$", re.MULTILINE)
TRANSIENT = re.compile(r"again|temporar|time[d ]?-?\s?out|busy|unavailable|rate limit", re.IGNORECASE)
FAILED = re.compile(r"[\w.]*(Error|Exception|Timeout)\b|invalid arg|arguments are|unknown tool|This call")


class Step(NamedTuple):
    """One tool call and its result. Like any model, this one sees a failure or a denial only in the result's text."""

    name: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def kind(self) -> str:
        """Either "ok", "error" or "denied"."""
        return "denied" if self.result[:6] == "denied" else "error" if FAILED.match(self.result) else "ok"

    def told(self) -> str:
        """Return a sentence about the result, and the first lines of the result."""
        lines, value = [line[:160] for line in result_lines(self.result)], parse_json(self.result)
        first = (lines or [""])[0].replace("`", "'")
        if self.kind == "denied":
            return f"I was not allowed to run `{self.name}`, so I left it: `{first.split('. ')[0]}`."
        if self.kind == "error":
            return f"`{self.name}` failed: `{first}`."
        if not any(lines) or self.result in ("null", "None"):
            return f"`{self.name}` found nothing."
        if len(lines) == 1:
            return f"`{self.name}` says: `{first}`"
        kind = "items" if isinstance(value, list) else "entries" if isinstance(value, dict) else "lines"
        path = next(iter(find("path", str(self.arguments))), ".text") if kind == "lines" else ".text"
        begins, fence = " and begins" * (len(lines) > 8), "````" if "```" in self.result else "```"
        block = [fence + path.rpartition(".")[2], *lines[:8], fence]
        return "\n".join([f"`{self.name}` returned {len(lines)} {kind}{begins}:\n", *block])


class Conversation:
    """The messages of a request, and the rules for the model's next step."""

    def __init__(self, request: ProviderRequest) -> None:
        self.prompts, self.unfilled, self.steps, self.earlier = [""], list[str](), list[Step](), list[Step]()
        results = {
            m.get("tool_call_id"): read_content(m.get("content"), "\n")
            for m in request.messages
            if m.get("role") == "tool"
        }
        for message in request.messages:
            if message.get("role") == "user":
                self.prompts.append(read_content(message.get("content"), "\n"))
                self.earlier, self.steps = self.earlier + self.steps, []
            for one in message.get("tool_calls") or ():
                sent = parse_json(one["function"].get("arguments") or "")
                sent = sent if isinstance(sent, dict) else {}
                self.steps.append(Step(one["function"]["name"], sent, results.get(one.get("id"), "")))
        self.prompt, self.choice = self.prompts[-1], request.options.get("tool_choice")
        self.tools = dict[str, dict[str, Any]]()
        for tool in (tool["function"] for tool in request.tools if "function" in tool):
            shape = {"type": "object", "properties": {}, **(tool.get("parameters") or {})}
            self.tools[tool["name"]] = {**shape, "description": f"{tool.get('description')} "}
        self.plain = not any(find(k, self.prompt) for k in ("quoted", "path", "number", "name", "identifier"))
        wanted: Any = request.options.get("response_format") or {}
        as_class = getattr(wanted, "model_json_schema", None)
        self.schema = as_class() if as_class else wanted.get("json_schema", {}).get("schema")

    def next_call(self) -> tuple[str, dict[str, Any]] | None:
        """Return the next tool call as (tool name, arguments); None if there is no further call."""
        if self.choice == "none" or len(self.steps) >= MOST_CALLS:
            return None
        if self.steps and self.steps[-1].name in self.tools and (again := self._retry(self.steps[-1])):
            return again
        for name in [name for name in self._chosen() if name not in [step.name for step in self.steps]]:
            arguments = self._filler(name).value(self.tools[name])
            if arguments is not MISSING:
                return name, arguments
            self.unfilled.append(name)
        return None

    def _filler(self, name: str = "", story: str = "") -> Filler:
        """Return the Filler for the arguments of a tool, or for an answer (name ""). It never uses a tool's name as a value."""
        schema, names = self.tools.get(name, self.schema or {}), "|".join(map(re.escape, self.tools)) or "$^"
        prompt = re.sub(rf"`?(?<![\w\"'])(?:{names})(?![\w\"'])(?:\(\))?`?", " ", self.prompt)
        good = [step.result for step in reversed(self.earlier + self.steps) if step.kind == "ok"]
        return Filler(prompt, schema.get("$defs", {}), good, not name, story, {*stems(name)})

    def _chosen(self) -> list[str]:
        """Return the tools that the prompt asks for, in its order; tools that only read come first."""
        if isinstance(self.choice, Mapping):
            return [self.choice["function"]["name"]]
        if self.plain and self.earlier and RECALL.search(self.prompt):
            return []
        scores = {name: self._score(name) for name in self.tools}
        writers = [name for name in self.tools if WRITERS & {*stems(name)}]
        chosen = [name for name in scores if scores[name][0] >= 2]
        if chosen or (self.plain and len({*stems(self.prompt)} - STOP_WORDS) < 2):
            return sorted(chosen, key=lambda name: (name in writers, scores[name][1]))
        if re.match(r"(?i)(?:and|what about|how about|now)\b", self.prompt):  # "And in Bergen?"
            return [step.name for step in reversed(self.earlier) if step.name in self.tools][:1]
        best = sorted((-scores[name][0], name) for name in scores if name not in writers)
        return [name for score, name in best[:1] if score < 0 or (len(scores) == 1 and not self.plain)]

    def _score(self, name: str) -> tuple[float, int]:
        """Return (score, place): how well the prompt fits the tool, and the index of the prompt's first fitting word."""
        others, parts = {word for other in self.tools for word in stems(other)}, {*stems(name)}
        about = {*stems(self.tools[name]["description"] + " ".join(self.tools[name]["properties"]))} - WEAK
        said = stems(" ".join(find("word", re.split(r"\b(?:saying|with the text)\b", self.prompt)[0])))
        if named := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.prompt):
            said.insert(len(stems(" ".join(find("word", self.prompt[: named.start()])))), name)
        score, place = 0.0, len(said)
        for at, word in [(i, word) for i, word in enumerate(said) if word not in {*STOP_WORDS, *said[:i]}]:
            akin = word not in others and any(word in group and {*group} & parts for group in AKIN)
            strong = 9 if word == name else 3 if word in parts - WEAK else 2 if akin else 0
            if strong and {"not", "no", "without", "never", "don"} & {*said[max(0, at - 2) : at]}:
                return 0, len(said)
            score += strong or (word in parts) + (word in about) / 2
            place = min(place, at) if strong else place
        return score, place

    def _retry(self, failed: Step) -> tuple[str, dict[str, Any]] | None:
        """Return the call to try after a failure that may be temporary, or with a similar value that the result offers; else None."""
        count = [step.name for step in self.steps].count(failed.name)
        for key, value in failed.arguments.items() if failed.kind == "error" and count == 1 else ():
            texts = [failed.result, *(self._filler().results if find("path", str(value)) else [])]
            offered = find("quoted", failed.result) + find("path", "\n".join(texts))
            near = get_close_matches(str(value), [one for one in offered if one != value], 1, 0)
            if str(value) in failed.result and near:
                return failed.name, {**failed.arguments, key: near[0]}
        again = failed.kind == "error" and count == 1 and TRANSIENT.search(failed.result)
        return (failed.name, dict(failed.arguments)) if again else None

    def answer(self, *, first: bool) -> str:
        """Return the whole answer: JSON for the schema, else Markdown, which says in the `first` answer that this is a demo."""
        if self.schema:
            good = [step for step in self.earlier + self.steps if step.kind == "ok"][-2:]
            counts = [(s.name, len(result_lines(s.result))) for s in good]
            done = ", then ".join(f"{name} returned {n} line{'s' * (n != 1)}" for name, n in counts)
            value = self._filler("", f"Demonstration: {done or self.prompt[:80]}.").value(self.schema)
            return json.dumps({} if value is MISSING else value, ensure_ascii=False)
        told, names, asked = list[str](), [step.name for step in self.steps], EXPLAIN.search(self.prompt)
        for number, step in enumerate(self.steps, 1):
            last = step.kind == "error" and step.name not in names[number:]
            told.append(step.told() + " I know no other way to call it." * last)
        told += [f"I found no values for the arguments of `{name}`." for name in self.unfilled]
        if not told and self.earlier:
            kept = ([step for step in self.earlier if step.kind == "ok"] or self.earlier)[-1]
            told = [f"Before this you asked: “{self.prompts[-2][:160]}” I still have that:", kept.told()]
        elif not told:
            fit = f"None of my tools ({', '.join(self.tools)}) fits." if self.tools else "I have no tools."
            told = [f"You wrote: “{self.prompt[:160]}”", fit]
        if asked:
            read = [step.result for step in self.earlier + self.steps if step.kind == "ok"][-1:]
            parts = [f"`{a or b}`" for text in read for a, b in OUTLINE.findall(text[:20_000])]
            told += [f"Its lines show these parts: {', '.join(dict.fromkeys(parts[:8]))}."] if parts else []
            told += [f"To {asked[0].lower()} that is beyond me."]
        return "\n\n".join(told + [DISCLAIMER] * first)


class DemoModel(Answers):
    """The rule-based demo model. Between two requests it remembers only whether it has said that it is a demo."""

    def __init__(self, pace: float = PACE) -> None:
        self.pace, self._introduced = pace, False

    async def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Stream a tool call, an answer in Markdown, or an answer in JSON."""
        talk = Conversation(request)
        number, wanted, sent = len(talk.earlier + talk.steps) + 1, talk.next_call(), ""
        thought = f"The prompt fits {wanted[0]}." if wanted else "There is no more to call."
        aloud = request.options.get("reasoning_effort") not in (None, "none")
        parts: list[Any] = [reasoning(thought)] * aloud
        if wanted:
            said = f"{'Next' if talk.steps else 'First'} I'll call `{wanted[0]}`."
            sent = json.dumps(wanted[1], ensure_ascii=False)
            parts += [text(said), call(wanted[0], sent).as_id(f"call_{number}")]
        else:
            said = talk.answer(first=not self._introduced)
            self._introduced, parts = self._introduced or not talk.schema, [*parts, text(said)]
        usage = {"prompt_tokens": registry.count_words(request.messages)}
        usage["completion_tokens"] = count_words(f"{said} {sent}")
        turn = ScriptedTurn(number, request.messages, self.pace)
        async for delta in turn.play(make_parts([*parts, End(usage=usage)])):
            yield delta
        yield {"finish_reason": "tool_calls" if wanted else "stop", "usage": usage}


_demo = DemoModel()
_demo.model = registry.put("demo", _demo)
