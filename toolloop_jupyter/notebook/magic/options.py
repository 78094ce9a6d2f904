"""The options of `%%toolloop` and `%toolloop`, and the commands of `%toolloop`: each is one row of a table.

These are made from the rows of OPTIONS: the parser of the option line, the notebook's settings (`%config ToolLoop`), the help
(`%%toolloop?`), the page docs/options.md (`./dev docs`), the completions for Tab (`names`), the check of each value, and the
keyword arguments for the Python API (`cell`).
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NoReturn

from traitlets import TraitType
from traitlets.config import Configurable

from ...core.events import CHECKS, DEMO_MODEL, Check, Mistake, make_plain_number
from ...core.text import IN_BRACES, holds_key, names_key

Names = Mapping[str, object]
"""The notebook's variables."""
Options = dict[str, Any]
"""Name of an option -> its value. `parse` returns only the options that were typed."""


class Kind(Enum):
    """The kind of an option's value. It determines how we read the value, what Tab offers, and what the Python API gets."""

    SWITCH = "typed or not"
    TEXT = "a text; {{name}} in it is filled in"
    NUMBER = "a number, or a variable that holds one"
    CHOICE = "one of a few words"
    RESULT = "the name of the variable that gets the Result"
    SESSION = "the name of a session"
    MODEL = "LiteLLM's name of a model, or a variable"
    MODELS = "models, more than once"
    TOOLS = "functions by their names"
    POLICY = "full, ask or a variable"
    OUTPUT = "a type by its name"
    KEY = "the name of an environment or notebook variable"
    FILE = "a file's path"
    FOLDER = "a folder's path"
    PAIRS = "key=value, more than once"
    ATTACHED = "a file's path or a variable, more than once"
    TABLE = "the name of a variable that holds rows"
    EXECUTOR = "the name of a variable that holds an executor"


@dataclass(frozen=True)
class Option:
    """One row of the table."""

    flags: str
    """The flags, such as "-m --model". The last one names the option. A name without a dash is a setting that has no flag."""
    kind: Kind
    takes: str = ""
    """The placeholder of the value in the help; "" if the help lists the choices. "N" takes whole numbers only."""
    help: str = ""
    keyword: str = ""
    """The keyword argument that gets the value; "" for none. It is an argument of `amap` if `is_of_rows`, else of
    `aagent_session`. "options.x" is the field x of ToolLoopOptions, "options.completion_kwargs.x" is a completion option."""
    default: object = None
    choices: tuple[str, ...] = ()
    scope: Literal["cell", "session", "notebook", "kernel"] = "cell"
    """What a value is for. "cell": the cell that has it. "notebook": this cell, or all cells if `%toolloop` or `%config ToolLoop`
    sets it. "session": as "notebook", and also the later cells of the cell's session. "kernel": all runs of the kernel together;
    only `%toolloop` and `%config ToolLoop` set it.
    """
    also: str = ""
    """Other words that people may type for this option. The message for such a word names this option."""
    is_of_rows: bool = False
    """True if the option needs `--each` (a run for each row of a table). `keyword` is then an argument of `amap`."""
    not_of_rows: str = ""
    """Why a cell with `--each` does not take the option; "" if the cell takes it."""

    @property
    def name(self) -> str:
        return self.flags.split()[-1].lstrip("-").replace("-", "_")

    @property
    def is_setting(self) -> bool:
        """True if `%toolloop` and `%config ToolLoop` can set the option for the whole notebook."""
        return self.scope != "cell"

    @property
    def typed(self) -> list[str]:
        """The flags that a person can type on the option line; [] for a row that is only a setting."""
        return [flag for flag in self.flags.split() if flag.startswith("-")]

    @property
    def check(self) -> Check:
        """The Check that a value of the option must pass."""
        match self.kind:
            case Kind.SWITCH:
                return Check(bool, "True or False", or_none=False)
            case Kind.TOOLS | Kind.PAIRS | Kind.MODELS | Kind.ATTACHED:
                return Check((list, tuple), "a list of words")
            case Kind.NUMBER:
                number = (
                    Check(int, "a whole number") if self.takes == "N" else Check((int, float), "a number")
                )
                return CHECKS.get(self.name, number)
            case _:
                return CHECKS.get(self.name, Check(choices=self.choices))

    @property
    def placeholder(self) -> str:
        """The placeholder of the value in the help: "FILE", "stop|answer", "" for a switch."""
        return self.takes or "|".join(self.check.choices)

    @property
    def usage(self) -> str:
        """The flags and the placeholder, for the help."""
        flags = ", ".join(self.typed) or f"%config ToolLoop.{self.name} ="
        return f"{flags} {self.placeholder}".rstrip()

    @property
    def explanation(self) -> str:
        """The help text and the default."""
        return self.help if self.default in (None, False) else f"{self.help}; default: {self.default}"

    @property
    def initial(self) -> object:
        """The value of the setting while nobody has set it."""
        if self.default is not None or self.kind is Kind.NUMBER:
            return self.default
        return [] if self.kind in (Kind.TOOLS, Kind.MODELS) else ""

    def read(self, value: object, names: Names | None = None) -> object:
        """Return a value that was typed, or set with `%config`, in its right type. Raises Mistake if it is not allowed."""
        if self.kind in (Kind.NUMBER, Kind.SWITCH) and isinstance(value, str):
            value = read_value(value, names or {})
        if self.kind in (Kind.TOOLS, Kind.MODELS) and isinstance(value, str):
            value = value.split(",")
        if fault := self.check.find_fault(self.name, value):
            raise Mistake(str(fault))
        return list(value) if isinstance(value, tuple) else make_plain_number(value)


_ALONE = "each row is a conversation of its own"
# fmt: off
OPTIONS: tuple[Option, ...] = (
    Option("-m --model", Kind.MODEL, "MODEL", keyword="model", scope="session",
           help="LiteLLM's model name, or a ScriptedModel variable; default: TOOLLOOP_MODEL, else toolloop/demo (offline)"),
    Option("--fallback", Kind.MODELS, "MODEL", keyword="options.fallback", scope="session", also="fallbacks",
           help="model that is asked when the one before it fails; repeatable"),
    Option("-t --tools", Kind.TOOLS, "NAME …", keyword="tools", scope="session", also="functions",
           help="functions (dotted names and lists, too); default: all marked with @tool"),
    Option("-p --permissions", Kind.POLICY, "full|ask|VARIABLE", keyword="permissions", default="full", scope="session",
           help="full: run all calls; ask: ask before each one; VARIABLE: follow the policy in this variable"),
    Option("-o --output", Kind.OUTPUT, "MODEL", keyword="output", scope="notebook",
           also="schema output-type response-model response-format",
           help="pydantic model (a variable) of the answer"),
    Option("-s --session", Kind.SESSION, "NAME", scope="notebook", not_of_rows=_ALONE,
           help="continue (or begin) this conversation"),
    Option("-i --instructions", Kind.TEXT, "TEXT", keyword="instructions", scope="session",
           also="system system-prompt system-message", help="the system message"),
    Option("-a --as", Kind.RESULT, "NAME", help="put the Result into this variable"),
    Option("--attach", Kind.ATTACHED, "FILE", also="file image", not_of_rows="a row sends only the text of the prompt",
           help="send a file with the prompt (picture, PDF, wav, mp3, text), or a variable's value; repeatable"),
    Option("--max-turns", Kind.NUMBER, "N", keyword="max_turns", scope="notebook", also="max-steps max-iterations",
           help="limit of tool calls in this run"),
    Option("--max-model-calls", Kind.NUMBER, "N", keyword="options.max_model_calls", default=100, scope="notebook",
           help="limit of model calls in this run"),
    Option("--max-cost", Kind.NUMBER, "USD", keyword="options.max_cost", scope="notebook", also="max-budget",
           help="limit of what this run may cost, in US dollars (with --each: all rows, max_cost= of amap); checked "
                "between model calls"),
    Option("--budget", Kind.NUMBER, "USD", scope="kernel",
           help="limit of what all runs of this kernel may cost together, in US dollars; only for %toolloop"),
    Option("--on-limit", Kind.CHOICE, keyword="options.on_limit", default="stop", scope="notebook",
           help="at a limit: stop, or make one last model call for a closing answer"),
    Option("--images", Kind.CHOICE, keyword="options.images", default="auto", scope="notebook",
           help="send pictures and files to the model; auto: if LiteLLM knows that the model takes them"),
    Option("--timeout", Kind.NUMBER, "SECONDS", keyword="timeout", scope="notebook", help="limit of seconds for this run"),
    Option("--sandbox", Kind.FOLDER, "FOLDER", keyword="sandbox", scope="session",
           help="report the changed files in this folder (does not confine the tools)"),
    Option("--set", Kind.PAIRS, "KEY=VALUE", keyword="options.completion_kwargs",
           help="a completion option (JSON, a variable, or text); repeatable; also as --temperature 0"),
    Option("--metadata", Kind.PAIRS, "KEY=VALUE", keyword="metadata", help="for the gateway's logs; repeatable"),
    Option("--api-base", Kind.TEXT, "URL", keyword="api_base", scope="session", also="base-url",
           help="address of the provider or gateway"),
    Option("--api-key", Kind.KEY, "NAME", keyword="api_key", scope="session",
           help="NAME of the environment or notebook variable with the key (never the key)"),
    Option("--on-unattended", Kind.CHOICE, default="deny", choices=("deny", "allow", "error"), scope="notebook",
           help="the answer to a request for approval when nobody is there"),
    Option("ask", Kind.CHOICE, "'auto'|'card'|'input'", default="auto", choices=("auto", "card", "input"), scope="notebook",
           help="how a person is asked for an approval: by a card with buttons, or by typing"),
    Option("times", Kind.SWITCH, "True|False", default=True, scope="notebook",
           help="save durations and times of day in outputs; False (or TOOLLOOP_TIMES=0) omits them: equal runs leave equal outputs"),
    Option("nest", Kind.SWITCH, "True|False", default=False, scope="notebook",
           help="asyncio.run(main()) works in cells, until the kernel ends; %toolloop nest sets it"),
    Option("--append", Kind.SWITCH, default=False, not_of_rows=_ALONE,
           help="when the cell runs again: add a turn to the session, do not replace the cell's turn"),
    Option("--dry-run", Kind.SWITCH, default=False, help="show the first request; send nothing"),
    Option("--step", Kind.SWITCH, default=False, not_of_rows=_ALONE,
           help="wait for Next before every model call and tool call"),
    Option("--record", Kind.FILE, "FILE", help="store what the model sends (no API keys)"),
    Option("--replay", Kind.FILE, "FILE", help="answer from a recording, without a network"),
    Option("--replay-loose", Kind.SWITCH, default=False,
           help="go on if a request differs from the recorded one"),
    Option("--replay-tools", Kind.SWITCH, default=False, scope="notebook",
           help="answer tool calls from the recording, too: no function runs, and --tools is not needed"),
    Option("--keep-history", Kind.SWITCH, default=False, scope="notebook", not_of_rows=_ALONE,
           help="keep the messages in the notebook, for %toolloop resume"),
    Option("--each", Kind.TABLE, "TABLE", is_of_rows=True, also="rows map table for-each",
           help="run once for each row of this DataFrame, list or iterable (a variable); {{name}} is a column"),
    Option("--concurrency", Kind.NUMBER, "N", keyword="concurrency", default=8, scope="notebook", is_of_rows=True,
           also="parallel workers max-workers", help="number of rows that run at the same time"),
    Option("--store", Kind.FILE, "FILE", keyword="store", is_of_rows=True,
           help="keep each finished row there (JSON lines); the next run takes it from there"),
    Option("--on-error", Kind.CHOICE, keyword="on_error", default="continue", choices=("continue", "stop"),
           is_of_rows=True, help="after a row that failed: go on, or start no more rows"),
    Option("--executor", Kind.EXECUTOR, "NAME", keyword="executor", is_of_rows=True,
           help="run the rows elsewhere: a variable with a concurrent.futures Executor"),
)
# fmt: on
"""The table of all options. For a new option, add a row."""


def find_option(flag: str) -> Option | None:
    """Return the option with this flag, or None."""
    return next((option for option in OPTIONS if flag in option.typed), None)


def list_options() -> str:
    """Return the list of options for `%%toolloop?`."""
    return "\n".join(f"  {o.usage:<36} {o.explanation}" for o in OPTIONS if o.typed)


COMMANDS = {
    "reset": ("[SESSION]", "forget the defaults and all sessions, or one session"),
    "history": ("[SESSION]", "the conversation in OpenAI format"),
    "show": ("[SESSION]", "the last run again, or all runs of a session"),
    "doctor": ("[--model MODEL] [--wait SECONDS]", "what works on this kernel and front-end"),
    "save": ("SESSION FILE", "write a conversation"),
    "load": ("SESSION FILE", "begin a session with a conversation that was written"),
    "resume": ("SESSION [FILE]", "continue a session after a kernel restart"),
    "export": ("FILE.md|html|json", "the last run as a file"),
    "record": ("on FILE | off", "record every run of the notebook"),
    "replay": ("on FILE | off", "answer every run from a recording: no network, no key"),
    "nest": ("", "let asyncio.run(main()) work in cells, until the kernel ends"),
}
"""The name of each command of `%toolloop` -> (its words, its help). `commands` has its function."""


def list_commands() -> str:
    """Return the list of commands for `%toolloop?`."""
    return "\n".join(
        f"    {f'%toolloop {name} {words}':<50} {help_}" for name, (words, help_) in COMMANDS.items()
    )


def refuse_words(command: str) -> Mistake:
    """Return the error for a command that got other words than it takes."""
    return Mistake(f"write: %toolloop {command} {COMMANDS[command][0]}".rstrip())


_AS_KEYWORD = re.compile(
    r"\bcompletion_kwargs=\{'(\w+)': ([^}]+)\}|\b(\w+)=(?:True\b|'([^']*)'|(?=[\s,.):]|$))"
)


def replace_keywords(message: str) -> str:
    """Replace the keywords in a message of the Python API by options: `api_key=` becomes `--api-key NAME`."""

    def as_flag(match: re.Match[str]) -> str:
        if match[1]:
            return f"--set {match[1]}={match[2]}"
        if match[0] == "loose=True":
            return "--replay-loose"
        names = (match[3], f"options.{match[3]}")
        option = next((option for option in OPTIONS if option.keyword in names), None)
        return f"{option.typed[-1]} {match[4] or option.placeholder}" if option else match[0]

    return _AS_KEYWORD.sub(as_flag, message)


# --- the option line ------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        named = re.match(r"argument (?:\S+/)?(\S+): ", message)
        option = find_option(named[1]) if named else None
        if named is None or option is None:
            raise Mistake(f"{message}. %%toolloop? shows the options.")
        write = f"{named[1]} {option.placeholder}".rstrip()
        raise Mistake(f"{named[1]} {'wants a' if option.placeholder else 'takes no'} value; write {write}")


_ACTIONS: Mapping[Kind, Mapping[str, Any]] = {
    Kind.SWITCH: {"action": "store_true"},
    Kind.TOOLS: {"nargs": "*"},
    **{kind: {"action": "append"} for kind in (Kind.PAIRS, Kind.ATTACHED, Kind.MODELS)},
}


def parse(line: str, names: Names | None = None) -> Options:
    """Read an option line, and return the options that were typed. `names` are the notebook's variables.

    Raises Mistake for an unknown option (the message names a similar one), and for a value that is not allowed.
    """
    parser = _Parser(prog="%%toolloop", add_help=False, allow_abbrev=False)
    for option in OPTIONS:
        if option.typed:
            action = _ACTIONS.get(option.kind, {})
            parser.add_argument(*option.typed, dest=option.name, default=argparse.SUPPRESS, **action)
    words = list(_name_completion_options(split_words(line)))
    parsed, rest = parser.parse_known_args(words)
    if rest:
        raise Mistake(_redact(_explain_unknown(rest[0], words)))
    typed = vars(parsed)
    return {o.name: o.read(typed[o.name], names) for o in OPTIONS if o.name in typed}


def split_words(line: str) -> list[str]:
    """Split an option line into words. Quotes inside a list or dict stay; variables and `~` are not expanded.

    Raises Mistake if a quote is not closed.
    """
    words = shlex.shlex("".join(_quote_data(line)), posix=True, punctuation_chars="")
    words.commenters, words.whitespace_split = "", True
    words.whitespace += "\u00a0"  # a no-break space: text from a web page may have some
    try:
        return list(words)
    except ValueError:
        if line.endswith("\\"):
            raise Mistake(
                "the options must be on one line; a \\ at the end does not continue the line"
            ) from None
        raise Mistake(_redact(f"a quote is not closed in: {line}")) from None


_PIECE = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?P<data>(?<=[=\s])[\[{(])|.""", re.DOTALL)


def _quote_data(line: str) -> Iterator[str]:
    """Yield the pieces of the line. Put quotes around a list or dict: shlex then keeps the quotes inside it."""
    at = 0
    while piece := _PIECE.match(line, at):
        at = piece.end()
        if piece["data"]:
            end = _find_closing(line, piece.start())
            data = line[piece.start() : end]
            if (end == len(line) or line[end].isspace()) and _read_literal(data):
                yield shlex.quote(data)
                at = end
                continue
        yield piece[0]


_STRING_OR_BRACKET = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[\[{()}\]]""")


def _find_closing(line: str, at: int) -> int:
    """Return the index after the bracket that closes the bracket at `at`; `len(line)` if there is none. Strings are skipped."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(line, at):
        depth += (token[0] in "[{(") - (token[0] in "]})")
        if depth == 0:
            return token.end()
    return len(line)


_ONE_DASH = re.compile(r"-[a-z][a-z_-]+")


def _name_completion_options(words: Sequence[str]) -> Iterator[str]:
    """Yield the words. Replace a completion option of LiteLLM by `--set`: `--temperature 0` becomes `--set temperature=0`."""
    from ...core.models import is_completion_option

    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        ours = find_option(flag.replace("_", "-")) or _find_by_other_word(flag)
        if _ONE_DASH.fullmatch(flag):  # argparse would read -temperature as -t emperature
            meant = find_option(f"-{flag.replace('_', '-')}")
            if meant or is_completion_option(name.removeprefix("_")):
                raise Mistake(f"{flag} wants two dashes; write {meant.typed[-1] if meant else f'-{flag}'}")
        if not flag.startswith("--") or ours or not is_completion_option(name):
            yield word
            continue
        if not equals:
            value = next(rest, "--")
        if value.startswith("--"):
            raise Mistake(f"{flag} wants a value; write {flag} VALUE, or --set {name}=VALUE")
        yield from ("--set", f"{name}={value}")


def _find_by_other_word(flag: str) -> Option | None:
    word = flag.lstrip("-").replace("_", "-")
    return next((option for option in OPTIONS if word in option.also.split()), None)


def _redact(message: str) -> str:
    """Remove possible API keys from a message that repeats typed text."""
    from ...core.models import redact

    return redact(re.sub(r"(--?api[-_]?key[\s=]+).*", r"\1…", message))


def _explain_unknown(word: str, words: Sequence[str]) -> str:
    """Return a message for a `word` that is neither an option nor the value of an option. The message says what to write instead."""
    if word.startswith("-") and word.strip("-"):
        return _explain_unknown_flag(word.partition("=")[0])
    at = words.index(word)
    flag, value = ["", "", *words][at : at + 2]
    option = find_option(flag)
    if option is not None and option.takes in ("TEXT", "FOLDER", "FILE"):
        text = [value, *itertools.takewhile(lambda one: find_option(one) is None, words[at:])]
        return f'a text of several words needs quotes: {flag} "{" ".join(text)}"'
    if (switch := find_option(value)) is not None and switch.kind is Kind.SWITCH:
        file = f"; write --replay {word} --replay-loose" if value == "--replay-loose" else ""
        return f"{value} takes no value, got {word!r}{file}"
    if flag == "--set":
        meant = next(iter(words[at + 1 :]), "VALUE") if word == "=" else word
        return f"--set takes one word without blanks: --set {value.rstrip('=')}={meant}"
    if flag == "--api-key":
        return "--api-key takes one word, the NAME of a variable (never the key)"
    return f"{word!r} is not an option; the prompt goes below this line, options begin with --"


def _explain_unknown_flag(flag: str) -> str:
    if flag in ("-h", "--help"):
        return "%%toolloop? in a separate cell shows the options"
    if meant := _find_by_other_word(flag):
        return f"there is no {flag}; write {meant.typed[-1]}"
    ours = [one for option in OPTIONS for one in option.typed]
    if not any(one.startswith(flag.lower()) for one in ours):
        from ...core.models import find_completion_option

        if name := find_completion_option(flag.strip("-").replace("-", "_").partition(":")[0]):
            return f"unknown option {flag}; did you mean --set {name}=…?"
    near = difflib.get_close_matches(flag, ours, n=1)
    return f"unknown option {flag}" + (
        f"; did you mean {near[0]}?" if near else ". %%toolloop? shows the options."
    )


# --- values ---------------------------------------------------------------------------------------------------


def read_value(text: str, names: Names, *, bare: bool = True) -> object:
    """Read typed text as a variable's name (`{{name}}`, or `name` if `bare`), else as JSON, else as a Python literal. Return the
    value; if the text is none of these, return the text itself.
    """
    braces = IN_BRACES.fullmatch(text)
    name = braces[1] if braces else text
    if name in names and (braces or bare) and not names_key(name):
        value = make_plain_number(names[name])  # for example a number from NumPy
        if _is_data(value):
            return value
    return next(iter(_read_literal(text)), text)


def _read_literal(text: str) -> list[object]:
    """Return [value] if `text` is JSON, or a Python literal that JSON can hold (`.5`, `10_000`, `None`, `['a']`); else []."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if _is_data(value) and (not isinstance(value, tuple) or text.lstrip().startswith("(")):
            return [value]
    return []


def _is_data(value: object) -> bool:
    """Return whether `value` can be written as JSON. NaN cannot: providers reject the NaN that Python's json module writes."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


_INSTEAD = {
    "model": "--model",
    "messages": "the text below the option line",
    "tools": "--tools",
    "api_base": "--api-base",
    "base_url": "--api-base",
}
"""The name of a completion option that the run sets itself -> what to use instead of `--set`."""


def read_pairs(given: Sequence[str], flag: str, names: Names | None = None) -> dict[str, object]:
    """Read `key=value` words into a dict. Raises Mistake for a wrong word, and for an API key, which the notebook would save."""
    pairs = {}
    is_set, names = flag == "--set", names or {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise Mistake(f"{flag} wants key=value, got {word!r}")
        if names_key(key) or holds_key(key, _read_literal(value)):
            raise Mistake(
                f"{flag} {key}=… would save a key with the notebook. For a key, use --api-key NAME (of a variable). Put "
                "headers and other credentials into a variable, aagent(…, options=ToolLoopOptions(…)), or the environment"
            )
        if is_set and key in _INSTEAD:
            raise Mistake(
                f"--set {key}=… has no effect, because the run sets {key} itself; use {_INSTEAD[key]}"
            )
        pairs[key] = read_value(value, names, bare=is_set)
        if is_set and pairs[key] == value and (why := _explain_text(key, value, names)):
            raise Mistake(_redact(f"--set {key}: {value} {why}"))
    return pairs


def _explain_text(key: str, value: str, names: Names) -> str:
    """Return how to write a value that was read as text, but is probably a number, data or a variable; "" for other values."""
    if re.fullmatch(r"[+-]?\d+(,\d+)+", value):
        return "is not a number: write a number without a comma, such as 10000 or 0.5"
    name = re.fullmatch(r"\$?\{?(\w+)\}?", value)
    if name and name[1] != value and name[1] in names:
        return f"is not a variable: write {name[1]}, or {{{{{name[1]}}}}}"
    if value.startswith(("[", "{")):
        quoted = f"""write a text in two kinds of quotes: --set '{key}="…"'"""
        return f"is neither JSON nor the name of a variable with such a value; {quoted}"
    return ""


# --- the notebook's defaults: `%config ToolLoop.model = …`, `%toolloop --model …`, and the variable TOOLLOOP_MODEL ---


class Setting(TraitType[object, object]):
    """A setting of the notebook. It accepts the same values as its option."""

    def __init__(self, option: Option) -> None:
        super().__init__(option.initial, help=option.explanation)
        self.option = option
        self.tag(config=True)

    def validate(self, _: object, value: object) -> object:
        """Return the converted value; for None and "", the initial value. Raises Mistake for a value that is not allowed."""
        return self.option.initial if value in (None, "") else self.option.read(value)


class ToolLoop(Configurable):
    """The settings of `%%toolloop`. An option on a cell wins over its setting."""

    vars().update({option.name: Setting(option) for option in OPTIONS if option.is_setting})

    def list_changed(self) -> Options:
        """Return the settings that differ from their initial values: name -> value."""
        values = ((option, getattr(self, option.name)) for option in OPTIONS if option.is_setting)
        return {option.name: value for option, value in values if value != option.initial}

    def complete(self, typed: Mapping[str, object]) -> Options:
        """Return a value for each option: the one in `typed`, else the setting, else the default."""
        options = {o.name: o.default for o in OPTIONS} | self.list_changed() | dict(typed)
        options["model"] = options["model"] or os.environ.get("TOOLLOOP_MODEL", "").strip() or DEMO_MODEL
        return options

    def reset(self) -> None:
        """Give each setting that has a flag (see `Option.typed`) its initial value. Settings without a flag do not change."""
        for option in OPTIONS:
            if option.is_setting and option.typed:
                setattr(self, option.name, option.initial)
