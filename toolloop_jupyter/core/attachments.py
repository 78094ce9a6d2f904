"""What an answer has beside text, thoughts and calls: pictures, audio, sources, files; read from deltas and messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .deltas import get, plain
from .hiding import hide_in_repr

MOST_NAME = 300
"""Characters of a name; a longer one is cut."""
MOST_ATTACHED = 100
"""Attachments of one message; those after them are counted in one line."""

_DATA = re.compile(r"data:([a-z]+/[a-z0-9.+-]{1,60});base64,", re.IGNORECASE)
_WORDS = frozenset({"text", "thinking", "reasoning", "refusal", "tool_use", "tool_call", "output_text"})
"""Parts of a content that are read elsewhere."""


@dataclass(frozen=True)
class Attachment:
    """Ours: a part of the answer that is no text, thought or call. Data only: nothing is fetched to show it."""

    kind: str
    """"picture", "audio", "source", "file", or the type that the server gave it."""
    name: str
    """What it is, in a line."""
    address: str = field(default="", repr=False)
    """Its data address (`data:image/png;base64,…`), or ""."""


hide_in_repr(Attachment)


class Attachments:
    """The attachments of one message while it arrives, each once."""

    def __init__(self) -> None:
        self._found: dict[Attachment, None] = {}
        self._told = 0
        self._left_out = 0
        self._audio: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._found or self._audio)

    def take(self, delta: object) -> None:
        """Take in what a delta (or a whole message) has."""
        content = get(delta, "content")
        for part in content if isinstance(content, list) else ():
            if is_attached(part):
                self._add(plain(part))
        for name in ("images", "annotations", "files"):
            parts = get(delta, name) or get(get(delta, "provider_specific_fields"), name)
            for part in parts if isinstance(parts, list | tuple) else ():
                self._add(plain(part))
        if audio := get(delta, "audio"):
            for name in ("data", "transcript", "format"):
                self._audio[name] = self._audio.get(name, "") + str(get(audio, name) or "")

    def end(self) -> None:
        """The message is whole, and so is its audio, which comes in pieces."""
        audio, self._audio = self._audio, {}
        if audio:
            said = f": {audio['transcript']}" if audio["transcript"] else ""
            media = f"audio/{audio['format']}" if audio["format"] else "application/octet-stream"
            address = f"data:{media};base64,{audio['data']}" if audio["data"] else ""
            self._keep("audio", f"audio, {_size(audio['data'])}{said}", address)
        if self._left_out:
            self._found[Attachment("more", f"{self._left_out} more parts of the answer")] = None
            self._left_out = 0

    def untold(self) -> list[Attachment]:
        """Those that have come since this was asked last."""
        new = list(self._found)[self._told :]
        self._told = len(self._found)
        return new

    def all(self) -> tuple[Attachment, ...]:
        """All of them, in their order."""
        return tuple(self._found)

    def pictures(self) -> list[dict[str, Any]]:
        """The pictures as parts of a message, as servers send them."""
        found = [one.address for one in self._found if one.kind == "picture" and one.address]
        return [{"type": "image_url", "image_url": {"url": address}} for address in found]

    def _add(self, part: Any) -> None:
        if isinstance(part, Mapping):
            for kind, name, address in _read(part):
                self._keep(kind, name, address)
        elif part:
            self._keep("part", f"a part of the answer: {part}")

    def _keep(self, kind: str, name: str, address: str = "") -> None:
        name = " ".join(name.split())
        made = Attachment(kind, name if len(name) <= MOST_NAME else f"{name[:MOST_NAME]}…", address)
        if made in self._found:
            return
        if len(self._found) >= MOST_ATTACHED:
            self._left_out += 1
        else:
            self._found[made] = None


def is_attached(part: object) -> bool:
    """Whether a part of a content is neither text nor thought nor call."""
    return not isinstance(part, str) and get(part, "type") not in _WORDS and not get(part, "text")


def _read(part: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(kind, name, address) of a part, whatever form it has."""
    kind = str(part.get("type") or "part")
    body = part.get(kind, part)
    fields = body if isinstance(body, Mapping) else {"url": body}
    url = str(fields.get("url") or fields.get("file_data") or "")
    title = str(fields.get("title") or fields.get("filename") or fields.get("name") or "")
    if data := _as_data(fields):
        url = data
    if match := _DATA.match(url):
        media = match.group(1).lower()
        about = f"{media}, {_size(url[match.end() :])}"
        name = f"{title} ({about})" if title else about
        yield (("picture", name, url) if media.startswith("image/") else ("file", name, url))
    elif kind == "url_citation":
        yield "source", f"source: {title} {url}", ""
    elif url or title:
        what = "picture" if "image" in kind else "file" if "file" in kind else kind
        yield what, f"{what}, not loaded: {title} {url}", ""
    else:
        yield kind, f"{kind}: {json.dumps(part, ensure_ascii=False, default=repr)[:MOST_NAME]}", ""


def _as_data(fields: Mapping[str, Any]) -> str:
    """The data address of a part in Anthropic's or OpenAI's form for bytes, or ""."""
    source = fields.get("source")
    source = source if isinstance(source, Mapping) else fields
    data, media = source.get("data") or source.get("b64_json"), source.get("media_type") or "image/png"
    if not isinstance(data, str) or not data:
        return ""
    if source.get("format"):
        media = f"audio/{source['format']}"
    return f"data:{media};base64,{data}"


def _size(encoded: str) -> str:
    return f"{len(encoded) * 3 // 4 / 1000:,.1f} kB"


def note(attachments: Sequence[Attachment]) -> str:
    """What stands in the history for an answer that has no text."""
    return "\n".join(f"[{attachment.name}]" for attachment in attachments)
