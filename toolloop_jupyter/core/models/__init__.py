"""One model call through LiteLLM: providers, capabilities, the message out of its deltas, retries, failures."""

from .assembly import Assembly, find_same_call, new_call_id, split_objects
from .call import ModelCall
from .capabilities import takes_no_tool_choice, takes_response_format, way_for
from .client import litellm_loaded, load_litellm, loaded
from .failures import log_unexpected, redact
from .options import MANAGED, check_completion_options, is_completion_option
from .parts import note
from .providers import (
    Delta,
    PlainRefusal,
    ProviderError,
    ProviderRequest,
    call_options,
    ensure,
    is_ours,
    provide,
    proxy_in_use,
)

__all__ = [
    "MANAGED",
    "Assembly",
    "Delta",
    "ModelCall",
    "PlainRefusal",
    "ProviderError",
    "ProviderRequest",
    "call_options",
    "check_completion_options",
    "ensure",
    "find_same_call",
    "is_completion_option",
    "is_ours",
    "litellm_loaded",
    "load_litellm",
    "loaded",
    "log_unexpected",
    "new_call_id",
    "note",
    "provide",
    "proxy_in_use",
    "redact",
    "split_objects",
    "takes_no_tool_choice",
    "takes_response_format",
    "way_for",
]
