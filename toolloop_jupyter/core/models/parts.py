"""The thinking of a message while it arrives: in blocks, as Anthropic sends it, or in tags before the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..events import Attachment, make_plain, read_field
from ..text import hide_in_repr


@dataclass
class _Thinking:
    parts: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def block(self) -> dict[str, Any]:
        return {"type": "thinking", "thinking": "".join(self.parts), **self.more}


class ThinkingBlocks:
    """Thinking blocks in their order, the pieces of each put together; blocks of other types as they are."""

    def __init__(self) -> None:
        self._blocks: list[_Thinking | dict[str, Any]] = []
        self._open = False
        """Whether the last one may go on: its signature ends it."""

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, block: dict[str, Any]) -> None:
        """Take in a block, or the next piece of one."""
        if block.get("type") != "thinking":
            self._blocks.append(block)
            self._open = False
            return
        last = self._blocks[-1] if self._blocks and self._open else None
        if not isinstance(last, _Thinking):
            last = _Thinking()
            self._blocks.append(last)
        last.parts.append(block.get("thinking") or "")
        last.more.update({k: v for k, v in block.items() if k not in ("type", "thinking") and v})
        self._open = not block.get("signature")

    def as_sent(self) -> list[dict[str, Any]]:
        """The blocks as the provider wants them back."""
        return [block.block() if isinstance(block, _Thinking) else block for block in self._blocks]


_NAMES = ("think", "thinking", "budget:thinking")
_OPENINGS = tuple(f"<{name}>" for name in _NAMES)
_CLOSINGS = tuple(f"</{name}>" for name in _NAMES)
_CLOSING = re.compile("|".join(_CLOSINGS))


class TaggedThought:
    """Takes the thought out of text that begins `<think>…</think>`, however the text is cut.

    By the rule that LiteLLM (1.110, `parse_content_for_reasoning`) has for whole responses and not for streams: the tag
    is the very first thing, any of the closing ones ends it, and one that nobody closes is text. Since a thought is
    shown as it comes, that text comes once more at the end.
    """

    def __init__(self) -> None:
        self._held = ""
        """The beginning of what may become a tag."""
        self._opening = ""
        """The tag that a thought is in."""
        self._thought: list[str] = []
        self._over = False
        """Whether all that follows is text."""

    @property
    def thought(self) -> str:
        """The thought so far."""
        return "".join(self._thought)

    @property
    def held_text(self) -> str:
        """What is held back and is text as it stands."""
        return "" if self._opening else self._held

    def take(self, text: str) -> tuple[str, str]:
        """Take in the next piece of the answer; returns the (text, thought) that is certain now."""
        if self._over or not text:
            return text, ""
        text, self._held = self._held + text, ""
        if not self._opening:
            self._opening = next((tag for tag in _OPENINGS if text.startswith(tag)), "")
            if not self._opening:
                return self._wait(text) if _may_become(text, _OPENINGS) else (self.give_up() + text, "")
            text = text[len(self._opening) :]
        if closing := _CLOSING.search(text):
            self._over, self._opening = True, ""
            return text[closing.end() :], self._think(text[: closing.start()])
        at = text.rfind("<")
        if at >= 0 and _may_become(text[at:], _CLOSINGS):
            text, self._held = text[:at], text[at:]
        return "", self._think(text)

    def give_up(self) -> str:
        """Look for no opening any more; returns the text that was held back for one."""
        if self._opening or self._over:
            return ""
        self._over = True
        return self._release()

    def cut(self) -> tuple[str, str]:
        """The stream broke off: returns the (text, thought) that was held back."""
        return ("", self._think(self._release())) if self._opening else (self.give_up(), "")

    def end(self) -> str:
        """The answer is whole: returns the rest of its text. A thought that nobody closed is none."""
        if not self._opening:
            return self.give_up()
        text = self._opening + self.thought + self._release()
        self._over, self._opening, self._thought = True, "", []
        return text

    def _wait(self, text: str) -> tuple[str, str]:
        self._held = text
        return "", ""

    def _think(self, thought: str) -> str:
        if thought:
            self._thought.append(thought)
        return thought

    def _release(self) -> str:
        held, self._held = self._held, ""
        return held


def _may_become(text: str, tags: tuple[str, ...]) -> bool:
    return any(tag.startswith(text) for tag in tags)


MOST_NAME = 300
"""Characters of a name; a longer one is cut."""
MOST_ATTACHED = 100
"""Attachments of one message; those after them are counted in one line."""

_DATA = re.compile(r"data:([a-z]+/[a-z0-9.+-]{1,60});base64,", re.IGNORECASE)
_WORDS = frozenset({"text", "thinking", "reasoning", "refusal", "tool_use", "tool_call", "output_text"})
"""Parts of a content that are read elsewhere."""


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
        content = read_field(delta, "content")
        for part in content if isinstance(content, list) else ():
            if is_attached(part):
                self._add(make_plain(part))
        fields = read_field(delta, "provider_specific_fields")
        for name in ("images", "annotations", "files"):
            parts = read_field(delta, name) or read_field(fields, name)
            for part in parts if isinstance(parts, list | tuple) else ():
                self._add(make_plain(part))
        if audio := read_field(delta, "audio"):
            for name in ("data", "transcript", "format"):
                self._audio[name] = self._audio.get(name, "") + str(read_field(audio, name) or "")

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
    return (
        not isinstance(part, str) and read_field(part, "type") not in _WORDS and not read_field(part, "text")
    )


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
