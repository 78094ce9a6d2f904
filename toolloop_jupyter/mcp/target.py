"""The argument of `connect()` -> the target of a connection: a command, an address, the gateway, or a server object."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..core.events import Mistake
from ..core.loop import read_gateway
from ..core.text import hide_suspected, leave_out_user, plain, remember

GATEWAY = "litellm_proxy"
_TITLE = 120
"""Characters of a command or an address that are shown."""


@dataclass(frozen=True)
class Target:
    """The command or address of a server, with its environment or headers."""

    kind: Literal["stdio", "http", "memory"]
    title: str
    """Its name for a person. It has no key and no value of a variable."""
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key_place: str = field(default="", repr=False)
    """The thing to check if its key is refused, such as a variable."""
    server: object = field(default=None, repr=False)
    roots: tuple[str, ...] = field(default=(), repr=False)
    """Addresses (file://…) of the folders that the server is told of."""


def read_target(
    given: object,
    *,
    env: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    cwd: str | None,
    names: Mapping[str, object],
) -> Target:
    """The target that a person means. `names` are their variables, in which the values of `env` and `headers` are looked up.

    Raises Mistake with what to write instead. The message has no value of a variable.
    """
    if isinstance(given, str) and given.strip() == GATEWAY:
        _refuse_beside(headers=headers, env=env, cwd=cwd)
        return _gateway()
    if isinstance(given, str) and given.partition("://")[0].lower() in ("http", "https"):
        _refuse_beside(env=env, cwd=cwd)
        filled = {name: _look_up(variable, names) for name, variable in (headers or {}).items()}
        if authorization := next((key for key in filled if key.lower() == "authorization"), ""):
            filled[authorization] = _with_scheme(filled[authorization])
        known = f"look at what headers= names: {', '.join(map(repr, (headers or {}).values()))}"
        place = known if headers else 'name one: headers={"Authorization": "NAME_OF_A_VARIABLE"}'
        return Target("http", _shorten(leave_out_user(given)), url=given, headers=filled, key_place=place)
    if isinstance(given, (str, list, tuple)):
        _refuse_beside(headers=headers)
        words = _split(given)
        filled = {name: _look_up(variable, names) for name, variable in (env or {}).items()}
        return Target("stdio", _shorten(" ".join(words)), command=tuple(words), env=filled, cwd=cwd)
    _refuse_beside(headers=headers, env=env, cwd=cwd)
    return Target("memory", "a server of this notebook", server=given)


def _gateway() -> Target:
    """LiteLLM's gateway, with the address and the key that its models are called with."""
    base, key = read_gateway()
    for name, value in (("LITELLM_PROXY_API_BASE", base), ("LITELLM_PROXY_API_KEY", key)):
        if not value:
            raise Mistake(f"connect({GATEWAY!r}) needs the variable {name}")
    remember([key])
    url = f"{base.removesuffix('/v1')}/mcp/"
    title = _shorten(leave_out_user(url))
    headers = {"x-litellm-api-key": f"Bearer {key}"}
    return Target("http", title, url=url, headers=headers, key_place="look at LITELLM_PROXY_API_KEY")


def _split(given: str | Sequence[object]) -> list[str]:
    """The words of a command. Raises Mistake for an empty command, and for a program that does not exist."""
    try:
        words = shlex.split(given) if isinstance(given, str) else [os.fspath(word) for word in given]  # type: ignore[call-overload]
    except (ValueError, TypeError) as error:
        raise Mistake(
            f"connect() takes a command as you would type it, or its words as a list: {error}"
        ) from None
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise Mistake('connect() takes a command ("uvx mcp-server-time"), an address (https://…) or a server')
    if shutil.which(words[0]) is None:
        raise Mistake(f"connect(): there is no program {plain(words[0])!r} on this kernel's PATH")
    return words


def _look_up(variable: object, names: Mapping[str, object]) -> str:
    """The text in an environment or notebook variable, which is never shown from then on."""
    value = (os.environ.get(variable) or names.get(variable)) if isinstance(variable, str) else None
    if isinstance(value, str) and value:
        remember([value])
        return value
    # The text that was typed may be the value itself, so it is not repeated.
    raise Mistake(
        "connect(): env= and headers= map a name to the NAME of an environment or notebook variable with its value, for "
        'example headers={"Authorization": "BOARD_TOKEN"}; one of those named there is no variable with a text'
    )


def _with_scheme(value: str) -> str:
    """`Bearer …` for a bare token."""
    return value if " " in value.strip() else f"Bearer {value.strip()}"


def _refuse_beside(**options: object) -> None:
    for name, value in options.items():
        if value:
            raise Mistake(f"connect(): {name}= does not go with this kind of server")


def _shorten(text: str) -> str:
    shown = hide_suspected(plain(text).replace("\n", " "))
    return shown if len(shown) <= _TITLE else f"{shown[: _TITLE - 1]}…"


def read_roots(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The addresses of folders. Raises Mistake for a path that is no folder."""
    folders = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    found = []
    for folder in folders:
        try:
            path = Path(folder).expanduser().resolve(strict=True)
        except (OSError, RuntimeError, TypeError, ValueError):
            path = None
        if path is None or not path.is_dir():
            raise Mistake(f"connect(): roots= takes folders, and there is no folder {plain(str(folder))!r}")
        found.append(path.as_uri())
    return tuple(found)
