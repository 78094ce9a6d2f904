"""The model "toolloop/demo": rules instead of a language model, so that every notebook runs without key or network.

It goes through `litellm.acompletion()` as any model does. It calls the tools that the prompt names or whose words it
fits, fills their arguments (`filling.py`), and answers with what they returned. The same messages get the same answer;
but what it is, it says once in a process, and where it is asked for more than it can.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from toolloop_jupyter.core.provider import Delta, ProviderRequest

from . import offline
from .filling import MISSING, STOP_WORDS, Filler, find, parse_json, prose, result_lines, stems
from .parts import End, Turn, call, parts_of, reasoning, text, words

PACE = 0.004
"""Seconds a word."""
MOST_CALLS = 5
"""Calls in one turn."""
DISCLAIMER = (
    "This is a demonstration, not a language model: `toolloop/demo` follows a few rules. "
    "Choose a real model with `--model`."
)
AKIN = [set(stems(group)) for group in """search find grep look locate where mention contain query/delete remove empty
    /read open show view print cat/list show which/write save create store/count many/price cost much expensive
    /post comment leave publish send mail email message/add sum plus total/multiply times product/subtract minus
    /divide quotient/calculate compute calculator sum/weather temperature rain warm cold forecast/time clock
    """.split("/")]  # fmt: skip
"""Words that mean the same in a prompt and in a tool's name."""
WRITERS = set(stems("post write send delete create update comment save remove publish submit"))
WEAK = set(stems("get fetch code file data tool run do make text item info set line"))
"""Words of a tool's name that say little."""
EXPLAIN = re.compile(r"\b(explain|review|summari[sz]e|describe|why)\b", re.IGNORECASE)
RECALL = re.compile(r"\b(?:did|have|had|was|were|found|said|again)\b.*\?", re.IGNORECASE)
TRANSIENT = re.compile(r"again|temporar|time[d ]?-?\s?out|busy|unavailable|retry|rate limit", re.IGNORECASE)
FAILED = re.compile(
    r"[\w.]*(?:Error|Exception|Timeout)\b|invalid argument|arguments are|unknown tool|This call "
)


@dataclass(frozen=True)
class Step:
    """One tool call and what came of it; as any model, this one sees a failure or a denial in the text only."""

    name: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def kind(self) -> str:
        """Either "ok", "error" or "denied"."""
        return (
            "denied" if self.result.startswith("denied") else "error" if FAILED.match(self.result) else "ok"
        )

    def told(self) -> str:
        """Say what came of it, with its first lines."""
        lines, value = [line[:160] for line in result_lines(self.result)], parse_json(self.result)
        first = self.result.strip().split("\n")[0][:200]
        if self.kind == "denied":
            return f"I was not allowed to run `{self.name}`, so I left it: “{first.split('. ')[0]}”."
        if self.kind == "error":
            return f"`{self.name}` failed: “{first}”."
        if not any(lines) or value is None and self.result in ("null", "None"):
            return f"`{self.name}` found nothing."
        if len(lines) == 1 and not isinstance(value, list):
            return f"`{self.name}` says: {lines[0]}"
        kind = "item" if isinstance(value, list) else "entrie" if isinstance(value, dict) else "line"
        count, cut = f"{len(lines)} {kind}{'s'[: len(lines) > 1]}", "; it begins" * (len(lines) > 8)
        language = next(
            (p.rpartition(".")[2] for p in find("path", str(self.arguments)) if kind == "line"), "text"
        )
        fence = "````" if "```" in self.result else "```"
        return "\n".join([f"`{self.name}` returned {count}{cut}:\n", fence + language, *lines[:8], fence])


class Conversation:
    """What the model is sent, and the rules for what comes next."""

    def __init__(self, request: ProviderRequest) -> None:
        messages, self.choice = request.messages, request.options.get("tool_choice")
        users = [i for i, message in enumerate(messages) if message.get("role") == "user"]
        results = {m.get("tool_call_id"): text_of(m) for m in messages if m.get("role") == "tool"}
        self.prompts = [text_of(messages[i]) for i in users] or [""]
        self.prompt, self.unfilled = self.prompts[-1], list[str]()
        self.steps, self.earlier = list[Step](), list[Step]()
        for i, message in enumerate(messages):
            for one in message.get("tool_calls") or ():
                arguments = parse_json(one["function"].get("arguments") or "{}")
                known = arguments if isinstance(arguments, dict) else {}
                step = Step(one["function"]["name"], known, results.get(one.get("id"), ""))
                (self.steps if not users or i > users[-1] else self.earlier).append(step)
        self.tools = {
            tool["function"]["name"]: tool["function"] for tool in request.tools if "function" in tool
        }
        self.schema = asked_schema(request.options.get("response_format"))
        kinds = ("quoted", "path", "number", "name", "identifier")
        self.plain = not any(find(kind, self.prompt) for kind in kinds)

    def next_call(self) -> tuple[str, dict[str, Any]] | None:
        """Return the next call, or None when there is nothing more to call."""
        if self.choice == "none" or len(self.steps) >= MOST_CALLS:
            return None
        if self.steps and (again := self._retry(self.steps[-1])):
            return again
        done = {step.name for step in self.steps}
        for name in (name for name in self._chosen() if name not in done):
            arguments = self._filler(name).value(self._parameters(name))
            if arguments is not MISSING:
                return name, arguments
            self.unfilled.append(name)
        return None

    def _parameters(self, name: str) -> dict[str, Any]:
        return {"type": "object", **(self.tools[name].get("parameters") or {})}

    def _filler(self, name: str = "", story: str = "") -> Filler:
        """Return what fills the arguments of a tool, or an answer; the names of tools are no values."""
        names, schema = (
            "|".join(map(re.escape, self.tools)),
            self._parameters(name) if name else self.schema or {},
        )
        prompt = (
            re.sub(rf"`?(?<![\w\"'])(?:{names})(?![\w\"'])(?:\(\))?`?", " ", self.prompt)
            if names
            else self.prompt
        )
        good = [step.result for step in reversed(self.earlier + self.steps) if step.kind == "ok"]
        definitions = schema.get("$defs") or schema.get("definitions") or {}
        return Filler(prompt, definitions, good, not name, story, skip={*stems(name)})

    def _chosen(self) -> list[str]:
        """Return the tools that the prompt asks for, in its order; looking comes before writing."""
        if isinstance(self.choice, Mapping):
            return [self.choice["function"]["name"]][len(self.steps) :]
        if self.plain and self.earlier and RECALL.search(self.prompt):
            return []
        said, writers = prose(self.prompt), [name for name in self.tools if WRITERS & {*stems(name)}]
        scores = {name: self._score(name, said) for name in self.tools}
        chosen = [name for name in scores if scores[name][0] >= 2]
        if chosen or (self.plain and len({*stems(said)} - STOP_WORDS) < 2):
            return sorted(chosen, key=lambda name: (name in writers, scores[name][1]))
        best = [name for name in scores if scores[name][0] > 0 and name not in writers]
        # "And in Bergen?" goes to the tool that was used last, if it says all that this one needs.
        used = [step.name for step in reversed(self.earlier) if step.name in self.tools]
        sure = (n for n in used if self._filler(n).value(self._parameters(n), must=False) is not MISSING)
        return [max(best, key=lambda name: scores[name][0])] if best else list(sure)[:1]

    def _score(self, name: str, said: str) -> tuple[float, int]:
        """Return how well the prompt fits a tool, and where the first word stands that does."""
        score, place, seen, parts = 0.0, len(said), set[str](STOP_WORDS), {*stems(name)}
        others = {word for other in self.tools for word in stems(other)}
        about = {
            *stems(
                f"{self.tools[name].get('description')} {' '.join(self._parameters(name).get('properties', ()))}"
            )
        }
        named = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.prompt)
        for match in [*([named] if named else ()), *re.finditer(r"[^\W\d_]+", said)]:
            word = (stems(match.group()) or [""])[0]
            akin = word not in others and any(word in group and group & parts for group in AKIN)
            worth = (
                9
                if match is named
                else 0
                if word in seen
                else 1
                if word in parts & WEAK
                else 3
                if word in parts
                else 2
                if akin
                else (word in about - WEAK) / 2
            )
            seen.add(word)
            if worth >= 2 and {"not", "no", "without", "never", "don"} & {
                *stems(self.prompt[: match.start()])[-3:]
            }:
                return 0, place
            score, place = score + worth, min(place, match.start()) if worth >= 2 else place
        return score, place

    def _retry(self, failed: Step) -> tuple[str, dict[str, Any]] | None:
        """Return a failed call once more: as it was if that may help, else with the value nearest to the blamed one."""
        tried = [step for step in self.steps if step.name == failed.name]
        if failed.kind != "error" or len(tried) > 1 or failed.name not in self.tools:
            return None
        if TRANSIENT.search(failed.result):
            return failed.name, dict(failed.arguments)
        for key, value in failed.arguments.items():
            schema, filler = (
                self._parameters(failed.name)["properties"].get(key, {}),
                self._filler(failed.name),
            )
            paths = [path for text in filler.results for path in find("path", text)]
            offered = [
                *find("quoted", failed.result),
                *find("path", failed.result),
                *(paths if find("path", str(value)) else ()),
            ]
            others = [one for one in offered if one != value and filler.fits(schema, one)]
            if str(value) in failed.result and others:
                near = max(others, key=lambda one: SequenceMatcher(None, str(value), one).ratio())
                return failed.name, {**failed.arguments, key: near}
        return None

    def answer(self, *, first: bool) -> str:
        """Return the whole answer, in Markdown."""
        told = []
        for at, step in enumerate(self.steps):
            again = step.name in (other.name for other in self.steps[at + 1 :])
            more = " I tried once more." if again else " I know no other way to call it."
            told.append(step.told() + more * (step.kind == "error"))
        told += [
            f"I wanted to call `{name}`, but found nothing to fill its arguments with."
            for name in self.unfilled
        ]
        kept = [step for step in self.earlier if step.kind == "ok"] or self.earlier
        if not told and kept:
            said = {*stems(self.prompt)}
            best = max(reversed(kept), key=lambda step: len(said & {*stems(step.name)}))
            told = [
                f"Before this you asked: “{self.prompts[-2][:160]}”",
                f"From that, I still have this: {best.told()}",
            ]
        elif not told:
            tools = ", ".join(f"`{name}`" for name in self.tools)
            none = f"None of my tools ({tools}) fits these words." if tools else "I have no tools here."
            told, first = [f"You wrote: “{self.prompt[:160]}” {none}"], True
        if asked := EXPLAIN.search(self.prompt):
            told, first = [*told, f"To {asked[0].lower()} that is beyond me."], True
        return "\n\n".join(told + [f"*{DISCLAIMER}*"] * first)

    def structured(self) -> str:
        """Return an answer that fits the schema, in JSON."""
        good = [step for step in self.earlier + self.steps if step.kind == "ok"][-2:]
        told = [
            f"{step.name} returned {step.result[:60]!r}"
            for step in good
            if len(result_lines(step.result)) < 2
        ]
        told += [f"{s.name} returned {n} lines" for s in good if (n := len(result_lines(s.result))) > 1]
        story = f"Demonstration: {', then '.join(told)}." if told else f"Demonstration: {self.prompt[:80]}"
        value = self._filler(story=story).value(self.schema, "answer")
        return json.dumps({} if value is MISSING else value, ensure_ascii=False)


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, also of one that is made of parts."""
    content = message.get("content") or ""
    parts = [{"text": content}] if isinstance(content, str) else content
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def asked_schema(wanted: Any) -> Mapping[str, Any] | None:
    """Return the schema of a `response_format`: a class, or one of the mappings that LiteLLM takes."""
    if isinstance(wanted, type):
        return dict(wanted.model_json_schema()) if hasattr(wanted, "model_json_schema") else None
    if not isinstance(wanted, Mapping) or wanted.get("type") not in ("json_schema", "json_object"):
        return None
    inner = wanted.get("json_schema") or {}
    free = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    return inner.get("schema") or wanted.get("schema") or wanted.get("response_schema") or free


class DemoModel:
    """The rule-based stand-in. All that it keeps between calls is whether it has said what it is."""

    def __init__(self, pace: float = PACE) -> None:
        self.pace = pace
        self._introduced = False

    async def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Stream a tool call, an answer, or a structured answer."""
        talk = Conversation(request)
        number = len(talk.earlier) + len(talk.steps) + 1
        if wanted := talk.next_call():
            name, arguments = wanted
            saying, sent = (
                f"{'Next' if talk.steps else 'First'} I'll call `{name}`.",
                json.dumps(arguments, ensure_ascii=False),
            )
            parts = [text(saying), call(name, sent).as_id(f"call_{number}")]
        else:
            saying, sent = talk.structured() if talk.schema else talk.answer(first=not self._introduced), ""
            self._introduced = self._introduced or not talk.schema
            parts = [text(saying)]
        if request.options.get("reasoning_effort") not in (None, "none"):
            thought = (
                f"The words of the prompt fit {wanted[0]}."
                if wanted
                else "There is nothing to call, so I answer."
            )
            parts.insert(0, reasoning(thought))
        usage = {
            "prompt_tokens": offline.count_words(request.messages),
            "completion_tokens": len(words(saying + sent)),
        }
        async for delta in Turn(number, request.messages, self.pace).play(
            parts_of([*parts, End(usage=usage)])
        ):
            yield delta
        yield {"finish_reason": "tool_calls" if wanted else "stop", "usage": usage}


_demo = DemoModel()
offline.put("demo", _demo)
