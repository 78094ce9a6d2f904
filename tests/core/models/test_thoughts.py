"""Thoughts between tags: a stream gives the same text and thought that LiteLLM reads in the whole response, wherever it is
cut.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from litellm.litellm_core_utils.prompt_templates.reasoning_utils import parse_content_for_reasoning

from toolloop_jupyter.core.models.assembly import Assembly

TEXTS = (
    "<think>\nplan\n</think>\n\nThe answer is 3.",
    "<thinking>a < b </thinkin</think> c</thinking>",
    "<budget:thinking>x</budget:thinking>y",
    "<think></think>y",
    "<think>never closed </think",
    "<think",
    "<thinker>x</think>y",
    "<this>",
    " <think>x</think>y",
    "a<think>x</think>y",
    "<think>x</think><think>y</think>z",
    "<<think>x</think>",
    "",
)
PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<thinking>",
        "</thinking>",
        "<",
        "/",
        "</",
        "th",
        "thi",
        "ink",
        ">",
        "\n",
        "a 😀",
    ]
)


def check(pieces):
    """Check that these pieces give what LiteLLM reads in the whole text, and that every part is shown exactly once."""
    text = "".join(pieces)
    reasoning, content = parse_content_for_reasoning(text)
    assembly = Assembly()
    shown = [assembly.add({"content": piece}) for piece in pieces]
    rest, _ = assembly.end()
    message = assembly.message()
    assert (message["content"], message.get("reasoning_content", "")) == (content, reasoning or "")
    assert "".join(t for t, _ in shown) + rest == content
    if reasoning:
        assert "".join(r for _, r in shown) == reasoning


@pytest.mark.parametrize("text", TEXTS)
def test_two_cuts_anywhere_change_nothing(text):
    """A text that is cut at any two places, even inside the tags, is read like the whole text."""
    for a, b in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        check([text[:a], text[a:b], text[b:]])
    check(list(text))


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=12))
def test_any_pieces_are_read_as_the_whole_is(pieces):
    """Whatever tags and parts of tags an answer has, its stream gives the same text and thought as the whole response."""
    check(pieces)


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["<think>pl", "an", "</thi", "nk>", "3"], [("", "pl"), ("", "an"), ("", ""), ("", ""), ("3", "")]),
        (["<think>a <", " b"], [("", "a "), ("", "< b")]),
        (["<th", "x", "<think>"], [("", ""), ("<thx", ""), ("<think>", "")]),
    ],
)
def test_only_what_may_be_a_tag_waits(pieces, shown):
    """A piece is shown at once. Only its end is held back, if a tag may begin there."""
    assembly = Assembly()
    assert [assembly.add({"content": piece}) for piece in pieces] == shown


@pytest.mark.parametrize(("piece", "at_the_cut"), [("<thi", ("<thi", "")), ("<think>a</th", ("", "</th"))])
def test_a_cut_shows_what_was_held_back(piece, at_the_cut):
    """If a stream breaks off inside a tag, the text that was held back is shown once, as text or as thought."""
    assembly = Assembly()
    assembly.add({"content": piece})
    assert assembly.text == ""
    assert assembly.end(is_cut=True) == at_the_cut
    assert assembly.text == at_the_cut[0]
    assert assembly.end(is_cut=True) == ("", "")
