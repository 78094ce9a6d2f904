"""The options of `%%toolloop` and `%toolloop`: one field each, with its flag and its help beside it."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from ..core.errors import HarnessError
from ..core.hiding import names_key
from .hints import unquoted


class Mistake(HarnessError, ValueError):
    """Something typed wrong in a magic: one line that says what to type instead."""

    def _render_traceback_(self) -> list[str]:
        return [f"toolloop: {self}"]


def _option(*flags: str, default: Any = None, **argument: Any) -> Any:
    return field(default=default, metadata={"flags": flags, **argument})


@dataclass
class Options:
    """What an option line says; None means that it says nothing."""

    model: str | None = _option(
        "-m", "--model", metavar="MODEL", help="LiteLLM's model name, or a ScriptedModel variable"
    )
    tools: Sequence[str] | None = _option(
        "-t",
        "--tools",
        nargs="*",
        metavar="NAME",
        help="functions (dotted names too); default: all marked with @tool",
    )
    permissions: str | None = _option(
        "-p", "--permissions", metavar="full|ask|VARIABLE", help="ask before each call, or not"
    )
    output: str | None = _option(
        "-o", "--output", metavar="MODEL", help="pydantic model (a variable) of the answer"
    )
    session: str | None = _option(
        "-s", "--session", metavar="NAME", help="go on with (or begin) this conversation"
    )
    instructions: str | None = _option("-i", "--instructions", metavar="TEXT", help="the system message")
    name: str | None = _option("-a", "--as", metavar="NAME", help="put the Result into this variable")
    max_turns: int | None = _option("--max-turns", type=int, metavar="N", help="most tool calls in this run")
    max_model_calls: int | None = _option(
        "--max-model-calls", type=int, metavar="N", help="most model calls in this run; default: 100"
    )
    max_cost: float | None = _option(
        "--max-cost", type=float, metavar="USD", help="stop when this run has cost so much"
    )
    on_limit: str | None = _option(
        "--on-limit",
        choices=("stop", "answer"),
        help="at a limit: stop, or one last call for a closing answer",
    )
    images: str | None = _option(
        "--images",
        choices=("auto", "always", "never"),
        help="pictures of results to the model; default: auto, where LiteLLM knows that it sees",
    )
    timeout: float | None = _option(
        "--timeout", type=float, metavar="SECONDS", help="most seconds for this run"
    )
    sandbox: str | None = _option(
        "--sandbox", metavar="FOLDER", help="report changed files there (confines nothing)"
    )
    set: Sequence[str] | None = _option(
        "--set", action="append", metavar="KEY=VALUE", help="a completion option, JSON or text; repeatable"
    )
    metadata: Sequence[str] | None = _option(
        "--metadata", action="append", metavar="KEY=VALUE", help="for the gateway's logs; repeatable"
    )
    api_base: str | None = _option("--api-base", metavar="URL", help="address of the provider or gateway")
    api_key: str | None = _option(
        "--api-key",
        metavar="NAME",
        help="NAME of the environment or notebook variable with the key (never the key)",
    )
    on_unattended: str | None = _option(
        "--on-unattended",
        choices=("deny", "allow", "error"),
        help="approvals when nobody is there; default: deny",
    )
    append: bool = _option(
        "--append",
        action="store_true",
        default=False,
        help="run again: add a turn to the session, do not replace it",
    )
    dry_run: bool = _option(
        "--dry-run", action="store_true", default=False, help="show the first request; send nothing"
    )
    step: bool = _option("--step", action="store_true", default=False, help="wait for Next before every call")
    record: str | None = _option("--record", metavar="FILE", help="store what the model sends (no keys)")
    replay: str | None = _option(
        "--replay", metavar="FILE", help="answer from a recording, without a network"
    )
    replay_loose: bool = _option(
        "--replay-loose",
        action="store_true",
        default=False,
        help="go on where the request differs from the recorded one",
    )
    keep_history: bool = _option(
        "--keep-history",
        action="store_true",
        default=False,
        help="keep the messages in the notebook, for %%toolloop resume",
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Mistake(f"{message}. %%toolloop? shows the options.")


def _parser() -> _Parser:
    parser = _Parser(prog="%%toolloop", add_help=False, allow_abbrev=False)
    for item in fields(Options):
        described = dict(item.metadata)
        parser.add_argument(*described.pop("flags"), dest=item.name, default=item.default, **described)
    return parser


def split_words(line: str) -> list[str]:
    """The words of an option line, quotes taken off; nothing is expanded. Raises Mistake for an open quote."""
    words = shlex.shlex(line, posix=True, punctuation_chars="")
    words.commenters, words.whitespace_split = "", True
    words.whitespace += "\u00a0"  # what a web page puts between words comes along when an example is copied
    try:
        return list(words)
    except ValueError:
        if line.endswith("\\"):
            raise Mistake("the options are one line: it cannot go on behind a \\ at its end") from None
        raise Mistake(_shown(f"a quote is not closed in: {line}")) from None


def _shown(message: str) -> str:
    """A message that repeats what was typed, without what may be a key."""
    from ..core.failures import redact

    return redact(re.sub(r"(--?api[-_]?key[\s=]+).*", r"\1…", message))


def parse(line: str) -> Options:
    """Read an option line. Raises Mistake, naming the nearest option, for one that does not exist."""
    words = split_words(line)
    options, rest = _parser().parse_known_args(words)
    if rest:
        raise Mistake(_shown(_unknown(rest[0], words)))
    return Options(**vars(options))


def _unknown(word: str, words: list[str]) -> str:
    from difflib import get_close_matches

    takes_text = {
        flag: item.metadata.get("metavar") in ("TEXT", "FOLDER", "FILE")
        for item in fields(Options)
        for flag in item.metadata["flags"]
    }
    if not word.startswith("-") or word.strip("-") == "":
        if typed := unquoted(words, word, takes_text):
            return f"a text of several words needs quotes: {typed}"
        if words.index(word) > 1 and words[words.index(word) - 2] == "--api-key":
            return "--api-key takes one word, the NAME of a variable (never the key)"
        return f"{word!r} is not an option; the prompt goes below this line, options begin with --"
    if word in ("-h", "--help"):
        return "%%toolloop? in a cell of its own shows the options"
    near = get_close_matches(word.split("=", maxsplit=1)[0], list(takes_text), n=1)
    hint = f"; did you mean {near[0]}?" if near else ". %%toolloop? shows the options."
    return f"unknown option {word.split('=', maxsplit=1)[0]}{hint}"


def pairs(given: Sequence[str] | None, flag: str) -> dict[str, Any]:
    """`key=value` words as a dict; a value is JSON where it reads as JSON, else text."""
    found = {}
    for word in given or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise Mistake(f"{flag} wants key=value, got {word!r}")
        if names_key(key):
            raise Mistake(
                f"{flag} {key}=… would save a key with the notebook. Use --api-key NAME (of a variable); headers and other "
                "credentials go in by a variable: aagent(…, options=ToolLoopOptions(…)), or by the environment"
            )
        if flag == "--set" and key in _NOT_SET:
            raise Mistake(f"--set {key}=… has no effect, the run sets it itself; use {_NOT_SET[key]}")
        try:
            found[key] = json.loads(value, parse_constant=_no_number)
        except (ValueError, RecursionError):
            found[key] = value
    return found


_NOT_SET = {
    "model": "--model",
    "messages": "the text below the option line",
    "tools": "--tools",
    "api_base": "--api-base",
    "base_url": "--api-base",
}


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)  # NaN and Infinity: Python reads them as numbers, JSON and the providers do not


def help_text() -> str:
    """The list of options, for `%%toolloop?`."""
    lines = []
    for item in fields(Options):
        flags = ", ".join(item.metadata["flags"])
        metavar = item.metadata.get("metavar") or "|".join(item.metadata.get("choices", ()))
        lines.append(f"  {f'{flags} {metavar}'.rstrip():<36} {item.metadata['help'].replace('%%', '%')}")
    return "\n".join(lines)
