"""Choose the next tool call by the words of the prompt and of the tools' names and descriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .conversation import Conversation, Step
from .evidence import Evidence
from .filling import MISSING, Filler
from .material import Material, is_lister, role_of
from .vocabulary import (
    MEANT,
    NEGATIONS,
    READ_ON,
    READERS,
    STOP_WORDS,
    WEAK,
    WRITERS,
    name_words,
    stem,
    word_positions,
)

MOST_CALLS = 5
"""Calls in one turn, retries among them."""

_RECALL = re.compile(
    r"\b(?:did|have|had) (?:you|it|they|that)\b|\b(?:you|we) (?:found|read|said|called|saw|just)\b|\bagain what\b"
    r"|^(?:so |and )?what (?:was|were) (?:that|it|the|those)\b|\b(?:your|the) (?:last|previous|earlier|first) answer\b",
    re.IGNORECASE,
)
_TRANSIENT = re.compile(
    r"again|temporar|time[d ]?-?\s?out|busy|unavailable|retry|rate limit|overload", re.IGNORECASE
)


@dataclass(frozen=True)
class Planned:
    """A call to make, and a sentence that says so."""

    name: str
    arguments: dict[str, Any]
    saying: str


@dataclass(frozen=True)
class Plan:
    """What comes next: a call, or nothing, with the tools that were wanted but could not be filled."""

    call: Planned | None
    unfilled: tuple[str, ...] = ()


class Planner:
    """Plans one turn. `tools` as they come in a request; `forced` is a tool that has to be called."""

    def __init__(
        self, conversation: Conversation, tools: Sequence[Mapping[str, Any]], forced: str = ""
    ) -> None:
        self._talk = conversation
        self._tools = {tool["function"]["name"]: tool["function"] for tool in tools if "function" in tool}
        self._forced = forced
        self._prompt = Evidence(conversation.prompt, without=self._tools)

    def next(self, material: Material) -> Plan:
        """Return the next call, if there is one."""
        steps = self._talk.steps
        if len(steps) >= MOST_CALLS or (not self._forced and self._is_recall()):
            return Plan(None)
        if steps and steps[-1].kind == "error":
            again = self._retry(steps[-1], material)
            if again is not None:
                return Plan(again)
        done, unfilled = {step.name for step in steps}, []
        for name in self._chosen():
            if name in done:
                continue
            arguments = self._filler(name, material).arguments(self._parameters(name))
            if arguments is None:
                unfilled.append(name)
                continue
            return Plan(Planned(name, arguments, self._saying(name, arguments)))
        return Plan(None, tuple(unfilled))

    def _chosen(self) -> list[str]:
        """The tools that the prompt asks for, in order; looking comes before writing."""
        if self._forced:
            return [self._forced]
        scored = {name: self._score(tool) for name, tool in self._tools.items()}
        named = [n for n, (score, _) in scored.items() if score >= 2]
        if not named:
            harmless = [name for name in scored if not WRITERS & set(name_words(name))]
            best = max(harmless, key=lambda n: scored[n][0], default="")
            if self._is_chat():
                named = []
            elif best and scored[best][0] > 0:
                named = [best]
            else:
                # "And in Bergen?" goes to the tool that the conversation used last.
                used = [step.name for step in reversed(self._talk.earlier_steps) if step.name in self._tools]
                named = [name for name in [*used, *self._tools] if self._is_filled_by_prompt(name)][:1]
        ordered = sorted(named, key=lambda n: (bool(WRITERS & set(name_words(n))), scored[n][1]))
        return ordered + [name for name in self._readers_on() if name not in ordered]

    def _score(self, tool: Mapping[str, Any]) -> tuple[float, int]:
        """How well the prompt's words fit a tool, and where the first one that does stands."""
        exact = re.search(rf"(?<!\w){re.escape(tool['name'])}(?!\w)", self._talk.prompt)
        if exact and not self._negated(exact.start()):
            return 10, exact.start()
        words = name_words(tool["name"])
        about = {w for w, _ in word_positions(str(tool.get("description", ""))) if w not in STOP_WORDS}
        about |= {
            w for key in (tool.get("parameters") or {}).get("properties") or {} for w in name_words(key)
        }
        score, place, counted = 0.0, len(self._talk.prompt), set()
        for word, position in word_positions(self._prompt.orders):
            if word in counted or (word in STOP_WORDS and word not in ("which", "where", "many", "look")):
                continue
            worth = max((self._worth(word, part) for part in words), default=0)
            if worth >= 2 and self._negated(position):
                return 0, place
            if worth >= 2:
                place = min(place, position)
            elif word in about and word not in WEAK:
                worth = max(worth, 0.5)
            counted.add(word)
            score += worth
        return score, place

    @staticmethod
    def _worth(word: str, part: str) -> float:
        if word == part:
            return 1 if part in WEAK else 3
        return 2 if word in MEANT.get(part, ()) else 0

    def _negated(self, position: int) -> bool:
        before = re.findall(r"[\w']+", self._talk.prompt[:position].lower())[-3:]
        return bool(NEGATIONS & set(before))

    def _is_chat(self) -> bool:
        prompt = self._prompt
        concrete = prompt.quoted or prompt.names or prompt.files or prompt.numbers or prompt.identifiers
        return len(prompt.content_words) < 2 and not concrete

    def _is_recall(self) -> bool:
        """Whether the prompt asks about what was found before, and says nothing new to look for."""
        prompt = self._prompt
        asks_back = bool(self._talk.earlier_steps) and _RECALL.search(prompt.text) is not None
        return asks_back and not (prompt.quoted or prompt.identifiers or prompt.files or prompt.names)

    def _is_filled_by_prompt(self, name: str) -> bool:
        parameters = self._parameters(name)
        filler = self._filler(name, Material(self._prompt))
        properties, required = parameters.get("properties") or {}, parameters.get("required") or ()
        return bool(required) and all(
            filler.value(properties[r], r, sure=True) is not MISSING for r in required
        )

    def _readers_on(self) -> list[str]:
        """After hits in files: a tool that reads one, when the prompt wants more than a list."""
        if not any(Evidence(step.result).hits for step in self._talk.steps if step.kind == "ok"):
            return []
        if not READ_ON & {word for word, _ in word_positions(self._talk.prompt)}:
            return []
        return [
            name
            for name in self._tools
            if READERS & set(name_words(name))
            and any(
                role_of(r, self._parameters(name)["properties"][r]) == "path"
                for r in self._parameters(name).get("required") or ()
            )
        ]

    def _retry(self, failed: Step, material: Material) -> Planned | None:
        """Try a failed call once more, differently, if there is a way."""
        if sum(step.name == failed.name for step in self._talk.steps) > 1 or failed.name not in self._tools:
            return None
        if _TRANSIENT.search(failed.result):
            saying = f"`{failed.name}` failed for now; I'll try it once more."
            return Planned(failed.name, dict(failed.arguments), saying)
        text = failed.result
        blamed = {
            key: [value]
            for key, value in failed.arguments.items()
            if str(value) in text or re.search(rf"\b{re.escape(key)}\b", text)
        }
        filler = self._filler(failed.name, material, blamed, Evidence(text, without=self._tools))
        arguments = filler.again(self._parameters(failed.name), failed.arguments)
        changed = next((v for k, v in arguments.items() if failed.arguments.get(k, MISSING) != v), MISSING)
        if changed is MISSING:
            return None
        return Planned(failed.name, arguments, f"That failed; I'll try it once with `{changed}` instead.")

    def _filler(
        self,
        name: str,
        material: Material,
        avoid: Mapping[str, list[Any]] | None = None,
        hint: Evidence | None = None,
    ) -> Filler:
        tool = self._tools[name]
        own = {stem(w) for w in name_words(name)} | {
            w for w, _ in word_positions(str(tool.get("description", "")))
        }
        return Filler(
            Material(
                material.prompt, material.results, material.earlier, hint, material.story, material.failed
            ),
            self._parameters(name).get("$defs") or {},
            lists=is_lister(name),
            avoid=avoid or {},
            spent=frozenset(str(value) for step in self._talk.steps for value in step.arguments.values()),
            skip=frozenset(own),
        )

    def _parameters(self, name: str) -> Mapping[str, Any]:
        parameters: Mapping[str, Any] = self._tools[name].get("parameters") or {}
        return parameters

    def _saying(self, name: str, arguments: Mapping[str, Any]) -> str:
        first = next((str(v) for v in arguments.values() if isinstance(v, (str, int, float))), "")
        shown = f" with `{first}`" if first and len(first) <= 40 and "`" not in first else ""
        return f"{'Next' if self._talk.steps else 'First'} I'll call `{name}`{shown}."
