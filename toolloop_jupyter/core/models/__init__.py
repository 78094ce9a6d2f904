"""Model calls: they go through LiteLLM, or directly to a model that is Python code.

The modules know the capabilities of models, build messages from deltas, repeat failed calls, and explain failures.
"""

from .assembly import Assembly, make_call_id, split_objects
from .call import ModelCall
from .client import (
    await_litellm,
    choose_picture_place,
    ensure,
    explain_missing_bytecode,
    find_cache_marks,
    find_untaken,
    is_litellm_loaded,
    is_ready,
    leave_out_price_list,
    load_litellm,
    must_load,
    start_loading,
    takes_response_format,
    takes_tool_choice_none,
)
from .failures import log_unexpected, redact
from .options import (
    ENVELOPE,
    MANAGED,
    PROXY,
    check_completion_options,
    explain_switch,
    find_completion_option,
    is_completion_option,
    is_of_route,
    uses_proxy,
)
from .providers import (
    Answers,
    Delta,
    PlainRefusal,
    ProviderError,
    ProviderRequest,
    find_responder,
    is_ours,
    provide,
)
