"""The options of LiteLLM's `acompletion`. This module decides what happens to each option in `completion_kwargs`.

A run keeps the model, the address and the API key with which it was started. Some options of LiteLLM (1.110) silently send
a call to another model or address, with the same API key: `fallbacks`, `client`, `model_list`, … These options are refused by
name before the run starts. If the run uses a gateway, options for one provider's address or account are refused, too.
These options are also refused inside `extra_body`, because a gateway reads `extra_body` like the request itself. An option that is
not listed here belongs to one provider, and is passed on.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

MANAGED = frozenset({"model", "messages", "tools", "response_format", "stream"})
"""Options that the loop sets itself. Only `stream` may stand in `completion_kwargs`."""


class Treatment(Enum):
    """What the loop does with an option."""

    PASSED = "goes to every model call, and in extra_body to a gateway"
    MANAGED = "the loop or the route sets it; if neither does, the person's value counts"
    LOCAL = "goes to LiteLLM in this process; refused in the extra_body of a gateway run"
    DIRECT = "the address, account or key of a provider; refused on a gateway"
    REFUSED = "refused on every route"
    UNKNOWN = "not listed here; goes to every model call"


@dataclass(frozen=True)
class OptionRule:
    """What the loop does with one option. If the loop refuses it, `instead` says why, and what to write instead."""

    kind: Treatment
    instead: str = ""
    is_kept: bool = False
    """True if only LiteLLM (1.110) uses the option. Neither a provider nor a model that is Python code gets the option."""


_ELSEWHERE = "it would take the conversation to another model, address or key"
_FALLBACK = "--fallback MODEL (in Python ToolLoopOptions(fallback=[MODEL]))"
_NAME_ONE = f"{_ELSEWHERE}; write one model as model=, and the models to ask after a failure as {_FALLBACK}"
_RUN_AGAIN = f"{_ELSEWHERE}; write the models to ask after a failure as {_FALLBACK}, or retry the same model with num_retries"
_NOT_ASKED = "the model would not be asked; use model='toolloop/demo' or a ScriptedModel"
_AZURE = f"{_ELSEWHERE}; write model='azure/DEPLOYMENT'"
_GATEWAY = f"{_ELSEWHERE}; write model='litellm_proxy/GROUP'"
_ADDRESS = f"{_ELSEWHERE}; use api_base= and api_key="
_PROMPTS = "a stored prompt brings its own model and messages; use instructions="
_HEADERS = "it could replace the key that is sent; use extra_headers"
_INTERNAL = "LiteLLM uses it internally; leave it out"
_ON_GATEWAY = "the gateway decides the model, address, account, price and log; leave it out"

_PASSED, _PASSED_KEPT = OptionRule(Treatment.PASSED), OptionRule(Treatment.PASSED, is_kept=True)
_LOCAL, _DIRECT = OptionRule(Treatment.LOCAL, is_kept=True), OptionRule(Treatment.DIRECT)
_refuse = functools.partial(OptionRule, Treatment.REFUSED)

_NAMES: Mapping[OptionRule, str] = {
    OptionRule(Treatment.MANAGED): "tools response_format",
    OptionRule(
        Treatment.MANAGED, is_kept=True
    ): "model messages stream api_base api_key base_url custom_llm_provider",
    _PASSED: """audio frequency_penalty include_server_side_tool_invocations logit_bias logprobs max_completion_tokens
        max_tokens modalities n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_retention
        reasoning_effort safety_identifier seed service_tier stop store temperature thinking tool_choice top_k
        top_logprobs top_p user verbosity web_search_options context_management extra_body extra_query session_id""",
    _PASSED_KEPT: """stream_options extra_headers headers api_version responses_api_version timeout request_timeout force_timeout
        stream_timeout num_retries max_retries metadata litellm_metadata tags guardrails litellm_session_id
        litellm_trace_id litellm_call_id id cache caching ttl enable_prompt_caching drop_params additional_drop_params
        allowed_openai_params assistant_continue_message user_continue_message ensure_alternating_roles
        supports_system_message litellm_system_prompt merge_reasoning_content_in_choices
        thought_signature_in_tool_call_id disable_add_transform_inline_image_block enable_json_schema_validation""",
    _LOCAL: """allow_client_keepalive_override allowed_model_region base_model bos_token budget_duration cache_key
        caching_groups complete_response completion_call_id cooldown_time custom_prompt_dict daily_reset_time
        data_residency default_api_key_rpm_limit default_api_key_tpm_limit enable_tag_filtering eos_token
        final_prompt_value hf_model_name initial_prompt_value itpm keepalive_seconds kubernetes_pod_discovery
        litellm_disabled_callbacks litellm_request_debug log_client_error_tracebacks logger_fn max_agentic_loops
        max_budget max_file_size_mb max_parallel_requests model_file_id_mapping model_info no-log order otpm
        output_vector_size preset_cache_key provider_affinity_header retry_policy retry_strategy roles routing_strategy
        rpd rpm search_tool_name shared_session ssl_verify stream_chunk_size stream_timeout_by_service_tier tag_regex
        tiered_pricing timeout_by_service_tier tpd tpm turn_off_message_logging use_chat_completions_api
        use_in_pass_through verbose weight""",
    _DIRECT: """agentcore_runtime_session_id allow_legacy_cloud_file_ids anthropic-workspace-id bucket_name chatgpt_auth_file
        client_id client_secret configurable_clientside_auth_params custom_endpoint deployment_url
        fireworks_forward_user_id litellm_embedding_config no_log nvcf_function_id organization region_name riva_offline rust
        tenant_id use_ssl use_xai_oauth user_api_key_auth_metadata user_provider_credentials workspace_id""",
    _refuse(_RUN_AGAIN): "attempted_targets",
    _refuse(
        _NAME_ONE
    ): "fastest_response hugging_face model_alias_map model_list replicate silent_model together_ai user_config",
    _refuse(_ADDRESS): "client litellm_credential_name",
    _refuse(_AZURE): "api_type azure deployment_id",
    _refuse(_GATEWAY): "use_client use_litellm_proxy",
    _refuse(_PROMPTS): "prompt_environment prompt_id prompt_label prompt_variables prompt_version",
    _refuse(_HEADERS): "default_headers provider_specific_header",
    _refuse("this is the old name of tools; write tools="): "functions",
    _refuse("this is the old name of tool_choice; write tool_choice"): "function_call",
    _refuse(
        _INTERNAL
    ): """acompletion aembedding aimg_generation allm_passthrough_route async_call atext_completion client_side_timeout
        litellm_logging_obj litellm_trusted_callback_vars model_config proxy_server_request secret_fields self stream_response text_completion""",
}
_KNOWN: Mapping[str, OptionRule] = {name: rule for rule, names in _NAMES.items() for name in names.split()}
_FAMILIES: Mapping[str, OptionRule] = {
    "fallback": _refuse(_RUN_AGAIN),
    "^mock_": _refuse(_NOT_ASKED),
    "(^|_)router(_|$)": _refuse(_NAME_ONE),
    "^_": _refuse(_INTERNAL),
    "(^|_)cost(_|$)|_uplift_": _LOCAL,
    "^(arize|dd|gcs|humanloop|langfuse|langsmith|newrelic|posthog|signoz|wandb|weave)_": _LOCAL,
    "^(aws|azure|bedrock|gigachat|github_copilot|oci|s3|sagemaker|token_exchange|vertex|watsonx)_": _DIRECT,
    "^anthropic_(disable|federation|identity|issuer|keycloak|organization|service_account|workspace)_": _DIRECT,
    "^openai_(identity|service_account)_": _DIRECT,
}
"""Patterns for families of option names. New releases of LiteLLM add names to a family. The first matching pattern counts."""

PROXY = "litellm_proxy/"
"""The beginning of each model name for a gateway: the name of a model group follows."""
_KEYWORDS = "completion_kwargs"
ENVELOPE = ("extra_body", "extra_headers", "extra_query", "headers")
"""Options that hold a part of the request: its body, headers or query. For a gateway, none of them may contain another."""
_OF_ROUTE = frozenset(
    f"{' '.join(ENVELOPE)} api_base base_url api_key api_version custom_llm_provider cache_control_injection_points".split()
)
_HEADERS_ELSEWHERE = frozenset(
    {"custom-llm-provider", "host", "x-forwarded-host", "x-litellm-disable-callbacks", "x-litellm-model"}
)
"""Headers that are refused: with them, a gateway or its proxy would choose another host or model, or would write no log."""


@functools.lru_cache(maxsize=1024)
def find_rule(name: str) -> OptionRule:
    """Return the rule for the option with this name. An option that is not listed belongs to one provider, and is passed on."""
    families = (rule for pattern, rule in _FAMILIES.items() if re.search(pattern, name))
    return _KNOWN.get(name) or next(families, OptionRule(Treatment.UNKNOWN))


def is_of_route(name: str) -> bool:
    """Return True if the option is for one provider only: its address, account or API key, or an extra part of the request.

    A fallback model of another provider does not get this option.
    """
    return name in _OF_ROUTE or find_rule(name).kind is Treatment.DIRECT


def is_completion_option(name: str) -> bool:
    """Return True if the option belongs to a model call: it is passed to each call, set by the loop, or refused."""
    return find_rule(name).kind in (Treatment.PASSED, Treatment.MANAGED, Treatment.REFUSED)


def find_completion_option(typed: str) -> str:
    """Return the name of an option for model calls that begins with `typed`, or is similar to `typed`; "" if there is none."""
    names = [name for name, rule in _KNOWN.items() if rule.kind is Treatment.PASSED]
    begun = [name for name in names if len(typed) > 2 and name.startswith(typed.lower())]
    near = difflib.get_close_matches(typed.lower(), names, n=1, cutoff=0.8)
    return min(begun, key=len, default=next(iter(near), ""))


def check_completion_options(options: Mapping[str, object], *, gateway: bool) -> None:
    """Raise ValueError if an option is refused, for example if it would choose another model. Ignore options that are None.

    For a gateway, the options inside the ENVELOPE options are checked, too.
    """
    given = [(_KEYWORDS, str(name), value) for name, value in options.items()]
    for _, part, held in list(given) if gateway else ():
        if part in ENVELOPE and isinstance(held, Mapping):
            given += [(part, str(name), value) for name, value in held.items()]
    for where, name, value in given:
        if value is not None and (why := _explain_refusal(where, name, value, gateway=gateway)):
            place = f"{where} (--set)" if where == _KEYWORDS else where
            raise ValueError(f"{name} in {place} is refused: {why}")


def explain_switch(model: str, api_base: object = None) -> str:
    """Return an error text if a global setting of LiteLLM would send the calls to another model or address; else return "".

    `api_base`: the address of the run, if it has one. For some providers (Ollama), LiteLLM uses `litellm.api_base`
    instead. Does not import LiteLLM.
    """
    litellm = sys.modules.get("litellm")
    elsewhere = getattr(litellm, "api_base", None)
    if getattr(litellm, "model_fallbacks", None):
        return f"litellm.model_fallbacks is refused: {_ELSEWHERE}; set litellm.model_fallbacks = None"
    if model in (getattr(litellm, "model_alias_map", None) or ()):
        return (
            f"litellm.model_alias_map is refused for {model!r}: {_ELSEWHERE}; "
            "remove this name from litellm.model_alias_map, and write the real name of the model as model="
        )
    if api_base and elsewhere and elsewhere != api_base and not model.startswith(PROXY):
        return f"litellm.api_base is refused beside api_base=: {_ELSEWHERE}; set litellm.api_base = None"
    if uses_proxy() and not model.startswith(PROXY):
        return f"litellm.use_litellm_proxy was set after {model!r} was chosen: {_ELSEWHERE}; unset it, or start a new session"
    return ""


def uses_proxy() -> bool:
    """Return True if the user has set `USE_LITELLM_PROXY` or `litellm.use_litellm_proxy`. Then all calls go to the gateway."""
    by_variable = os.environ.get("USE_LITELLM_PROXY", "").strip().lower() == "true"
    return by_variable or bool(getattr(sys.modules.get("litellm"), "use_litellm_proxy", False))


def _explain_refusal(where: str, name: str, value: object, *, gateway: bool) -> str:
    """Return why an option is refused, and what to write instead; "" if the option is allowed.

    `where`: "completion_kwargs", or the name of the ENVELOPE option that contains this option.
    """
    if where in ("extra_headers", "headers"):
        return _ON_GATEWAY if name.strip().lower() in _HEADERS_ELSEWHERE else ""
    within = where != _KEYWORDS
    if within and name in ENVELOPE:
        return _ON_GATEWAY
    rule = find_rule(name)
    if rule.kind is Treatment.REFUSED:
        return rule.instead
    if gateway and (rule.kind is Treatment.DIRECT or (rule.kind is Treatment.LOCAL and within)):
        return _ON_GATEWAY
    if name == "custom_llm_provider" and value == "litellm_proxy" and not gateway:
        return _GATEWAY
    return ""
