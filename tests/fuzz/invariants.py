"""What must be true for every input, in one list. The fuzzer has no other way to recognise a fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

from fuzz.seam import KEY, Seen
from toolloop_jupyter.core.conversation.history import validate
from toolloop_jupyter.core.events import Attachment
from toolloop_jupyter.core.session.session import join_shown_text

Invariant = Callable[[Seen], Iterator[str]]


def no_exception_leaves(seen: Seen) -> Iterator[str]:
    """None of our code raises an unexpected exception, and no turn ends with an unexpected error."""
    yield from seen.escaped


def no_call_runs_twice(seen: Seen) -> Iterator[str]:
    """A call that was sent once runs at most once, however it was delivered."""
    yield from (f"{call!r} ran {count} times" for call, count in seen.ran.items() if count > 1)


def what_must_run_runs(seen: Seen) -> Iterator[str]:
    """If the input determines the calls, exactly these calls run."""
    if seen.must_run is not None and Counter(seen.must_run) != Counter(seen.ran):
        yield f"ran: {sorted(Counter(seen.ran).elements())}, not {sorted(seen.must_run)}"


def only_what_is_allowed_runs(seen: Seen) -> Iterator[str]:
    """A call runs only if the policy or a person has allowed it. A denied call never runs."""
    if seen.may_run is not None:
        yield from (
            f"{call!r} ran, and nobody has allowed it" for call in seen.ran if call not in seen.may_run
        )
    yield from (f"{call!r} ran, though it is denied" for call in seen.ran if call in seen.must_not_run)


def history_is_valid(seen: Seen) -> Iterator[str]:
    """The history and each request are valid at every moment. Each is JSON that can be encoded."""
    for when, messages in seen.histories:
        for problem in validate(messages)[:1]:
            yield f"{when}: {problem}"
        try:
            json.dumps(list(messages), allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            yield f"{when}: no JSON: {error}"


def each_call_has_one_result(seen: Seen) -> Iterator[str]:
    """There are as many results as calls, in the same order, each with the id of its call. Each is a text that can be sent."""
    for result in seen.results:
        called, answered = [call.id for call in result.calls], [one.id for one in result.tool_results]
        if called != answered:
            yield f"calls {called} have results {answered}"
        for one in result.tool_results:
            if type(one.output) is not str or not one.output:
                yield f"a result of {type(one.output).__name__} {one.output!r}"
            if one.is_error != (one.status != "done"):
                yield f"is_error={one.is_error} and status {one.status!r}"


def what_is_shown_is_kept(seen: Seen) -> Iterator[str]:
    """The text of a whole turn that a reader has seen is the text in the history.

    If an answer has no text, the history has a line in brackets for each other part.
    """
    for result, (when, messages) in zip(seen.results, seen.kept_turns, strict=False):
        shown = "".join(join_shown_text(result.events).split())
        beside = {f"[{event.name}]" for event in result.events if isinstance(event, Attachment)}
        texts = [str(m["content"]) for m in messages if m["role"] == "assistant" and m["content"]]
        kept = "".join("".join(text.split()) for text in texts if not beside.issuperset(text.split("\n")))
        if shown != kept:
            yield f"{when}: shown {shown!r}, kept {kept!r}"


def texts_can_leave(seen: Seen) -> Iterator[str]:
    """Every text that leaves the package can be encoded, and contains no key."""
    for what, text in seen.texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            yield f"{what}: {error}"
        if KEY in text:
            yield f"{what} holds the key: {text!r:.300}"


def everything_reads_back(seen: Seen) -> Iterator[str]:
    """Written data is read back unchanged. If something is done twice, the second time changes nothing."""
    yield from (
        f"{what}: {got!r:.400}, not {right!r:.400}" for what, got, right in seen.pairs if got != right
    )


def growth_is_linear(seen: Seen) -> Iterator[str]:
    """For so many times the data, there are at most one and a half times so many times the steps."""
    for what, few, many, times in seen.steps:
        if many > 1.5 * times * few + 2_000:
            yield f"{what}: {few:,} steps, and {many:,} for {times:g} times as much"


INVARIANTS: tuple[Invariant, ...] = (
    no_exception_leaves,
    no_call_runs_twice,
    only_what_is_allowed_runs,
    history_is_valid,
    what_must_run_runs,
    each_call_has_one_result,
    what_is_shown_is_kept,
    texts_can_leave,
    everything_reads_back,
    growth_is_linear,
)
