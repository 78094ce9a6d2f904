"""Names that go to the model: what providers take for a notebook's name, and what to say of one that is made up."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .signatures import Parameter, full_name

if TYPE_CHECKING:
    from .tools import Tool

# What OpenAI, Anthropic and Bedrock take; Gemini also wants a letter or an underscore first.
_WIRE_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def wire_names(names: Sequence[str]) -> list[str]:
    """A name that providers take for each of these (distinct) names; one that is valid stays as it is.

    The same names always give the same answer, so that a conversation can go on in another run.
    """
    taken = {name for name in names if _WIRE_NAME.fullmatch(name)}
    wire: list[str] = []
    for name in names:
        valid = name if _WIRE_NAME.fullmatch(name) else _valid(name, taken)
        taken.add(valid)
        wire.append(valid)
    return wire


def _valid(name: str, taken: set[str]) -> str:
    """`größe` -> `grosse`, `fs.read` -> `fs_read`; with a hash of the name where it is too long, empty or taken."""
    letters = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", plain)
    if not plain.strip("_-"):
        plain = "tool"
    elif not plain[0].isalpha():
        plain = f"t_{plain}"  # Bedrock's names begin with a letter
    if len(plain) <= 64 and plain not in taken and plain != "tool":
        return plain
    return f"{plain[:55]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def with_wire_keys(parameters: Sequence[Parameter]) -> list[Parameter]:
    """The parameters with schema names that providers take (Anthropic refuses `größe` as a property, too).

    A name that had to be changed is told in the description if there is none.
    """
    keys = wire_names([parameter.key for parameter in parameters])
    return [
        parameter
        if key == parameter.key
        else dataclasses.replace(parameter, key=key, description=parameter.description or parameter.key)
        for parameter, key in zip(parameters, keys, strict=True)
    ]


def same_names(tools: Sequence[Tool]) -> list[str]:
    """One line for each name that two of the tools have."""
    owners: dict[str, list[str]] = {}
    for tool in tools:
        owners.setdefault(tool.name, []).append(full_name(tool.function))
    return [
        f"{len(same)} tools are called {name!r}: {' and '.join(same)}; "
        'give one of them another name: tool(name="...")(function)'
        for name, same in owners.items()
        if len(same) > 1
    ]


def suggest(name: str, tools: Sequence[Tool]) -> str:
    """What the model is told when it calls a tool that there is not."""
    known = sorted(tool.wire_name for tool in tools)
    if not known:
        return f"unknown tool {name!r}; there are no tools, answer without one"
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown tool {name!r}; {hint}available: {', '.join(known)}"
