"""Build one assistant message from the deltas of a stream. Providers send these deltas in several forms.

LiteLLM's `stream_chunk_builder` (seen on 1.110.2) loses a tool call without an id, and merges two calls with the same
index. So this module builds the tool calls itself. A *fragment* is one item of `tool_calls` in a delta.

These rules find the call that a fragment belongs to. A call is *complete* if its arguments have begun, and no bracket or string
in them is still open.

- A fragment with a known id belongs to the call with this id. Any other fragment belongs to the last call at its index.
- But a fragment without a known id and without a name belongs to the newest call, if the call at its index is complete and
  the newest call is not. (If the fragment repeats the arguments of the complete call, and both calls are of the same tool, it
  belongs to the complete call.)

A fragment opens a new call in these cases:

- It has a new id *and a name*. But if the call at its index has the same name and incomplete arguments, the fragment
  belongs to that call: some servers make up an id for each fragment.
- It has a known id, but it names another tool, or it begins new arguments at another index.
- It has no id, its name is not the name of the call at its index, and either the arguments of that call have begun, or both
  names are names of tools.

Repetitions and pieces:

- A call that repeats the name and the arguments of a call with the same id is dropped. If there is no id, the index counts.
- A repeated name counts once. A name that comes in two pieces, before any arguments, is joined.
- Several complete JSON objects in one call's arguments are several calls. Identical objects count once. An empty object
  beside a non-empty object is a placeholder, and is dropped.
- OpenAI's old `function_call` field counts only if `tool_calls` has no call: llama-cpp-python sends each call in both.
- A call gets a new id if it has no id, if its id is absurdly long, or if the conversation already contains its id.

Thinking blocks, reasoning items and provider-specific fields are kept unchanged. Providers refuse a history without
these fields (Anthropic's signatures, Gemini's thought signatures).
"""

from __future__ import annotations

import json
import re
import uuid
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..events import Attachment, Fields, make_plain, read_content, read_count, read_fields, read_list
from ..text import LONGEST_ARGUMENTS, MOST_CALLS, join_surrogates, join_surrogates_in, shorten

_LONGEST_ID = 50_000
"""The largest number of characters of a tool call's id; a longer id is replaced. LiteLLM appends a thought signature of some thousand
characters to Gemini's ids.
"""
_LONGEST_NAME = 1_000
"""While a tool's name comes in pieces, at most this number of characters is kept. At most 64 are sent back to the model."""
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_READ = frozenset({"index", "id", "type", "function", "custom"})
_READ_OF_FUNCTION = frozenset({"name", "arguments", "input"})
"""The fields of a fragment, and the fields of its `function`, that are read. Other fields go back to the provider unchanged."""
_RETURNED = frozenset({"thinking_blocks", "reasoning_items", "reasoning_details"})


def make_call_id() -> str:
    """Return a new call id in the form that providers use. The id is unique, also across sessions."""
    return f"call_{uuid.uuid4().hex[:24]}"


class Assembly:
    """Builds one assistant message while it arrives. `add` takes the deltas of the message, or the complete message."""

    def __init__(self, names: Collection[str] = ()) -> None:
        """`names`: the names of the tools as the model sees them, if known.

        Two fragments may bring the names of two tools, or two pieces of one name. `names` shows which of these it is.
        """
        self.calls = Calls(frozenset(names))
        self.words = Words()
        self.attachments = Attachments()
        self.returned = ReturnedFields()
        self.refusal = ""
        """The provider's own refusal text (OpenAI's `refusal` field)."""
        self.usage: object = None
        self.finish_reason: str | None = None
        self._has_ended = False

    @property
    def text(self) -> str:
        """All text so far. If the message has ended without a text, this is the text of the provider's `refusal` field."""
        return self.words.text or (self.refusal if self._has_ended else "")

    @property
    def is_empty(self) -> bool:
        """True if nothing has come yet that a person or the loop could use."""
        return not (self.text or self.refusal or self.words.thought or self.calls or self.attachments)

    @property
    def returns_fields(self) -> bool:
        """True if the message or one of its calls has fields that go back to the provider unchanged."""
        return bool(self.returned) or self.calls.returns_fields

    def read_chunk(self, chunk: object) -> object:
        """Keep the usage, the sources and the finish reason in `chunk`. Return the delta in `chunk`.

        `chunk` may also be a complete response, with a message in place of a delta. Only the choice with the index 0 is read.
        Returns None for a chunk without this choice, for example for OpenAI's chunk that has only the usage.
        """
        fields = read_fields(chunk)
        if read_fields(usage := fields.get("usage")):
            self.usage = usage
        if not _SOURCES.isdisjoint(fields):
            self.attachments.take_sources(fields)
        for choice in map(read_fields, read_list(fields.get("choices"))):
            if read_count(choice.get("index")) == 0:
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
                return choice.get("delta", choice.get("message"))
        return None

    def add(self, delta: object, *, whole: bool = False) -> tuple[str, str]:
        """Add one delta, or a complete message if `whole` is True. Return (the text, the thought) that can be shown now."""
        fields = read_fields(delta)
        content, thought = fields.get("content"), read_content(fields.get("reasoning_content"))
        if has_parts := isinstance(content, list):
            content, thought_in_parts, refused = split_content(content)
            thought, self.refusal = thought or thought_in_parts, self.refusal + refused
        content = read_content(content)
        shown = self.words.add(content, thought) if content or thought else ("", "")
        if refusal := fields.get("refusal"):
            self.refusal += read_content(refusal)
        if fragments := fields.get("tool_calls"):
            self.calls.add(read_list(fragments), whole=whole)
        if function := fields.get("function_call"):
            self.calls.add_old(read_fields(function))
        provider_fields = fields.get("provider_specific_fields")
        # Each delta of LiteLLM has the field "audio", whose value is mostly None.
        if provider_fields or has_parts or any(map(fields.get, _ATTACHMENTS)):
            self.attachments.take(fields)
        if provider_fields or not _RETURNED.isdisjoint(fields):
            self.returned.add(fields)
        return shown

    def end(self, *, is_cut: bool = False) -> tuple[str, str]:
        """End the message. Return (the text, the thought) that was held back until now; a second call returns ("", "").

        `is_cut`: the message broke off. If it did not, a thought without a closing tag counts as text.
        """
        if self._has_ended:
            return "", ""
        self._has_ended = True
        if self.attachments and not is_cut:
            self.attachments.end()
        text, thought = self.words.end(is_cut=is_cut)
        return (text if self.words.text else self.refusal), thought

    def message(self, used_ids: Collection[str] = ()) -> dict[str, Any]:
        """Return the assistant message in OpenAI format, with the fields that the provider wants back.

        A tool call gets a new id if its id is in `used_ids`, because each id may occur only once in a conversation.
        """
        self.end()
        calls = list(self.calls.as_sent(set(used_ids))) if self.calls else []
        text = join_surrogates(self.text)
        # If there are tool calls, a content of "" becomes None. LiteLLM's converters (1.110) drop "" and None, but some
        # other servers refuse "".
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text if not calls or text.strip() else None,
        }
        if calls:
            message["tool_calls"] = calls
        if thought := self.words.thought:
            message["reasoning_content"] = thought
        if self.attachments and (addresses := self.attachments.list_pictures()):
            images = [{"type": "image_url", "image_url": {"url": address}} for address in addresses]
            message["images"] = join_surrogates_in(images)
        if self.returned:
            message.update(join_surrogates_in(self.returned.as_sent()))
        return message


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    index: int | None = None
    """The call's index in the server's deltas; None if the server sends no index, or if the call is in a complete message."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Other fields of the call (`provider_specific_fields`, `extra_content`). They go back to the provider unchanged."""
    has_begun: bool = False
    """True if the arguments contain more than whitespace."""
    _parts: list[str] = field(default_factory=list)
    _depth: int = 0
    _in_string: bool = False
    _escape: str = ""
    """The backslash at the end of the last fragment, if any. The next fragment begins with the escaped character."""
    _room: int = LONGEST_ARGUMENTS + 1
    """The number of characters that can still be added. If it is 0, the arguments are too long, and the call is refused."""

    @property
    def arguments(self) -> str:
        return join_surrogates("".join(self._parts))

    @property
    def is_complete(self) -> bool:
        """True if the arguments have begun and no bracket or string in them is still open, or if they are too long."""
        return self.has_begun and ((self._depth <= 0 and not self._in_string) or self._room <= 0)

    def ends_with_object(self, text: str) -> bool:
        """Return True if the arguments are complete, and their last fragment is `text`, the text of a JSON object."""
        return self.is_complete and self._parts[-1] == text and text.lstrip().startswith("{")

    def extend(self, text: str) -> None:
        """Append `text` to the arguments. Examine each character only once, with fast string methods."""
        text = text[: self._room]
        self._room -= len(text)
        self._parts.append(text)
        self.has_begun = self.has_begun or not text.isspace()
        text = self._escape + text
        self._escape = ""
        if "\\" in text:
            text = _ESCAPED.sub("", text)  # now a backslash can only be the last character
            self._escape = "\\" if text.endswith("\\") else ""
            text = text.removesuffix("\\")
        pieces = text.split('"')
        outside = "".join(pieces[self._in_string :: 2])
        self._in_string ^= len(pieces) % 2 == 0
        self._depth += outside.count("{") + outside.count("[") - outside.count("}") - outside.count("]")

    def add_name(self, name: str, names: Collection[str]) -> None:
        """Add `name`: a further piece of the call's name, or a repetition of the name. `names`: the names of all tools."""
        name = name[: _LONGEST_NAME + 1]
        if len(self.name) > _LONGEST_NAME:
            return
        if self.name + name in names:
            self.name += name
        elif name != self.name and not (self.name and self.has_begun):
            self.name = name if name.startswith(self.name) else self.name + name

    def keep_extra(self, fragment: Fields, body: Fields) -> None:
        """Keep the fields of a fragment and of its `function` that go back to the provider unchanged."""
        for name, value in fragment.items():
            if name not in _READ and name != "provider_specific_fields" and value is not None:
                self.extra[name] = make_plain(value)
        if fields := fragment.get("provider_specific_fields") or body.get("provider_specific_fields"):
            self.extra.setdefault("provider_specific_fields", {}).update(make_plain(read_fields(fields)))


class Calls:
    """Collects the tool calls of one message, which arrive in fragments."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._old: Calls | None = None
        """The calls from OpenAI's old `function_call` field. They are collected separately from `tool_calls`."""
        self.has_too_many = False
        """True if there are more than MOST_CALLS calls. All further fragments are then ignored."""

    def __bool__(self) -> bool:
        return bool(self.calls) or self._old is not None

    @property
    def returns_fields(self) -> bool:
        """True if a call has fields that go back to the provider unchanged."""
        return any(call.extra for call in self.calls) or (self._old is not None and self._old.returns_fields)

    @property
    def has_unfinished_call(self) -> bool:
        """True if the arguments of a call have begun and are incomplete, or if the arguments of the last call have not begun."""
        cut = any(not call.is_complete and (call.has_begun or call is self.calls[-1]) for call in self.calls)
        return cut or (self._old is not None and self._old.has_unfinished_call)

    def add(self, fragments: Sequence[object], *, whole: bool = False) -> None:
        """Add the fragments of one delta, or the calls of a complete message if `whole` is True.

        Each call of a complete message is a new call. But if it has the id, the name and the arguments of an earlier call, it
        is a repetition, and is ignored.
        """
        for fragment in filter(None, map(read_fields, fragments)):
            if self.has_too_many:
                break
            body = read_fields(fragment.get("function") or fragment.get("custom"))
            name, arguments = read_content(body.get("name")).strip(), body.get("arguments")
            arguments = body.get("input") if arguments is None else arguments
            if not isinstance(arguments, str):  # a few servers send JSON data in place of a text
                arguments = "" if arguments is None else json.dumps(make_plain(arguments))
            call_id, index = fragment.get("id"), fragment.get("index") or 0
            index = index if isinstance(index, int) else read_count(index)
            call_id = "" if call_id is None else str(call_id)  # some servers send a number as the id
            with_id = self._by_id.get(call_id)
            if whole and with_id is not None and (with_id.name, with_id.arguments) == (name, arguments):
                continue
            call = None if whole else self._find(call_id, index, name, arguments)
            if call is None:
                call = _Call(index=None if whole or fragment.get("index") is None else index)
                self.calls.append(call)
                self.has_too_many = len(self.calls) > MOST_CALLS
            self._at_index[index] = call
            if call_id and not call.id:
                call.id = call_id
                self._by_id[call_id] = call
            if name:
                call.add_name(name, self._names)
            if arguments:
                call.extend(arguments)
            if not (fragment.keys() <= _READ and body.keys() <= _READ_OF_FUNCTION):
                call.keep_extra(fragment, body)

    def add_old(self, function: Fields) -> None:
        """Add a piece of OpenAI's old `function_call` field."""
        if function.get("name") or function.get("arguments"):
            self._old = self._old or Calls(self._names)
            self._old.add([{"function": function}])

    def _find(self, call_id: str, index: int, name: str, arguments: str) -> _Call | None:
        """Return the call that a fragment belongs to; None if the fragment opens a new call."""
        at_index = self._at_index.get(index)
        with_id = at_index if at_index is not None and at_index.id == call_id else self._by_id.get(call_id)
        if call_id and with_id is not None and not self._reuses_id(with_id, at_index, name, arguments):
            return with_id
        newest = self.calls[-1] if self.calls else None
        if at_index is None:
            return None if call_id or name else newest
        if not name and at_index.is_complete and newest is not None and not newest.is_complete:
            is_repetition = newest.name == at_index.name and at_index.ends_with_object(arguments)
            return at_index if is_repetition else newest
        return None if name and self._opens_new(at_index, call_id, name, arguments) else at_index

    def _reuses_id(self, with_id: _Call, at_index: _Call | None, name: str, arguments: str) -> bool:
        """Return True if a fragment with the id of the call `with_id` opens a new call. Some servers give all calls the same id."""
        if not (name and with_id.name):
            return False
        if name != with_id.name:
            return with_id.has_begun or self._are_two_tools(with_id.name, name)
        in_the_middle = with_id.has_begun and not with_id.is_complete
        return at_index is not with_id and in_the_middle and arguments.lstrip().startswith("{")

    def _are_two_tools(self, first: str, second: str) -> bool:
        """Return True if these are the names of two tools, and not two pieces of the name of a third tool."""
        both = first in self._names and second in self._names
        return both and first + second not in self._names and not second.startswith(first)

    def _opens_new(self, call: _Call, call_id: str, name: str, arguments: str) -> bool:
        if call_id and call.id:
            in_the_middle = call.has_begun and not call.is_complete and name == call.name
            return not in_the_middle or arguments.lstrip().startswith("{")
        if not call.name or name == call.name:
            return False
        return call.has_begun or self._are_two_tools(call.name, name)

    def as_sent(self, used: set[str]) -> Iterator[dict[str, Any]]:
        """Yield the calls in OpenAI format, without repeated calls. If the arguments of a call are several JSON objects, each
        object is a call. Each call has a different id that was not in `used`. The ids are added to `used`.
        """
        count, sent, calls = 0, set[tuple[str | int | None, str, str]](), self.calls
        if self._old is not None:  # its calls count only if `tool_calls` has none
            calls = [call for call in calls if call.name or call.has_begun] or self._old.calls
        for call in calls:
            objects = split_objects(call.arguments)
            if count + len(objects) > MOST_CALLS:
                objects = [call.arguments]  # later, these arguments are refused: they are not one object
            # OpenAI refuses a name such as `functions.f` in a history.
            name = call.name
            sent_name = name if name in self._names else _NOT_IN_NAMES.sub("_", name)[:64] or "unnamed_tool"
            id_or_index = call.id or call.index
            for arguments in objects:
                content = name, arguments.strip()
                if id_or_index is not None and (id_or_index, *content) in sent:
                    continue
                sent |= {
                    (id_or_index, *content),
                    (id_or_index if call.index is None else call.index, *content),
                }
                count += 1
                call_id = join_surrogates(call.id) if len(call.id) <= _LONGEST_ID else ""
                call_id = call_id if call_id and call_id not in used else make_call_id()
                used.add(call_id)
                function = {"name": sent_name, "arguments": arguments}
                extra = join_surrogates_in(call.extra) if call.extra else {}
                yield {"id": call_id, "type": "function", "function": function, **extra}


_SEAM = re.compile(r"\}\s*\{")
"""The boundary between two JSON objects. Arguments without this boundary hold only one object and need not be parsed."""


def split_objects(arguments: str) -> list[str]:
    """Split the text `{..}{..}` into its JSON objects, and return their texts.

    Repeated objects are left out. Empty objects are left out, too, but if all objects are empty, one stays. A text of
    another form is returned unchanged, as the only item.
    """
    if len(arguments) > LONGEST_ARGUMENTS or _SEAM.search(arguments) is None:
        return [arguments]
    decoder, position, several = json.JSONDecoder(), 0, False
    text, objects = arguments.strip(), dict[str, bool]()
    while position < len(text):
        if text[position] != "{":
            return [arguments]
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return [arguments]
        objects.setdefault(text[position:end], bool(value))
        several = several or position > 0
        position = end
        while position < len(text) and text[position].isspace():
            position += 1
    if not several:
        return [arguments]
    return [text for text, is_full in objects.items() if is_full] or list(objects)[:1]


# --- its text, its thoughts, and the fields that the provider wants back -----------------------------------------

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
        """The first half of a surrogate pair at the end of the text, of the thought; else "". The next delta has the other half."""
        self._tagged: list[str] = []
        """The pieces of the thought between the tags."""
        self._opening = ""
        """The opening tag of the thought that is being read; "" outside of the tags."""
        self._held = ""
        """Text that is held back, because it may be the beginning of a tag."""
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
            reasoning, self._thought_half = _cut_half(self._thought_half + reasoning)
        if reasoning:
            self._thought.append(reasoning)
            if not self._opening:  # a server that sends thoughts in a field writes no tags
                text, self._held, self._is_plain = self._held, "", True
        if content:
            if self._half or not content.isascii():
                content, self._half = _cut_half(self._half + content)
            if content and not self._is_plain:
                content, tagged = self._read_tags(content)
                reasoning += tagged
            text += content
        if text:
            self._text.append(text)
        return text, reasoning

    def end(self, *, is_cut: bool) -> tuple[str, str]:
        """End the message, as `Assembly.end` does."""
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


def _cut_half(text: str) -> tuple[str, str]:
    """If `text` ends with the first half of a surrogate pair, return (the text before it, this half). Else return (the text, "")."""
    whole, half = (text[:-1], text[-1]) if "\ud800" <= text[-1:] <= "\udbff" else (text, "")
    return join_surrogates(whole), half


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

    def __bool__(self) -> bool:
        return bool(self._blocks or self._lists or self._provider)

    def add(self, delta: Fields) -> None:
        """Add those fields of a delta that the provider wants back."""
        for block in map(make_plain, read_list(delta.get("thinking_blocks"))):
            if isinstance(block, dict):
                self._add_block(block)
        for name in ("reasoning_items", "reasoning_details"):
            if items := read_list(delta.get(name)):
                self._lists.setdefault(name, []).extend(map(make_plain, items))
        for name, value in make_plain(read_fields(delta.get("provider_specific_fields"))).items():
            earlier = self._provider.get(name)
            if isinstance(earlier, list) and isinstance(value, list):
                earlier_texts = self._in_provider[name]
                earlier += [item for item in value if _write_text(item) not in earlier_texts]
                earlier_texts.update(map(_write_text, value))
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


# --- its attachments ----------------------------------------------------------------------------------------------

_MOST_NAME = 300
"""The largest number of characters of an attachment's name. A longer name is shortened."""
_MOST_ATTACHED = 100
"""The largest number of attachments of one message that are kept. Further attachments are only counted, and a line states
their number."""

_DATA = re.compile(r"data:([a-z]+/[a-z0-9.+-]{1,60});base64,", re.IGNORECASE)
_WORDS = frozenset({"text", "thinking", "reasoning", "refusal", "tool_use", "tool_call", "output_text"})
"""Types of content parts that are not attachments. Other code reads these parts."""
_ATTACHED = {"images": "image_url", "annotations": "", "files": "file"}
"""Fields that hold lists of attachments, in a delta or in its `provider_specific_fields`. An item may be only an address.
Field -> the type of such an item; "" if the field has no such items."""
_SOURCES = frozenset({"citations", "citation", "search_results"})
"""Fields that hold the sources of an answer: in a chunk (Perplexity), or in `provider_specific_fields` (Anthropic)."""
_ATTACHMENTS = frozenset({*_ATTACHED, *_SOURCES, "audio"})


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
        by_kind = [("", list(filter(is_attached, content)) if isinstance(content, list) else [])]
        by_kind += [
            (kind, read_list(delta.get(name) or fields.get(name))) for name, kind in _ATTACHED.items()
        ]
        for kind, parts in by_kind:
            for part in parts:
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
        waiting = deque(make_plain(value) for name in sorted(_SOURCES) if (value := fields.get(name)))
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
            transcript = f": {audio['transcript']}" if audio["transcript"] else ""
            media = f"audio/{audio['format']}" if audio["format"] else "application/octet-stream"
            address = f"data:{media};base64,{audio['data']}" if audio["data"] else ""
            self._keep(Attachment("audio", f"audio, {_write_size(audio['data'])}{transcript}", address))
        if self._left_out:
            self._found[Attachment("more", f"{self._left_out} more parts of the answer")] = None

    def all(self) -> tuple[Attachment, ...]:
        """Return all attachments in the order in which they came."""
        return tuple(self._found)

    def list_pictures(self) -> list[str]:
        """Return the addresses of the pictures."""
        return [one.address for one in self._found if one.kind == "picture" and one.address]

    def _keep(self, made: Attachment) -> None:
        made = replace(made, name=shorten(" ".join(made.name.split()), _MOST_NAME))
        if made not in self._found and len(self._found) >= _MOST_ATTACHED:
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
    return Attachment(kind, f"{kind}: {json.dumps(part, ensure_ascii=False, default=repr)[:_MOST_NAME]}")


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
