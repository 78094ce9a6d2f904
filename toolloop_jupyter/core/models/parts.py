"""Collect the parts of a message while it arrives: text, thoughts, attachments, and fields that the provider wants back."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..events import Attachment, Fields, make_plain, read_content, read_fields, read_list
from ..text import cut_half, shorten

_NAMES = ("think", "thinking", "budget:thinking")
_OPENINGS = tuple(f"<{name}>" for name in _NAMES)
_CLOSINGS = tuple(f"</{name}>" for name in _NAMES)
_CLOSING = re.compile("|".join(_CLOSINGS))


def split_content(parts: Sequence[object]) -> tuple[str, str, str]:
    """Return (the text, the thought, the refusal) in the content parts of a message. Mistral sends thoughts in this form."""
    text, thought, refusal = [], [], []
    for part in parts:
        fields = read_fields(part)
        match fields.get("type"):
            case "thinking" | "reasoning" as kind:
                thought.append(read_content(fields.get(kind) or fields.get("text")))
            case "refusal":
                refusal.append(read_content(fields.get("refusal")))
            case _:
                text.append(read_content([part]))
    return "".join(text), "".join(thought), "".join(refusal)


class Words:
    """Collects the text and the thought of a message.

    A thought comes in the field `reasoning_content`, or between tags such as `<think>…</think>` at the beginning of the text. A
    tag may be split over several deltas. LiteLLM (1.110, `parse_content_for_reasoning`) finds these tags in complete
    responses, but not in streams. This class uses LiteLLM's rule for streams: the opening tag must come first, any
    closing tag ends the thought, and a thought without a closing tag is text. A thought is shown while it arrives. If its
    closing tag is missing at the end, the thought is shown again, as text.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thought: list[str] = []
        self._half = self._thought_half = ""
        """The first half of a surrogate pair (of the text, of the thought); else "". The next piece brings the second half."""
        self._tagged: list[str] = []
        """The pieces of the thought between the tags."""
        self._opening = ""
        """The opening tag of the thought that is being read; "" outside of the tags."""
        self._held = ""
        """Text that is held back, since it may be the beginning of a tag."""
        self._is_plain = False
        """True if tags no longer count: all further text is shown as it is."""

    @property
    def text(self) -> str:
        """All text so far, without the text that is held back."""
        return "".join(self._text)

    @property
    def thought(self) -> str:
        """All thought so far."""
        return "".join(self._tagged) + "".join(self._thought)

    def add(self, content: str, reasoning: str) -> tuple[str, str]:
        """Add `content` to the text and `reasoning` to the thought. Return (the text, the thought) that can be shown now."""
        text = ""
        if reasoning:
            reasoning, self._thought_half = cut_half(self._thought_half + reasoning)
        if reasoning:
            self._thought.append(reasoning)
            if not self._opening:  # a server that sends thoughts in a field writes no tags
                text, self._held, self._is_plain = self._held, "", True
        if content:
            if self._half or not content.isascii():
                content, self._half = cut_half(self._half + content)
            if content and not self._is_plain:
                content, tagged = self._read_tags(content)
                reasoning += tagged
            text += content
        if text:
            self._text.append(text)
        return text, reasoning

    def end(self, *, is_cut: bool) -> tuple[str, str]:
        """End the message. Return (the text, the thought) that was held back until now.

        In a complete message, a thought without a closing tag counts as text. `is_cut`: the message broke off.
        """
        rest, self._held, self._is_plain = self._held, "", True
        if self._opening and is_cut:
            self._tagged.append(rest)
            return "", rest
        if self._opening:
            rest = self._opening + "".join(self._tagged) + rest
            self._opening, self._tagged = "", []
        if rest:
            self._text.append(rest)
        return rest, ""

    def _read_tags(self, text: str) -> tuple[str, str]:
        text, self._held = self._held + text, ""
        if not self._opening:
            opening = next(filter(text.startswith, _OPENINGS), "")
            if not opening and text[0] == "<" and _may_become(text, _OPENINGS):
                self._held = text
                return "", ""
            if not opening:
                self._is_plain = True
                return text, ""
            self._opening, text = opening, text[len(opening) :]
        if closing := _CLOSING.search(text):
            self._is_plain, self._opening = True, ""
            text, thought = text[closing.end() :], text[: closing.start()]
        else:
            at = text.rfind("<")
            if at >= 0 and _may_become(text[at:], _CLOSINGS):
                text, self._held = text[:at], text[at:]
            text, thought = "", text
        if thought:
            self._tagged.append(thought)
        return text, thought


def _may_become(text: str, tags: tuple[str, ...]) -> bool:
    return any(tag.startswith(text) for tag in tags)


class ReturnedFields:
    """Collects the fields that a provider wants back: thinking blocks, reasoning items, and `provider_specific_fields`."""

    def __init__(self) -> None:
        self._blocks: list[tuple[dict[str, object], list[str]]] = []
        """All blocks in their order: (fields, pieces of the thinking text). Only a thinking block has pieces."""
        self._is_open = False
        """True if the next piece of thinking belongs to the last block. A block ends with its signature."""
        self._lists: dict[str, list[object]] = {}
        self._provider: dict[str, object] = {}
        self._in_provider: dict[str, set[str]] = {}
        """For each list in `provider_specific_fields`: the JSON texts of its items. They show which new items are repeated."""

    def add(self, delta: Fields) -> None:
        """Add those fields of a delta that the provider wants back."""
        for block in map(make_plain, read_list(delta.get("thinking_blocks"))):
            if isinstance(block, dict):
                self._add_block(block)
        for name in ("reasoning_items", "reasoning_details"):
            if items := read_list(delta.get(name)):
                self._lists.setdefault(name, []).extend(map(make_plain, items))
        for name, value in make_plain(read_fields(delta.get("provider_specific_fields"))).items():
            there = self._provider.get(name)
            if isinstance(there, list) and isinstance(value, list):
                known = self._in_provider[name]
                there += [item for item in value if _write_text(item) not in known]
                known.update(map(_write_text, value))
            elif value is not None:
                self._provider[name] = value
                self._in_provider[name] = set(map(_write_text, value)) if isinstance(value, list) else set()

    def _add_block(self, block: dict[str, object]) -> None:
        is_thought = block.get("type") == "thinking"
        if not (is_thought and self._is_open):
            self._blocks.append(({"type": "thinking", "thinking": ""} if is_thought else block, []))
        if is_thought:
            fields, pieces = self._blocks[-1]
            pieces.append(read_content(block.get("thinking")))
            fields.update({k: v for k, v in block.items() if k not in ("type", "thinking") and v})
        self._is_open = is_thought and not block.get("signature")

    def as_sent(self) -> dict[str, object]:
        """Return the fields in the form that the provider wants back."""
        blocks = [
            {**fields, "thinking": "".join(pieces)} if pieces else fields for fields, pieces in self._blocks
        ]
        fields = {"thinking_blocks": blocks, **self._lists, "provider_specific_fields": self._provider}
        return {name: value for name, value in fields.items() if value}


def _write_text(item: object) -> str:
    return json.dumps(item, sort_keys=True, default=repr)


MOST_NAME = 300
"""The most characters of an attachment's name. A longer name is shortened."""
MOST_ATTACHED = 100
"""The most attachments of one message that are kept. Further attachments are only counted, and a line states their number."""
_MOST_READ = 1_000
"""The most parts of one delta that are read. This number includes repeated parts."""

_DATA = re.compile(r"data:([a-z]+/[a-z0-9.+-]{1,60});base64,", re.IGNORECASE)
_WORDS = frozenset({"text", "thinking", "reasoning", "refusal", "tool_use", "tool_call", "output_text"})
"""Types of content parts that are not attachments. Other code reads these parts."""
ATTACHED = {"images": "image_url", "annotations": "", "files": "file"}
"""Fields that hold lists of attachments, in a delta or in its `provider_specific_fields`. Field -> the type of an
item that is only an address; "" if this field has no such items."""
SOURCES = frozenset({"citations", "citation", "search_results"})
"""Fields that hold the sources of an answer: in a chunk (Perplexity), or in `provider_specific_fields` (Anthropic)."""


class Attachments:
    """Collects the pictures, files, sources and sound of one message while it arrives. A repeated attachment counts once."""

    def __init__(self) -> None:
        self._found: dict[Attachment, None] = {}
        self._left_out = 0
        self._audio: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._found or self._audio)

    def take(self, delta: Fields) -> None:
        """Collect the pictures, files, sources and other attachments in a delta or a complete message.

        Sound comes in pieces. This method joins the pieces, and `end` makes one attachment from them.
        """
        content, fields = delta.get("content"), read_fields(delta.get("provider_specific_fields"))
        found = [("", list(filter(is_attached, content)) if isinstance(content, list) else [])]
        found += [(kind, read_list(delta.get(name) or fields.get(name))) for name, kind in ATTACHED.items()]
        for kind, parts in found:
            self._left_out += max(0, len(parts) - _MOST_READ)
            for part in parts[:_MOST_READ]:
                if isinstance(part, str) and kind:
                    self._keep(_describe({"type": kind, "url": part}))
                elif plain_part := make_plain(part):
                    self._keep(_describe(plain_part))
        self.take_sources(fields)
        self.take_sources(delta)
        if audio := read_fields(delta.get("audio")):
            for name in ("data", "transcript", "format"):
                self._audio[name] = self._audio.get(name, "") + str(audio.get(name) or "")

    def take_sources(self, fields: Fields) -> None:
        """Collect the sources in `fields`. A source is an address, an object with an address or a title, or a list of these."""
        waiting = deque(make_plain(found) for name in sorted(SOURCES) if (found := fields.get(name)))
        while waiting:
            source = waiting.popleft()
            if isinstance(source, list):
                waiting.extendleft(reversed(source))
            elif isinstance(source, Mapping):
                title = source.get("title") or source.get("document_title") or ""
                waiting.appendleft(f"{title} {source.get('url') or ''}".strip())
            elif isinstance(source, str) and source:
                self._keep(Attachment("source", f"source: {source}"))

    def end(self) -> None:
        """End the message. Add attachments for the sound and for the number of left-out parts, if there are any."""
        audio, self._audio = self._audio, {}
        if audio:
            said = f": {audio['transcript']}" if audio["transcript"] else ""
            media = f"audio/{audio['format']}" if audio["format"] else "application/octet-stream"
            address = f"data:{media};base64,{audio['data']}" if audio["data"] else ""
            self._keep(Attachment("audio", f"audio, {_write_size(audio['data'])}{said}", address))
        if self._left_out:
            self._found[Attachment("more", f"{self._left_out} more parts of the answer")] = None

    def all(self) -> tuple[Attachment, ...]:
        """Return all attachments in the order in which they came."""
        return tuple(self._found)

    def _keep(self, made: Attachment) -> None:
        made = replace(made, name=shorten(" ".join(made.name.split()), MOST_NAME))
        if made not in self._found and len(self._found) >= MOST_ATTACHED:
            self._left_out += 1
        else:
            self._found[made] = None


def is_attached(part: object) -> bool:
    """Return True if a content part is an attachment, and not a text, a thought or a tool call."""
    fields = read_fields(part)
    return not isinstance(part, str) and fields.get("type") not in _WORDS and not fields.get("text")


def _describe(part: object) -> Attachment:
    """Return a content part as an attachment. Each provider has its own form for content parts."""
    if not isinstance(part, Mapping):
        return Attachment("part", f"a part of the answer: {part}")
    kind = str(part.get("type") or "part")
    body = part.get(kind, part)
    fields = body if isinstance(body, Mapping) else {"url": body}
    url = _write_data_address(fields) or str(fields.get("url") or fields.get("file_data") or "")
    title = str(fields.get("title") or fields.get("filename") or fields.get("name") or "")
    if match := _DATA.match(url):
        media = match.group(1).lower()
        about = f"{media}, {_write_size(url[match.end() :])}"
        name = f"{title} ({about})" if title else about
        return Attachment("picture" if media.startswith("image/") else "file", name, url)
    if kind == "url_citation":
        return Attachment("source", f"source: {title} {url}")
    if url or title:
        what = "picture" if "image" in kind else "file" if "file" in kind else kind
        return Attachment(what, f"{what}, not loaded: {title} {url}")
    return Attachment(kind, f"{kind}: {json.dumps(part, ensure_ascii=False, default=repr)[:MOST_NAME]}")


def _write_data_address(fields: Fields) -> str:
    """Return a `data:` address if a part holds bytes in Anthropic's or OpenAI's form; "" for any other part."""
    source = fields.get("source")
    source = source if isinstance(source, Mapping) else fields
    data, media = source.get("data") or source.get("b64_json"), source.get("media_type") or "image/png"
    if not isinstance(data, str) or not data:
        return ""
    if source.get("format"):
        media = f"audio/{source['format']}"
    return f"data:{media};base64,{data}"


def _write_size(encoded: str) -> str:
    return f"{len(encoded) * 3 // 4 / 1000:,.1f} kB"
