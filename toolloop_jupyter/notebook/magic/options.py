"""The options of `%%toolloop` and `%toolloop`: one field each, with its flag and its help beside it."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from traitlets import Bool, Enum, Float, Integer, List, Unicode
from traitlets.config import Configurable

from ...core.events import Mistake
from ...core.text import names_key


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
    from ...core.models import redact

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


# --- What a beginner writes in place of a `%%toolloop` cell, and the line that helps: one % for two, the magic not on top. ---

_SINGLE = re.compile(r"\s*%toolloop(?![\w%?])[^\n]*\n(?P<rest>.*)", re.DOTALL)
_DOUBLE = re.compile(r"^[ \t]*%%toolloop(?![\w%?])", re.MULTILINE)


def misplaced(text: str) -> str | None:
    """The line that helps, for a cell that is no `%%toolloop` cell but was meant to be one; None for every other cell.

    IPython itself would call it a syntax error in the middle of the prompt, or a line magic that does not exist.
    """
    if "%toolloop" not in text or text.lstrip().startswith("%%"):
        return None
    single = _SINGLE.match(text)
    if single is not None and single["rest"].strip() and not _is_python(single["rest"]):
        return "%toolloop takes no prompt; with two percent signs, %%toolloop, the lines below are the prompt"
    double = _DOUBLE.search(text)
    if double is not None and _is_python(text[: double.start()]):
        return (
            "%%toolloop must be the first line of its cell; put what stands above it into a cell of its own"
        )
    return None


def _is_python(code: str) -> bool:
    """Whether this is whole Python, magics and all: an open string, say, may hold any line."""
    from IPython.core.inputtransformer2 import TransformerManager

    manager: Any = TransformerManager  # without types before IPython 9
    try:
        ast.parse(manager().transform_cell(code))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def unquoted(words: list[str], stray: str, flags: dict[str, bool]) -> str:
    """The option whose text was written without quotes, as it should be typed; "" when `stray` is none of such.

    `words` are the words of the line, `flags` the options, with whether each takes one value.
    """
    at = words.index(stray) if stray in words else 0
    if at < 2 or not flags.get(words[at - 2], False):
        return ""
    text = [words[at - 1]]
    for word in words[at:]:
        if word in flags:
            break
        text.append(word)
    return f'{words[at - 2]} "{" ".join(text)}"'


# --- The notebook's defaults: `%config ToolLoop.model = …`, `%toolloop --model …`, and the variable TOOLLOOP_MODEL. ---

DEMO = "toolloop/demo"


class ToolLoop(Configurable):
    """Settings of `%%toolloop`; an option on a cell overrules them for that cell."""

    model = Unicode(
        "", help="LiteLLM's model name; empty: TOOLLOOP_MODEL, else the offline demonstration model."
    ).tag(config=True)
    tools = List(Unicode(), help="Names of the tools; empty: every function marked with @tool.").tag(
        config=True
    )
    permissions = Unicode("full", help="'full' or 'ask', or the name of a variable with a policy.").tag(
        config=True
    )
    output = Unicode("", help="Name of the pydantic model of the answer; empty: plain text.").tag(config=True)
    session = Unicode("", help="Name of the session that cells go on with; empty: each cell is alone.").tag(
        config=True
    )
    instructions = Unicode("", help="The system message; empty: none.").tag(config=True)
    max_turns = Integer(None, allow_none=True, help="Most tool calls in one run.").tag(config=True)
    timeout = Float(None, allow_none=True, help="Most seconds for one run.").tag(config=True)
    sandbox = Unicode("", help="Folder whose changed files are reported; confines nothing.").tag(config=True)
    api_base = Unicode("", help="Address of the provider or gateway.").tag(config=True)
    api_key = Unicode("", help="NAME of the variable that holds the key; never the key.").tag(config=True)
    on_unattended = Enum(["deny", "allow", "error"], "deny", help="Approvals when nobody is there.").tag(
        config=True
    )
    ask = Enum(
        ["auto", "card", "input"],
        "auto",
        help="How approvals are asked: a card with buttons, or a typed answer.",
    ).tag(config=True)
    keep_history = Bool(False, help="Keep the messages in the notebook as inert data.").tag(config=True)

    def default_model(self) -> str:
        """The model of a cell that names none."""
        return self.model or os.environ.get("TOOLLOOP_MODEL", "").strip() or DEMO
