"""Prepares texts that leave a run: removes control characters, hides API keys, limits lengths, writes times and files."""

from .bounds import (
    DEEPEST,
    LONGEST_ARGUMENTS,
    LONGEST_ID,
    LONGEST_NAME,
    MOST_CALLS,
    MOST_VALUES,
    TooManyCalls,
    count_same,
    is_deeper,
    list_some,
)
from .files import write_whole
from .keys import (
    HIDDEN,
    KeyFilter,
    find_environment_keys,
    find_keys,
    hide,
    hide_in,
    hide_in_repr,
    hide_suspected,
    holds_key,
    leave_out_user,
    names_key,
    remember,
)
from .plain import (
    CONTROL,
    HIDING,
    NOT_PLAIN,
    SURROGATE,
    WIRE_NAME,
    cut_half,
    join_surrogates,
    join_surrogates_in,
    make_wire_name,
    plain,
    remove_ansi,
    settle_lines,
)
from .times import are_times_kept, duration, keep_times, tell_clock, tell_duration
