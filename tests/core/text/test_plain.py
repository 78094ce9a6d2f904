"""Printed text becomes what a terminal would show."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolloop_jupyter.core.text.plain import join_surrogates, settle_lines


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ("plain\ntext\n", "plain\ntext\n"),
        ("10%\r20%\rdone", "done"),
        ("100%\rab", "ab"),
        ("10%\r20%\r", "20%"),
        ("1/3\r2/3\r3/3\nend\n", "3/3\nend\n"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("bar 1\r\r\nnext", "bar 1\nnext"),
        ("ab\b\bx", "abx"),
        ("long line\r\x1b[Kshort", "short"),
        ("long line\x1b[2K\rshort", "short"),
        ("one\x1b[A\ntwo", "one\ntwo"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[999999999Ax", "x"),
        ("", ""),
    ],
)
def test_settled(printed, seen):
    """If a line was rewritten, its last state stays. Moves of the cursor are left out, and everything else stays."""
    assert settle_lines(printed) == seen


@given(st.text(alphabet="ab\n €\t"))
def test_text_without_movement_is_unchanged(text):
    """Text that does not move the cursor is not changed."""
    assert settle_lines(text) is text


@given(st.text(alphabet="ab\r\n\b\x1b[2AKJB1"))
def test_any_text_settles(text):
    """Any printed text becomes text without carriage returns. Doing this again changes nothing."""
    once = settle_lines(text)
    assert "\r" not in once
    assert "\b" not in once


def test_long_bars_are_quick():
    """For a progress bar with 100,000 states, this takes so little time that a person does not notice it."""
    began = time.process_time()
    assert settle_lines("".join(f"\r{n}/100000" for n in range(100_000))) == "99999/100000"
    assert time.process_time() - began < 3


@given(st.text(st.sampled_from("a\u00e9\U0001f600\ud83d\ude00\udbff\udc00"), max_size=12))
def test_halves_of_characters_are_joined_or_replaced(text):
    """Two halves of a surrogate pair become their character. A single half becomes a replacement character, as in Python's
    codecs.
    """
    assert join_surrogates(text) == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
