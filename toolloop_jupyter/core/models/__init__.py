"""One model call, straight to a model of ours or through LiteLLM: capabilities, the message out of its deltas, retries, failures."""

from .assembly import Assembly, new_call_id, split_objects
from .call import ModelCall
from .capabilities import (
    find_cache_marks,
    find_untaken,
    takes_no_tool_choice,
    takes_response_format,
    way_for,
)
from .client import await_litellm, leave_out_price_list, litellm_loaded, load_litellm, start_loading
from .failures import log_unexpected, redact
from .options import (
    MANAGED,
    PROXY,
    check_completion_options,
    explain_switch,
    find_completion_option,
    is_completion_option,
    proxy_in_use,
)
from .parts import note
from .providers import (
    Answers,
    Delta,
    PlainRefusal,
    ProviderError,
    ProviderRequest,
    ensure,
    is_ours,
    must_load,
    provide,
    was_one_asked,
)

__all__ = [
    "MANAGED",
    "PROXY",
    "Answers",
    "Assembly",
    "Delta",
    "ModelCall",
    "PlainRefusal",
    "ProviderError",
    "ProviderRequest",
    "await_litellm",
    "check_completion_options",
    "ensure",
    "explain_switch",
    "find_cache_marks",
    "find_completion_option",
    "find_untaken",
    "is_completion_option",
    "is_ours",
    "leave_out_price_list",
    "litellm_loaded",
    "load_litellm",
    "log_unexpected",
    "must_load",
    "new_call_id",
    "note",
    "provide",
    "proxy_in_use",
    "redact",
    "split_objects",
    "start_loading",
    "takes_no_tool_choice",
    "takes_response_format",
    "was_one_asked",
    "way_for",
]
