"""The table of signatures: schema, typed call and refusal of each, with and without postponed annotations."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from support.tool_table import ROWS, define
from toolloop_jupyter.core.execution import MISSING
from toolloop_jupyter.core.tools.arguments import InvalidArguments
from toolloop_jupyter.core.tools.tool import make_tools


def types_of(value: Any) -> Any:
    """Return the types of a value and of all values inside it: in Python, True == 1 == 1.0."""
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return type(value), [types_of(item) for item in value]
    return type(value)


@pytest.mark.parametrize("postponed", [False, True], ids=["", "postponed"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.signature)
class TestRow:
    def test_the_schema(self, row, postponed):
        """The model gets exactly this schema."""
        (tool,) = make_tools([define(row.signature, postponed=postponed)])
        expected = {
            "type": "object",
            "properties": row.properties,
            **({"required": row.required} if row.required else {}),
            "additionalProperties": False,
            **({"$defs": row.defs} if row.defs else {}),
        }
        assert tool.parameters == expected

    def test_what_it_takes(self, row, postponed):
        """The function gets exactly these values of exactly these types, and the snapshot shows them."""
        (tool,) = make_tools([define(row.signature, postponed=postponed)])
        for sent, expected, *shown in row.takes:
            bound = tool.bind(sent)
            got = bound.run()
            assert got == expected, sent
            assert types_of(got) == types_of(expected), sent
            assert bound.json == (shown[0] if shown else expected), sent

    def test_what_it_refuses(self, row, postponed):
        """The model gets exactly this message."""
        (tool,) = make_tools([define(row.signature, postponed=postponed)])
        for sent, lines in row.refuses:
            with pytest.raises(InvalidArguments) as caught:
                tool.bind(sent)
            head = "invalid arguments, call was not run:"
            assert str(caught.value) == (lines if isinstance(lines, str) else "\n- ".join([head, *lines])), (
                sent
            )

    def test_what_an_edit_starts_from(self, row, postponed):
        """The sent arguments make the same call again. An edit form that changes nothing returns the call itself."""
        (tool,) = make_tools([define(row.signature, postponed=postponed)])
        for sent, expected, *_ in row.takes:
            bound = tool.bind(sent)
            assert bound.edited(bound.json).args is bound.args
            given = {key: one.sent for key, one in bound.arguments.items() if one.sent is not MISSING}
            assert tool.bind(given).run() == expected, sent
            assert tool.bind(given).json == bound.json, sent
            assert bound.changed() == []


def test_the_table_is_long_enough():
    """The table has at least 80 signatures, each with arguments that are accepted."""
    assert len(ROWS) >= 80
    assert all(row.takes for row in ROWS)
