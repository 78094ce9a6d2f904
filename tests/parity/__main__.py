"""Print the table of deliberate differences in Markdown: `python -m tests.parity`."""

from __future__ import annotations

from tests.parity.differences import table

print(table())
