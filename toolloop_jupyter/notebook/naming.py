"""What the words of an option line name: tools, models, output models, policies and keys, among the notebook's variables.

Each function raises Mistake with what to type instead.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .options import Mistake

Names = Mapping[str, Any]
_PLAIN_VALUES = (str, bytes, int, float, complex, list, tuple, set, dict, type(None))


def lookup(names: Names, dotted: str, what: str, fits: Callable[[Any], bool] = lambda _: True) -> Any:
    """The object behind a (dotted) name, which `fits` must say yes to; `what` is the word for it in messages."""
    first, *rest = dotted.split(".")
    if first not in names:
        raise Mistake(f"there is no {what} {dotted!r} in this notebook{_near(names, dotted, fits)}")
    found = names[first]
    for part in rest:
        if not hasattr(found, part):
            raise Mistake(f"there is no {what} {dotted!r}: {type(found).__name__} has no {part!r}")
        found = getattr(found, part)
    if not fits(found):
        raise Mistake(f"{dotted!r} is {_kind(found)}, not {_a(what)}")
    return found


def _near(names: Names, name: str, fits: Callable[[Any], bool]) -> str:
    candidates = [n for n, v in names.items() if not n.startswith("_") and fits(v)]
    near = difflib.get_close_matches(name, candidates, n=1)
    return f"; did you mean {near[0]!r}?" if near else "; run the cell that defines it first"


def _kind(found: object) -> str:
    if inspect.isroutine(found):
        return "a function"
    if isinstance(found, type):
        return "a class"
    return _a(type(found).__name__)


def _a(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def tools(names: Names, wanted: Iterable[str]) -> list[Any]:
    """The functions with these names, separated by blanks or commas."""
    return [_tool(names, name) for word in wanted for name in word.split(",") if name]


def _tool(names: Names, name: str) -> Any:
    found = lookup(names, name, "tool", callable)
    if isinstance(found, type):
        advice = f"; for answers of this type: --output {name}" if _is_output(found) else ""
        raise Mistake(f"{name!r} is a class, and a tool is a function{advice}")
    return found


def output(names: Names, name: str) -> Any:
    """The type of the answer: a pydantic model, a dataclass, or any other type."""
    return lookup(names, name, "output model", _is_type)


def _is_type(value: object) -> bool:
    """Whether this may be a type: classes, and the many objects that typing makes; no functions, no values."""
    if isinstance(value, type):
        return True
    is_model = hasattr(type(value), "model_json_schema") or hasattr(type(value), "__dataclass_fields__")
    return not (
        is_model or inspect.isroutine(value) or inspect.ismodule(value) or isinstance(value, _PLAIN_VALUES)
    )


def _is_output(value: type) -> bool:
    return hasattr(value, "model_json_schema") or hasattr(value, "__dataclass_fields__")


def model(names: Names, name: str) -> Any:
    """A ScriptedModel or a text by its variable, else LiteLLM's name as it stands."""
    if not name.split(".", maxsplit=1)[0].isidentifier() or name.split(".", maxsplit=1)[0] not in names:
        return name
    found = lookup(names, name, "model")
    if hasattr(found, "toolloop_model"):
        if hasattr(found, "shown_as"):
            found.shown_as = name
        return found
    if isinstance(found, str):
        return found
    raise Mistake(
        f"{name!r} is {_kind(found)}, not a model; --model takes a name such as openai/gpt-4o-mini, or the variable of a ScriptedModel"
    )


def policy(names: Names, name: str) -> Any:
    """The policy in a variable, or the words "full" and "ask" as they are."""
    if name in ("full", "ask"):
        return name
    if name not in names and "." not in name:
        near = difflib.get_close_matches(name.lower(), ("full", "ask"), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Mistake(f"--permissions takes full, ask or the variable of a policy, not {name!r}{hint}")
    return lookup(names, name, "permissions policy")


def key(names: Names, name: str | None) -> str | None:
    """The key behind the *name* of an environment or notebook variable.

    A literal key is refused, and not repeated in the message.
    """
    if not name:
        return None
    known = name in os.environ or name in names
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or (not known and _looks_secret(name)):
        raise Mistake(
            "--api-key takes the NAME of a variable, not the key: a key typed here would be saved with the notebook. "
            "Set an environment variable and name it, for example --api-key OPENAI_API_KEY"
        )
    value = os.environ.get(name) or names.get(name)
    if not value:
        raise Mistake(f"--api-key {name}: no such environment or notebook variable, or it is empty")
    return str(value)


def _looks_secret(name: str) -> bool:
    return any(c.isdigit() for c in name) and (len(name) > 24 or (len(name) > 11 and "_" not in name))
