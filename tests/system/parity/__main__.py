"""Print the table of deliberate differences in Markdown: `python -m tests.system.parity`."""

from __future__ import annotations

from tests.system.parity.differences import table

print(table())
