"""Put the demonstration's answer into words: what the tools said, shortened, and what did not work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .conversation import Conversation, Step
from .evidence import parse_json, result_lines
from .vocabulary import name_words, word_positions

CONFESSION = (
    "*This is a demonstration, not a language model: `toolloop/demo` follows a few rules. "
    "Choose a real model with `--model`.*"
)
_MOST = 160
_SHOWN_LINES = 6
_LANGUAGES = {
    "py": "python",
    "md": "markdown",
    "js": "javascript",
    "toml": "toml",
    "json": "json",
    "sh": "sh",
}


def answer(talk: Conversation, tools: Sequence[str], unfilled: Sequence[str]) -> str:
    """Return the whole answer, in Markdown."""
    parts = [_told(step, talk.steps[i + 1 :]) for i, step in enumerate(talk.steps)]
    parts += [
        f"I wanted to call `{name}`, but found nothing to fill its arguments with." for name in unfilled
    ]
    if not parts:
        parts = list(_without_tools(talk, tools))
    return "\n\n".join([*parts, CONFESSION])


def _told(step: Step, later: Sequence[Step]) -> str:
    told = describe(step)
    if step.kind != "error":
        return told
    again = any(other.name == step.name for other in later)
    return (
        f"{told}, so I tried once more."
        if again
        else f"{told}. I know no other way to call it, so I leave it there."
    )


def describe(step: Step) -> str:
    """Say in a sentence (and a few lines of quotation) what came of one call."""
    if step.kind == "denied":
        reason = f" The reason given: “{_short(step.reason)}”." if step.reason else ""
        return f"I was not allowed to run `{step.name}`, so I left it.{reason}"
    if step.kind == "error":
        return f"`{step.name}` failed: {_code(_first_line(step.result))}"
    return _describe_result(step)


def _describe_result(step: Step) -> str:
    value = parse_json(step.result)
    lines = result_lines(step.result)
    if not lines or (value in ([], {}, None) and step.result.strip() in ("[]", "{}", "null", "None", "")):
        return f"`{step.name}` found nothing."
    if isinstance(value, list):
        shown = "\n".join(f"- {_code(line)}" for line in lines[:3])
        more = f"\n- … and {len(lines) - 3} more" if len(lines) > 3 else ""
        return f"`{step.name}` returned {len(lines)} item{'s' if len(lines) != 1 else ''}:\n\n{shown}{more}"
    if isinstance(value, dict):
        return f"`{step.name}` says: {', '.join(_short(line, 60) for line in lines[:5])}."
    if len(lines) == 1:
        return f"`{step.name}` says: {_short(lines[0])}"
    return f"`{step.name}` returned {len(lines)} lines; it begins:\n\n{_block(step, lines[:_SHOWN_LINES])}"


def _block(step: Step, lines: Sequence[str]) -> str:
    """Quote lines as a code block, coloured by the name of the file they come from."""
    endings = (str(value).rpartition(".")[2] for value in step.arguments.values() if "." in str(value))
    language = next((_LANGUAGES[ending] for ending in endings if ending in _LANGUAGES), "text")
    fence = "````" if any("```" in line for line in lines) else "```"
    return f"{fence}{language}\n" + "\n".join(_short(line) for line in lines) + f"\n{fence}"


def _without_tools(talk: Conversation, tools: Sequence[str]) -> Iterator[str]:
    if talk.earlier_steps or talk.earlier_prompts:
        before = talk.earlier_prompts[-1] if talk.earlier_prompts else ""
        if before:
            yield f"Before this you asked: “{_short(_first_line(before))}”"
        useful = [step for step in talk.earlier_steps if step.kind == "ok"] or list(talk.earlier_steps)
        if useful:
            said = {word for word, _ in word_positions(talk.prompt)}
            useful = useful[:1] if "first" in said else useful
            best = max(reversed(useful), key=lambda step: len(said & set(name_words(step.name))))
            yield f"From that, I still have this: {describe(best)}"
            return
    if tools:
        names = ", ".join(f"`{name}`" for name in tools)
        yield f"You wrote: “{_short(_first_line(talk.prompt))}” None of my tools ({names}) fits these words."
    else:
        yield f"You wrote: “{_short(_first_line(talk.prompt))}” I have no tools here, so there is nothing I can look up."


def story(talk: Conversation) -> str:
    """Say in one plain sentence what was done, for fields such as `summary`."""
    good = [step for step in (*talk.earlier_steps, *talk.steps) if step.kind == "ok"]
    if not good:
        bad = talk.steps[-1:] or talk.earlier_steps[-1:]
        if bad:
            return f"Demonstration: {bad[0].name} did not work ({_short(_first_line(bad[0].result), 80)})."
        return f"Demonstration: an answer to “{_short(_first_line(talk.prompt), 80)}”"
    told = []
    for step in good[-2:]:
        lines = result_lines(step.result)
        what = _short(lines[0], 70) if lines else "nothing"
        told.append(
            f"{step.name} found {what}" if len(lines) <= 1 else f"{step.name} returned {len(lines)} lines"
        )
    return f"Demonstration: {', then '.join(told)}."


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _short(text: str, most: int = _MOST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _code(text: str) -> str:
    """Put a line into code marks that its own backticks cannot end."""
    marks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{marks}{pad}{_short(text.strip())}{pad}{marks}"
