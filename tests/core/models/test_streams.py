"""The corpus of stream scripts, each through litellm's HTTP client against a server that plays it.

`python -m tests.core.models.streams [part of a name]`, from the repository, prints the corpus and its results as a table.
"""

from __future__ import annotations

import pytest

from core.models.streams.case import run_case
from core.models.streams.corpus import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_case(case):
    """The messages, the events, the history, the tool runs and the next turn are exactly as the case states."""
    outcome = await run_case(case)
    assert not outcome.wrong


def test_the_corpus_is_large_and_its_names_are_its_own():
    """There are at least 60 cases, and each has another name."""
    names = [case.name for case in CASES]
    assert len(names) >= 60
    assert len(set(names)) == len(names)
