"""The parts of foreign HTML that remain."""

from __future__ import annotations

from toolloop_jupyter.notebook.html.escape import clean_html


def test_an_empty_head_is_a_cell():
    """An empty heading cell (pandas writes one in the corner of a table) becomes an ordinary cell. Headings with words stay
    headings.
    """
    clean = clean_html(
        '<table><tr><th scope="col" colspan="2"> </th><th></th><th>a</th></tr><tr><th>b</th><td></td></tr></table>'
    )
    assert '<td colspan="2"> </td><td></td><th>a</th>' in clean
    assert "<th>b</th><td></td>" in clean
