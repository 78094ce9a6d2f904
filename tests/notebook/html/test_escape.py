"""What is left of foreign HTML."""

from __future__ import annotations

from toolloop_jupyter.notebook.html.escape import clean_html


def test_an_empty_head_is_a_cell():
    """The corner of a table (pandas writes one) is the head of nothing; heads with words stay heads."""
    clean = clean_html(
        '<table><tr><th scope="col" colspan="2"> </th><th></th><th>a</th></tr><tr><th>b</th><td></td></tr></table>'
    )
    assert '<td colspan="2"> </td><td></td><th>a</th>' in clean
    assert "<th>b</th><td></td>" in clean
