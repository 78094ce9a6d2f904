"""Read the argument of `connect()`, and return the target: a command, an address, LiteLLM's gateway, or a server object."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..core.events import Mistake
from ..core.execution import Raised, attempt_call
from ..core.loop import read_gateway
from ..core.text import hide_suspected, make_text_plain, remember, shorten

GATEWAY = "litellm_proxy"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Matches a valid name of an HTTP header (RFC 9110, 5.6.2)."""
_TAKES = 'connect() takes a command ("uvx mcp-server-time"), an address (https://…) or a server object'
_EXAMPLES = {"env": 'env={"API_TOKEN": "BOARD_TOKEN"}', "headers": 'headers={"Authorization": "BOARD_TOKEN"}'}
"""For each keyword that takes names of variables: an example for error messages."""
_TITLE = 120
"""How many characters of a command or an address are shown at most."""


@dataclass(frozen=True)
class Target:
    """The server to connect to: a command and its environment, an address and its headers, or a server object."""

    kind: Literal["stdio", "http", "memory"]
    title: str
    """The text that a person sees for the target. Passwords, and texts that look like API keys, are left out."""
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key_place: str = field(default="", repr=False)
    """Advice for a person if the server refuses the API key: the names of the variables to check."""
    server: object = field(default=None, repr=False)
    roots: tuple[str, ...] = field(default=(), repr=False)
    """The addresses (file://…) of the folders that the server gets if it asks for its roots."""


def read_target(
    given: object,
    *,
    env: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    cwd: str | None,
    names: Mapping[str, object],
) -> Target:
    """Return the target for `given`, the first argument of `connect()`. The values of `env` and `headers` are names of
    environment variables, or of variables of the caller (`names`).

    Raises Mistake if an argument is wrong. The message contains no value of a variable.
    """
    if isinstance(given, str) and given.strip() == GATEWAY:
        _refuse_beside(headers=headers, env=env, cwd=cwd)
        return _find_gateway()
    if isinstance(given, str) and given.partition("://")[0].lower() in ("http", "https"):
        _refuse_beside(env=env, cwd=cwd)
        filled = _fill_in("headers", headers, names)
        for name, value in filled.items():
            if name.lower() == "authorization" and " " not in value:
                filled[name] = f"Bearer {value}"
        place = 'pass a key: headers={"Authorization": "NAME_OF_A_VARIABLE"}'
        if headers:
            place = f"check the variables in headers=: {', '.join(map(repr, headers.values()))}"
        return Target("http", _shorten(given), url=given, headers=filled, key_place=place)
    if isinstance(given, (str, list, tuple)):
        _refuse_beside(headers=headers)
        words = _split(given)
        filled = _fill_in("env", env, names)
        return Target("stdio", _shorten(" ".join(words)), command=tuple(words), env=filled, cwd=cwd)
    _refuse_beside(headers=headers, env=env, cwd=cwd)
    _check_server(given)
    return Target("memory", "a server of this notebook", server=given)


def _find_gateway() -> Target:
    """Return the target of LiteLLM's gateway. It has the address and the API key that are used for the gateway's models."""
    base, key = read_gateway()
    for name, value in (("LITELLM_PROXY_API_BASE", base), ("LITELLM_PROXY_API_KEY", key)):
        if not value:
            raise Mistake(f"connect({GATEWAY!r}) needs the variable {name}")
    remember([key])
    url, headers = f"{base.removesuffix('/v1')}/mcp/", {"x-litellm-api-key": f"Bearer {key}"}
    place = "look at LITELLM_PROXY_API_KEY"
    return Target("http", _shorten(url), url=url, headers=headers, key_place=place)


def _split(given: str | Sequence[object]) -> list[str]:
    """Return the words of a command. Raises Mistake if the command is empty, or if the program does not exist."""
    try:
        words = shlex.split(given) if isinstance(given, str) else [os.fspath(word) for word in given]  # type: ignore[call-overload]
    except (ValueError, TypeError) as error:
        raise Mistake(
            f"connect() takes a command as you would type it, or its words as a list: {error}"
        ) from None
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise Mistake(_TAKES)
    if "://" in words[0]:
        raise Mistake(f"{_TAKES}, and {_shorten(words[0])!r} is none of them")
    if shutil.which(words[0]) is None:
        raise Mistake(f"connect(): there is no program {make_text_plain(words[0])!r} on this kernel's PATH")
    return words


def _check_server(given: object) -> None:
    """Raise Mistake if the object is neither a server of the official package `mcp`, nor a transport for the client of `mcp`."""
    kind = type(given)
    if hasattr(kind, "__aenter__") or any(one.__module__.partition(".")[0] == "mcp" for one in kind.__mro__):
        return
    name = make_text_plain(getattr(given, "__name__", ""))[:80] if callable(given) else ""
    call = f"; if {name}() makes the server, write {name}()" if name else ""
    raise Mistake(f"{_TAKES}; this is a {make_text_plain(kind.__name__)[:80]}{call}")


def _fill_in(keyword: str, typed: object, names: Mapping[str, object]) -> dict[str, str]:
    """Return `typed` (the value of `env=` or `headers=`) with each variable's value in place of its name; {} for None.

    Raises Mistake if `typed` or a value is not valid. The message contains no part of a value.
    """
    given = {} if typed is None else typed
    takes = (
        f"connect(): {keyword}= must be a dict that maps each name to the NAME of an environment or notebook variable "
        f"that has the value, for example {_EXAMPLES[keyword]}"
    )
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise Mistake(takes)
    filled = {}
    for name, variable in given.items():
        value = (os.environ.get(variable) or names.get(variable)) if isinstance(variable, str) else None
        if not isinstance(value, str) or not value.strip():
            # A person may have written the API key itself instead of a variable's name. So the message does not repeat this text.
            raise Mistake(f"{takes}; one of the given names is not the name of a variable that contains text")
        # Errors of other libraries may show a line break in the value as two characters. Then the whole value is not found in
        # the error. So each line of the value is hidden, too.
        remember([value, *map(str.strip, value.splitlines())])
        if keyword == "headers":
            value = value.strip()  # an API key that was read from a file may end with a line break
            is_valid = bool(_HEADER.fullmatch(name)) and value.isascii() and value.isprintable()
        else:
            is_valid = bool(name) and "=" not in name and "\0" not in name + value
        if not is_valid:
            raise Mistake(
                f"connect(): {keyword}= cannot send the value of {variable!r}: the value, or the name for it, is not valid"
            )
        filled[name] = value
    return filled


def _refuse_beside(**options: object) -> None:
    for name, value in options.items():
        if value:
            raise Mistake(f"connect(): this kind of server does not use {name}=; leave it out")


def _shorten(text: str) -> str:
    return shorten(hide_suspected(make_text_plain(text).replace("\n", " ")), _TITLE)


def read_roots(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the addresses (file://…) of folders. Raises Mistake if a path is not an existing folder."""
    if not isinstance(given, (str, os.PathLike, Iterable)):
        raise Mistake("connect(): roots= takes folders, for example roots=['.']")
    addresses = []
    for folder in [given] if isinstance(given, (str, os.PathLike)) else given:
        path = attempt_call(lambda one: Path(one).expanduser().resolve(strict=True), folder)
        # "" would mean the current folder. But "" usually comes from a variable that has no value, so "" is refused.
        if isinstance(path, Raised) or not str(folder) or not path.is_dir():
            raise Mistake(
                f"connect(): roots= takes folders, and there is no folder {make_text_plain(str(folder))!r}"
            )
        addresses.append(path.as_uri())
    return tuple(addresses)
