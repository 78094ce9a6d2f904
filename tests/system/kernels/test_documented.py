"""The example of LiteLLM's documentation in a notebook: only the import line is different."""

from __future__ import annotations

import textwrap

from support.documented import DOCUMENTED
from support.servers import answer, calls


def test_documentation_example_in_a_cell(serve, product):
    """The example works in a cell, with its sync calls, on each supported stack. The next cell runs, too."""
    script = [
        calls(("search_code", {"query": "TODO"}), ("read_file", {"path": "app.py"})),
        answer('{"summary": "One bug.", "bugs": ["main does nothing"]}'),
    ]
    server = serve(script)
    code = textwrap.dedent(DOCUMENTED).format(
        imports="from toolloop_jupyter import agent, Harness, sandbox", base=server.base_url
    )
    cell, after = product.run_all(code, "print(result.text)", timeout=180)
    assert (cell.status, cell.error) == ("ok", None)
    assert cell.stdout.splitlines()[-1] == "Review ['main does nothing'] done 2"
    assert "One bug." in after.stdout
