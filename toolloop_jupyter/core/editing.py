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
    if lists and len(shown) == len(again):
        places = _places(edited, shown)
        return [
            _merged(item, *((ABSENT, ABSENT) if at is None else (shown[at], again[at])))
            for item, at in zip(edited, places, strict=True)
        ]
    if _has_note(edited):
        raise InvalidArguments(
            f"{shortened(edited)}: this stands for a value that is hidden, it is none; type it anew, or leave it as it was"
        )
    return edited


def _places(edited: list[Any], shown: list[Any]) -> list[int | None]:
    """Which item each item of an edited list was; None for what is new, or could be one of several."""
    if len(edited) == len(shown):
        return list(range(len(shown)))
    now, before = (
        [json.dumps(item, sort_keys=True, default=repr) for item in items] for items in (edited, shown)
    )
    if now[: len(before)] == before:
        return [*range(len(before)), *([None] * (len(now) - len(before)))]
    seen, again = Counter(before), Counter(now)
    return [before.index(item) if seen[item] == again[item] == 1 else None for item in now]


def _has_note(value: Any) -> bool:
    if isinstance(value, str):
        return NOTE.fullmatch(value) is not None
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(_has_note, items))


def _touched(edited: Any, shown: Any, path: _Path = ()) -> Iterator[_Path]:
    """Where the person changed or added something; what they took away is not there to be looked at."""
    if shown is not ABSENT and same_json(edited, shown):
        return
    if isinstance(edited, Mapping) and isinstance(shown, Mapping):
        for key, value in edited.items():
            yield from _touched(value, shown.get(key, ABSENT), (*path, key))
    elif isinstance(edited, list) and isinstance(shown, list) and len(edited) == len(shown):
        for index, value in enumerate(edited):
            yield from _touched(value, shown[index], (*path, index))
    else:
        yield path


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
    for path in _touched(edited, shown):
        before, now, holder = _at(shown, path), _at(marked, path), _at(marked, path[:-1])
        if all(isinstance(text, str) and NOTE.fullmatch(text) for text in (before, now)):
            holder[path[-1]] = f"{now} (edited)"
    return marked


def unheeded(made: Mapping[str, Any], edited: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    """Where an edit has changed nothing: the new call is still as the old one was shown. "" if there is no such place."""
    for path in _touched(edited, shown):
        value, before = _at(edited, path), _at(shown, path)
        if before is not ABSENT and same_json(_at(made, path), before):
            return f"{path_text(path)}: {shortened(value)} would change nothing, it stays {shortened(before)}"
    return ""


def spoilt(made: Any, edited: Any, shown: Any) -> bool:
    """Whether something has changed that the person has not touched."""
    if same_json(edited, shown):
        return not same_json(made, shown)
    if all(isinstance(one, Mapping) for one in (made, edited, shown)):
        return any(spoilt(made.get(key, ABSENT), edited[key], shown[key]) for key in edited if key in shown)
    if all(isinstance(one, list) for one in (made, edited, shown)) and len(made) == len(edited) == len(shown):
        return any(map(spoilt, made, edited, shown))
    return False
