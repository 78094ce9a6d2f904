"""What a person made of a call's shown arguments -> JSON to validate, and whether the outcome is what they did.

What is shown of a call is not always what makes it: a secret is a note of its length, a `Json` text is what it holds.
So an edit starts from what the model sent, with only the parts replaced that the person has touched. All three are
JSON of one shape: `edited` (from the person), `shown` (what they had before them), `again` (what makes that again).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from .complaints import InvalidArguments, path_text, shortened
from .foreign import Raised, attempt
from .frozen import same_json, thawed
from .telling import ABSENT, NOTE

_Path = tuple["int | str", ...]


def candidates(
    edited: Mapping[str, Any], shown: Mapping[str, Any], again: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The arguments to validate: the call's own with the edits, then the edited ones as they stand.

    The second is for validators that do not give twice the same for what was sent, or that put it into another order.
    Raises InvalidArguments for the note of a secret in another's place.
    """
    first = _merged(edited, shown, again)
    yield first
    second = {
        key: value if key not in shown or not same_json(value, shown[key]) else first.get(key, ABSENT)
        for key, value in edited.items()
    }
    second = {key: value for key, value in second.items() if value is not ABSENT}
    if not same_json(first, second) and not any(map(_has_note, second.values())):
        yield second


def _merged(edited: Any, shown: Any, again: Any) -> Any:
    if shown is not ABSENT and same_json(edited, shown):
        return again
    if isinstance(again, str) and isinstance(edited, (dict, list)) and not isinstance(shown, str):
        inner = attempt(json.loads, again)
        return edited if isinstance(inner, Raised) else json.dumps(_merged(edited, shown, inner))
    if isinstance(edited, Mapping) and isinstance(shown, Mapping) and isinstance(again, Mapping):
        parts = {
            key: _merged(value, shown.get(key, ABSENT), again.get(key, ABSENT))
            for key, value in edited.items()
        }
        unseen = {key: value for key, value in again.items() if key not in shown}
        return {key: value for key, value in {**unseen, **parts}.items() if value is not ABSENT}
    lists = isinstance(edited, list) and isinstance(shown, list) and isinstance(again, list)
    # A set, or what a validator has built: its items are known as they are shown, so a secret of it is not known.
    if lists and len(shown) == len(again) and not (_has_note(edited) and same_json(shown, again)):
        places = _places(edited, shown)
        return [
            _merged(item, *((ABSENT, ABSENT) if at is None else (shown[at], again[at])))
            for item, at in zip(edited, places, strict=True)
        ]
    if _has_note(edited):
        raise InvalidArguments(
            f"{shortened(edited)}: this stands for a hidden value, and which one is not certain here; "
            "type it anew, or leave what stands beside it as it was"
        )
    return edited


def _places(edited: list[Any], shown: list[Any]) -> list[int | None]:
    """Which item each item of an edited list was; None for what is new, or could be one of several.

    An item that is there once before and after is the same one, wherever it stands; so is one that has only got new
    secrets. What is left is taken by its index, in a list of the same length or in one that was only appended to: but an
    item with a secret only where nothing else of it has changed, so that no secret goes to what has taken another's place.
    """
    now, before = (
        [json.dumps(item, sort_keys=True, default=repr) for item in items] for items in (edited, shown)
    )
    seen, again, stood = Counter(before), Counter(now), {item: index for index, item in enumerate(before)}
    places = [stood[item] if seen[item] == again[item] == 1 else None for item in now]
    _place_new_secrets(places, edited, shown)
    if len(now) != len(before) and now[: len(before)] != before:
        return places
    taken = set(places)
    for index, was in enumerate(shown):
        if places[index] is None and index not in taken:
            item = edited[index]
            # A list of one has no other's secrets.
            if len(shown) == 1 or not _has_note(item) or _same_but_secrets(item, was):
                places[index] = index
    return places


def _place_new_secrets(places: list[int | None], edited: list[Any], shown: list[Any]) -> None:
    taken = set(places)
    free = [at for at, was in enumerate(shown) if at not in taken and _has_note(was)]
    if not free:
        return
    left = [index for index, at in enumerate(places) if at is None]
    pairs = [(index, at) for index in left for at in free if _same_but_secrets(edited[index], shown[at])]
    once, of_once = Counter(index for index, _ in pairs), Counter(at for _, at in pairs)
    for index, at in pairs:
        if once[index] == of_once[at] == 1:
            places[index] = at


def _same_but_secrets(edited: Any, shown: Any) -> bool:
    if isinstance(shown, str) and NOTE.fullmatch(shown):
        return True
    if isinstance(edited, Mapping) and isinstance(shown, Mapping):
        return edited.keys() == shown.keys() and all(
            _same_but_secrets(edited[key], shown[key]) for key in shown
        )
    if isinstance(edited, list) and isinstance(shown, list) and len(edited) == len(shown):
        return all(map(_same_but_secrets, edited, shown))
    return same_json(edited, shown)


def _has_note(value: Any) -> bool:
    if isinstance(value, str):
        return NOTE.fullmatch(value) is not None
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(_has_note, items))


def _touched(edited: Any, shown: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """(where the person changed or added something, what was shown of it before).

    What they took away is not there to be looked at.
    """
    if shown is not ABSENT and same_json(edited, shown):
        return
    if isinstance(edited, Mapping) and isinstance(shown, Mapping):
        for key, value in edited.items():
            yield from _touched(value, shown.get(key, ABSENT), (*path, key))
    elif isinstance(edited, list) and isinstance(shown, list) and len(edited) == len(shown):
        for index, (value, at) in enumerate(zip(edited, _places(edited, shown), strict=True)):
            yield from _touched(value, ABSENT if at is None else shown[at], (*path, index))
    else:
        yield path, shown


def _at(value: Any, path: _Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return ABSENT
    return value


def with_marks(
    made: Mapping[str, Any], edited: Mapping[str, Any], shown: Mapping[str, Any]
) -> dict[str, Any]:
    """The new call's JSON with a mark at each secret that was edited: it may be as long as the old one."""
    marked: dict[str, Any] = thawed(made)
    for path, before in _touched(edited, shown):
        now, holder = _at(marked, path), _at(marked, path[:-1])
        if all(isinstance(text, str) and NOTE.fullmatch(text) for text in (before, now)):
            holder[path[-1]] = f"{now} (edited)"
    return marked


def unheeded(
    made: Mapping[str, Any], edited: Mapping[str, Any], shown: Mapping[str, Any]
) -> tuple[str, bool]:
    """Where an edit has changed nothing, and whether that is wrong: the new call is still as the old one was shown.

    It is not where the edit is read as what was there (`" a"` for "a"), nor mentioned for an equal number (1.0 for 1).
    It is wrong in a field of an object: that may not be read under this name. ("", False) if there is no such place.
    """
    said = ""
    for path, before in _touched(edited, shown):
        value = _at(edited, path)
        if before is ABSENT or value == before or not same_json(_at(made, path), before):
            continue
        said = (
            said
            or f"{path_text(path)}: {shortened(value)} would change nothing, it stays {shortened(before)}"
        )
        if len(path) > 1 and isinstance(path[-1], str):
            return said, True
    return said, False


def spoilt(made: Any, edited: Any, shown: Any) -> bool:
    """Whether something has changed that the person has not touched."""
    if same_json(edited, shown):
        return not same_json(made, shown)
    if all(isinstance(one, Mapping) for one in (made, edited, shown)):
        return any(spoilt(made.get(key, ABSENT), edited[key], shown[key]) for key in edited if key in shown)
    if all(isinstance(one, list) for one in (made, edited, shown)) and len(made) == len(edited) == len(shown):
        places = _places(edited, shown)
        return any(
            spoilt(made[index], edited[index], shown[at]) for index, at in enumerate(places) if at is not None
        )
    return False
