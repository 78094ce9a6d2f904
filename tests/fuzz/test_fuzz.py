"""The fuzzer: faults that it has found stay fixed, and some inputs at each seam break no invariant."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import strategies as st

from fuzz.corpus import load_corpus, write
from fuzz.invariants import INVARIANTS
from fuzz.seam import KEY, Seam, Seen
from fuzz.seams import SEAMS, find_seam
from fuzz.search import find_fault, search

CORPUS = load_corpus()


@pytest.mark.parametrize("name", CORPUS)
def test_a_found_fault_stays_mended(name):
    """An input that once broke an invariant breaks none now. Its file says which commit has fixed the fault."""
    entry = CORPUS[name]
    fault = find_fault(find_seam(entry["seam"]), entry["input"])
    assert fault is None, fault
    assert entry["mended"]


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: seam.name)
def test_some_inputs(seam):
    """The inputs are the same each time. So if this fails, the code has changed. `python -m tests.fuzz` tries new inputs."""
    report = search(seam, seam.quick, seed=1)
    assert not report.faults, "\n".join(write(fault) for fault in report.faults)


def test_each_seam_is_named_once_and_they_share_all_inputs():
    """The shares add up to 100, and each file of the corpus is for an existing seam."""
    assert sum(seam.share for seam in SEAMS) == 100
    assert len({seam.name for seam in SEAMS}) == len(SEAMS)
    assert {entry["seam"] for entry in CORPUS.values()} <= {seam.name for seam in SEAMS}


BROKEN = {
    "no_exception_leaves": {"escaped": ["KeyError"]},
    "no_call_runs_twice": {"ran": {"f 1": 2}},
    "what_must_run_runs": {"ran": {"f 1": 1}, "must_run": ["f 2"]},
    "only_what_is_allowed_runs": {"ran": {"f 1": 1}, "may_run": set()},
    "history_is_valid": {"histories": [("then", [{"role": "nobody"}])]},
    "texts_can_leave": {"texts": [("a text", KEY)]},
    "everything_reads_back": {"pairs": [("a file", 1, 2)]},
    "growth_is_linear": {"steps": [("squares", 1_000, 64_000, 8.0)]},
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_invariant_sees_what_breaks_it(name):
    """Each invariant reports a case that breaks it, and nothing for an empty case."""
    invariant = next(one for one in INVARIANTS if one.__name__ == name)
    assert not list(invariant(Seen()))
    assert list(invariant(Seen(**BROKEN[name])))


def test_a_fault_is_found_and_made_small():
    """Of all inputs that break an invariant, the smallest is reported, and it can be kept as a file."""

    def run(numbers):
        return Seen(ran=Counter({"f 1": 2 if sum(numbers) > 100 else 1}))

    report = search(Seam("of numbers", "", st.lists(st.integers(0, 1_000)), run, 1), 500, seed=7)
    assert [fault.invariant for fault in report.faults] == ["no_call_runs_twice"]
    assert json.loads(write(report.faults[0]))["input"] == [101]


def test_a_search_is_the_same_for_a_seed():
    """With the same seed, the same inputs are tried."""
    tried = [], []
    for into in tried:
        seam = Seam(
            "of numbers",
            "",
            find_seam("policies").inputs,
            lambda given, into=into: into.append(given) or Seen(),
            1,
        )
        search(seam, 20, 5)
    assert tried[0] == tried[1]
