"""Model calls: they go through LiteLLM, or directly to a model that is Python code.

The modules know the capabilities of models, build messages from deltas, repeat failed calls, and explain failures.
"""

from .assembly import Assembly, new_call_id, split_objects
from .call import ModelCall
from .capabilities import (
    choose_picture_place,
    find_cache_marks,
    find_untaken,
    takes_response_format,
    takes_tool_choice_none,
)
from .client import (
    await_litellm,
    explain_missing_bytecode,
    is_ready,
    leave_out_price_list,
    litellm_loaded,
    load_litellm,
    start_loading,
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
    proxy_in_use,
)
from .providers import (
    Answers,
    Delta,
    PlainRefusal,
    ProviderError,
    ProviderRequest,
    ensure,
    find_responder,
    is_ours,
    must_load,
    provide,
    was_one_asked,
)
