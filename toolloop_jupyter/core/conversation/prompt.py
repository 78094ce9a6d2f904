"""The content of a user message: a text, or the parts of OpenAI's chat API, which LiteLLM converts for each provider. No web
address is ever fetched.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias

from ..events import ArgumentInvalid, Attachment
from ..execution import Raised, attempt_call, describe_error
from ..results import (
    MOST_EACH,
    decode_picture,
    describe,
    detect_format,
    draw_picture,
    find_figure,
    find_pictures,
    is_drawable,
    make_address,
    make_thumbnail,
    measure_picture,
)
from ..text import is_deeper, join_surrogates, join_surrogates_in, make_text_plain

Part: TypeAlias = dict[str, Any]
Need: TypeAlias = Literal["pictures", "PDF files", "sound"]
"""A kind of content that not every model takes."""
NameCode: TypeAlias = Callable[[str], str]
"""A function that takes a traceback. It returns the traceback with the name of each cell in place of the file name that the
kernel gave to the cell."""

MOST_FILE = 20_000_000
"""The largest number of bytes that one file may have."""
_NEEDS: Mapping[str, Need] = {"image_url": "pictures", "file": "PDF files", "input_audio": "sound"}
_PARTS: Mapping[str, Part] = {
    "text": {"text": "Hello"},
    "image_url": {"image_url": {"url": "data:image/png;base64,…"}},
    "file": {"file": {"filename": "report.pdf", "file_data": "data:application/pdf;base64,…"}},
    "input_audio": {"input_audio": {"data": "…", "format": "wav"}},
}
"""Type of a content part -> an example of the part's other fields."""
_EMPTY = "the prompt is empty: say what the model should do"


@dataclass(frozen=True)
class Named:
    """A value, and the name that a person has typed for this value."""

    name: str
    value: object


@dataclass(frozen=True)
class Template:
    """A text that contains values."""

    pieces: tuple[str | Named, ...]


@dataclass(frozen=True)
class Prompt:
    """A prompt that is ready to be sent."""

    content: str | list[Part]
    """The content of the user message."""
    text: str
    """The prompt as text, for people. The name of a picture or file stands in brackets."""
    attached: tuple[Attachment, ...] = ()
    """The pictures, files and sounds of the prompt, for the transcript."""
    filled: tuple[str, ...] = ()
    """A line for each value that is sent as text: its name and its length."""

    @property
    def needs(self) -> list[Need]:
        """The kinds of content in this prompt other than text, each kind once. The model must accept each kind."""
        kinds = map(_get_kind, self.content) if isinstance(self.content, list) else ()
        return list(dict.fromkeys(_NEEDS[kind] for kind in kinds if kind in _NEEDS))


def _get_kind(part: Mapping[str, object]) -> str:
    """Return the `type` of a content part. Return "" if `type` is not a str: a person may have written the part."""
    kind = part.get("type")
    return kind if isinstance(kind, str) else ""


def read_prompt(given: object, name_code: NameCode = lambda code: code) -> Prompt:
    """Make a Prompt from a text, or from a list of texts, pictures, paths, content parts and other values.

    Figures are drawn and files are read here, once. Raises ArgumentInvalid for an empty prompt, for a file that is missing, too
    large or of an unknown kind, and for a value that cannot be written as text.
    """
    if isinstance(given, Prompt):
        return given
    if isinstance(given, str):
        text = join_surrogates(given)
        if not text.strip():
            raise ArgumentInvalid(_EMPTY)
        return Prompt(text, text)
    if given is not None and not isinstance(given, (list, tuple)):
        kind = type(given).__name__
        raise ArgumentInvalid(
            f"a prompt is a text, or a list of texts, pictures, paths and other values, not {kind}: write [text, value]"
        )
    writer = _Writer(name_code)
    for number, item in enumerate(given or (), 1):
        written = attempt_call(writer.add, item)  # the item's own code may raise an error
        if not isinstance(written, Raised):
            continue
        if isinstance(written.error, ArgumentInvalid):
            raise written.error
        why = describe_error(written.error, 300)
        raise ArgumentInvalid(f"item {number} of the prompt cannot be read: {why}") from None
    if not writer.parts:
        raise ArgumentInvalid(_EMPTY)
    text = "\n\n".join(writer.words)
    is_text = all(part["type"] == "text" and len(part) == 2 for part in writer.parts)
    content = text if is_text else writer.parts
    return Prompt(content, text, tuple(writer.attached), tuple(writer.filled))


@dataclass
class _Writer:
    """Writes the parts of a prompt, in order."""

    name_code: NameCode
    parts: list[Part] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """The text of each finished item. The items are joined to `Prompt.text`."""
    attached: list[Attachment] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    """Pieces of text. They are joined to one text, which becomes the next part."""
    _words: list[str] = field(default_factory=list)

    def add(self, item: object) -> None:
        """Write one item of the prompt. No part contains text of two items."""
        given: Any = item
        if type(item) is Template:  # `isinstance` would ask `__class__`, which may raise
            for piece in given.pieces:
                self._add_text(piece) if isinstance(piece, str) else self._add_value(piece, is_inside=True)
        else:
            self._attach(given if type(item) is Named else Named("", given))
        self._end_text()
        if (words := "".join(self._words)).strip():
            self.words.append(words)
        self._words.clear()

    def _add_text(self, text: str) -> None:
        text = join_surrogates(str.__str__(text))
        self._text.append(text)
        self._words.append(text)

    def _add_named_text(self, name: str, text: str, *, has_frame: bool = True) -> None:
        """Write a text. If `has_frame` is True and `name` is not "", a line before and a line after the text have the name."""
        self._add_text(f"[{name}]\n{text.rstrip()}\n[end of {name}]" if name and has_frame else text)
        self.filled += [f"{name}: {len(text):,} characters"] if name else []

    def _end_text(self) -> None:
        if (text := "".join(self._text)).strip():  # Anthropic refuses an empty part
            self.parts.append({"type": "text", "text": text})
        self._text.clear()

    def _add_part(self, part: Part, kind: str, name: str, address: str = "") -> None:
        self._end_text()
        self.parts.append(part)
        self.attached.append(Attachment(kind, name, address, is_sent=True))
        self._words.append(f"[{name}]")

    def _attach(self, named: Named) -> None:
        """Write a value that is a whole item of the prompt."""
        value: Any = named.value
        kind = type(value)  # `isinstance` would ask `__class__`, which may raise
        if issubclass(kind, str):
            self._add_text(value)
        elif issubclass(kind, PurePath):
            self._add_file(_read_file(Path(value)), _make_plain(named.name or value.name))
        elif issubclass(kind, (bytes, bytearray)) and _detect_kind(bytes(value)) not in ("", "text"):
            self._add_file(bytes(value), named.name)
        elif issubclass(kind, dict) and _get_kind(value) in _PARTS:
            self._add_given(_read_part(value), named.name)
        else:
            self._add_value(named, is_inside=False)

    def _add_value(self, named: Named, *, is_inside: bool) -> None:
        """Write a value as a picture, else as text and the pictures in it. `is_inside`: True for `{{name}}` in a text."""
        value, name = named.value, named.name
        if self._draw(value, name):
            return
        self._add_named_text(name, tell_text(named, self.name_code), has_frame=not is_inside)
        if issubclass(type(value), (list, tuple, dict)):
            for one in find_pictures(value)[:MOST_EACH]:
                if data := draw_picture(one):
                    self._add_picture(data, name)

    def _draw(self, value: object, name: str) -> bool:
        """Add an image of `value` and return True. If no image can be made, return False, so that the value is sent as text.

        Raises ArgumentInvalid if text would be useless: for a picture, a figure, or an object whose text only names its type.
        """
        if attempt_call(is_drawable, value) is not True:
            return False
        if data := draw_picture(value):
            self._add_picture(data, name)
            return True
        what = name or "a picture of the prompt"
        if issubclass(type(value), (bytes, bytearray)):
            size = measure_picture(bytes(value))  # type: ignore[call-overload]  # they are bytes
            raise ArgumentInvalid(
                f"{what} ({size}) cannot be drawn as a picture: it is broken, or too large to be made smaller; use another picture"
            )
        names_type_only = describe(value).text.startswith("<")
        if names_type_only or find_figure(value) is not None:
            raise ArgumentInvalid(
                f"{what} cannot be drawn as a picture. If it has only a web address, load the picture first"
            )
        return False

    def _add_picture(self, data: bytes, name: str) -> None:
        part = {"type": "image_url", "image_url": {"url": make_address(data)}}
        self._add_part(part, "picture", _name(name, measure_picture(data)), make_thumbnail(data))

    def _add_file(self, data: bytes, name: str) -> None:
        """Write a file as a picture, a PDF, a sound or a text. The file's content, not its name, decides."""
        kind, encoded = _detect_kind(data), base64.b64encode(data).decode
        size = f"{len(data) / 1000:,.0f} kB"
        if len(data) > MOST_FILE:
            raise ArgumentInvalid(_explain_size(name or "a file of the prompt", len(data)))
        if kind == "picture":
            self._draw(data, name)
        elif kind == "pdf":
            address = f"data:application/pdf;base64,{encoded()}"
            file = {"filename": name or "document.pdf", "file_data": address}
            self._add_part({"type": "file", "file": file}, "file", _name(name, f"PDF, {size}"))
        elif kind in ("wav", "mp3"):
            sound = {"data": encoded(), "format": kind}
            part = {"type": "input_audio", "input_audio": sound}
            self._add_part(part, "audio", _name(name, f"{kind} sound, {size}"))
        elif kind == "text":
            self._add_named_text(name, data.decode("utf-8-sig"))
        else:
            raise ArgumentInvalid(
                f"{name} cannot be sent: a prompt takes a picture, a PDF, a sound (wav, mp3) or a text in UTF-8"
            )

    def _add_given(self, part: Part, name: str) -> None:
        """Write a content part that a person wrote."""
        if part["type"] == "text":
            self._add_text(part["text"])
            if len(part) > 2 and part["text"].strip():  # fields that the person added (cache_control)
                self.parts.append(part)
                self._text.clear()
            return
        inside: Any = part.get(part["type"])
        address = inside.get("url") if isinstance(inside, Mapping) else inside
        kind = {"image_url": "picture", "file": "file"}.get(part["type"], "audio")
        thumbnail = ""
        if kind == "picture" and isinstance(address, str) and address.startswith("data:image/"):
            if data := decode_picture(address.partition(",")[2]):
                name, thumbnail = _name(name, measure_picture(data)), make_thumbnail(data)
        elif kind == "file" and isinstance(inside, Mapping):
            name = name or _make_plain(str(inside.get("filename") or ""))
        self._add_part(part, kind, name or kind, thumbnail)


def tell_text(named: Named, name_code: NameCode = lambda code: code) -> str:
    """Return the text of a value in a prompt. A str is not changed; any other value is described like the result of a tool.

    Raises ArgumentInvalid if the value's own code raises an error.
    """
    if issubclass(type(named.value), str):  # `isinstance` would ask `__class__`, which may raise
        return str.__str__(named.value)
    described = describe(named.value, name_code=name_code)
    made = attempt_call(str, named.value) if described.fault else ""
    if isinstance(made, Raised):
        name = named.name or "value"
        why = f"str({name}) raised {type(made.error).__name__}; use a variable that contains a text instead"
        where = f"{{{{{name}}}}}" if named.name else f"a {type(named.value).__name__} in the prompt"
        raise ArgumentInvalid(f"{where} cannot be filled in: {why}")
    return described.text


def _name(name: str, what: str) -> str:
    return f"{name}: {what}" if name else what


def _make_plain(name: str) -> str:
    """Return a file's name as one line of plain text."""
    return " ".join(make_text_plain(name).split())


def _read_part(given: Mapping[str, object]) -> Part:
    """Return a copy of a content part that a person wrote. Raises ArgumentInvalid if a field is missing or is not JSON data."""
    kind = _get_kind(given)
    written = attempt_call(lambda: json.dumps(given, allow_nan=False))
    part = json.loads(written) if isinstance(written, str) and not is_deeper(given) else {}
    inside = part.get(kind)
    if isinstance(inside, dict) and kind != "text":
        wanted = {"image_url": ("url",), "file": ("file_data", "file_id"), "input_audio": ("data",)}[kind]
        inside = next((inside[name] for name in wanted if inside.get(name)), None)
    elif kind not in ("text", "image_url"):
        inside = None
    if not isinstance(inside, str):
        example = json.dumps({"type": kind, **_PARTS[kind]}, ensure_ascii=False)
        raise ArgumentInvalid(
            f"a part of the prompt with the type {kind!r} is JSON data such as {example}; to send a dict as text, use str(value)"
        )
    return join_surrogates_in(part)  # type: ignore[no-any-return]  # a dict, because `part` is one


def _read_file(path: Path) -> bytes:
    """Return the bytes of a file. Raises ArgumentInvalid for a file that cannot be read or is too large."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if path.is_file() and size <= MOST_FILE else None
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        why = getattr(error, "strerror", None) or error
        raise ArgumentInvalid(f"cannot read the file {str(path)!r}: {why}") from None
    if data is None:
        raise ArgumentInvalid(
            _explain_size(path.name, size) if path.is_file() else f"{str(path)!r} is not a file"
        )
    return data


def _explain_size(name: str, size: int) -> str:
    return f"{name} has {size / 1_000_000:,.1f} MB; a file of a prompt may have at most {MOST_FILE // 1_000_000} MB"


_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters that a text file does not have. Escape is allowed: the codes for colours in a terminal begin with it."""


def _detect_kind(data: bytes) -> Literal["picture", "pdf", "wav", "mp3", "text", ""]:
    """Return the kind of a file with this content: "text" for UTF-8 text, "" for an unknown kind."""
    if detect_format(data):
        return "picture"
    if data[:1024].lstrip()[:5] == b"%PDF-":
        return "pdf"
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    # An MP3 frame begins with eleven bits that are 1 and two bits for the version. The next two bits are 01: layer III.
    if data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] and data[1] & 0xE6 == 0xE2):
        return "mp3"
    text = attempt_call(data.decode, "utf-8-sig")
    return "" if isinstance(text, Raised) or _CONTROLS.search(text) else "text"


# --- prompts among the messages of a request or a saved conversation -----------------------------------------------


def leave_out_parts(content: object, line: str) -> object:
    """Replace each picture, file or sound of a message by `line`. "{}" in `line` becomes "picture", "file" or "sound"."""
    if not isinstance(content, list):
        return content
    words = {"image_url": "picture", "file": "file", "input_audio": "sound"}
    return [
        {"type": "text", "text": line.format(words[kind])} if (kind := _get_kind(part)) in words else part
        for part in content
    ]


def join_text(content: object) -> str:
    """Return a message's content as text: the content itself, or the joined texts of its parts."""
    if isinstance(content, str):
        return content
    parts: Iterable[object] = content if isinstance(content, Sequence) else ()
    texts = (part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text")
    return "\n".join(str(text) for text in texts if text)
