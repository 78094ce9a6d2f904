"""JSON data that cannot be changed any more: what a person was shown is what runs and what stays in the record.

Still dicts and lists for everybody who reads them (`json.dumps`, `==`, `isinstance`); a write raises and says how the
call is run with other arguments. `copy.deepcopy`, pickle and `thawed` give plain data that can be changed.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

_ADVICE = (
    "this is what was shown and what will run, so it cannot be changed; to run the call with other arguments: "
    "approval.allow({**approval.input, NAME: VALUE})"
)


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(_ADVICE)


class _FixedDict(dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _FixedList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = extend = insert = _refuse
    pop = remove = clear = sort = reverse = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def frozen(value: Any) -> Any:
    """A copy of JSON data whose dicts and lists, at every depth, refuse to be changed."""
    if isinstance(value, dict):
        return _FixedDict((key, frozen(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return _FixedList(frozen(item) for item in value)
    return value


def thawed(value: Any) -> Any:
    """A plain copy of JSON data, frozen or not: changing it changes nothing else."""
    if isinstance(value, dict):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thawed(item) for item in value]
    return value


def same_json(one: object, other: object) -> bool:
    """Whether two values are the same JSON (Python takes 1, 1.0 and true for equal)."""
    first, second = (json.dumps(value, sort_keys=True, default=repr) for value in (one, other))
    return first == second
