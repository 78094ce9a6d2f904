"""A run keeps its model, address and key: an option that would send it elsewhere is refused by name before anything starts."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from support.servers import answer, failure
from toolloop_jupyter import Harness, ToolLoopOptions, aagent, aagent_session
from toolloop_jupyter.core.models.client import load_litellm
from toolloop_jupyter.core.models.options import Treatment, check_completion_options, find_rule
from toolloop_jupyter.core.session.keywords import build_config

KEY = "sk-gateway-0123456789"
ROUTES = {"gateway": "litellm_proxy/coder", "direct": "openai/stub"}
INSTEAD = {
    "elsewhere": "ToolLoopOptions(fallback=[MODEL])), or retry the same model with num_retries",
    "one": "write one model as model=, and the models to ask after a failure as --fallback MODEL",
    "address": "use api_base= and api_key=",
    "azure": "write model='azure/DEPLOYMENT'",
    "gateway": "write model='litellm_proxy/GROUP'",
    "mock": "use model='toolloop/demo' or a ScriptedModel",
    "headers": "use extra_headers",
    "prompt": "use instructions=",
    "out": "leave it out",
}


def make_client(base):
    import openai

    return openai.AsyncOpenAI(base_url=base, api_key=KEY, max_retries=0)


EVERYWHERE = {
    "fallbacks": (lambda b: [{"model": "openai/other", "api_base": b}], "elsewhere"),
    "context_window_fallback_dict": (lambda b: dict.fromkeys(ROUTES.values(), "openai/other"), "elsewhere"),
    "context_window_fallbacks": (lambda b: [{"coder": ["other"]}], "elsewhere"),
    "client": (make_client, "address"),
    "litellm_credential_name": (lambda b: "theirs", "address"),
    "model_list": (
        lambda b: [
            {"model_name": m, "litellm_params": {"model": "openai/other", "api_base": b}}
            for m in ROUTES.values()
        ],
        "one",
    ),
    "silent_model": (lambda b: "openai/other", "one"),
    "user_config": (lambda b: {"model_list": []}, "one"),
    "router_settings_override": (lambda b: {"fallbacks": [{"coder": ["other"]}]}, "one"),
    "deployment_id": (lambda b: "other", "azure"),
    "azure": (lambda b: True, "azure"),
    "use_litellm_proxy": (lambda b: True, "gateway"),
    "mock_response": (lambda b: "made up", "mock"),
    "provider_specific_header": (
        lambda b: {
            "custom_llm_provider": "litellm_proxy",
            "extra_headers": {"Authorization": "Bearer other"},
        },
        "headers",
    ),
    "prompt_id": (lambda b: "stored", "prompt"),
    "text_completion": (lambda b: True, "out"),
}
ON_GATEWAY = {
    "provider's address": lambda b: {"aws_bedrock_runtime_endpoint": b},
    "provider's account": lambda b: {"vertex_credentials": "{}"},
    "body, fallbacks": lambda b: {"extra_body": {"fallbacks": [{"model": "openai/other", "api_base": b}]}},
    "body, model_list": lambda b: {"extra_body": {"model_list": []}},
    "body, user_config": lambda b: {"extra_body": {"user_config": {"model_list": []}}},
    "body, router": lambda b: {"extra_body": {"router_settings_override": {"fallbacks": []}}},
    "body, mock": lambda b: {"extra_body": {"mock_response": "made up"}},
    "body, provider": lambda b: {"extra_body": {"sagemaker_base_url": b}},
    "body, price": lambda b: {"extra_body": {"input_cost_per_token": 0}},
    "body, log": lambda b: {"extra_body": {"no-log": True}},
    "body, another log": lambda b: {"extra_body": {"langfuse_host": b}},
    "body, headers": lambda b: {"extra_body": {"headers": {"authorization": "Bearer other"}}},
    "body, body": lambda b: {"extra_body": {"extra_body": {"api_base": b}}},
    "query, fallbacks": lambda b: {"extra_query": {"fallbacks": "other"}},
    "header, host": lambda b: {"extra_headers": {"Host": b.split("/")[2]}},
    "header, log": lambda b: {"headers": {"X-LiteLLM-Disable-Callbacks": "all"}},
}


@pytest.fixture
def others_credential(serve, monkeypatch):
    """A second server. The environment and LiteLLM's settings contain its address in every place from which an option could
    take it.
    """
    server = serve([answer("other")])
    litellm = load_litellm()
    for name in ("LITELLM_PROXY_API_BASE", "AZURE_API_BASE"):
        monkeypatch.setenv(name, server.base_url)
    values = {"api_base": server.base_url}
    item = litellm.types.utils.CredentialItem(
        credential_name="theirs", credential_values=values, credential_info={}
    )
    monkeypatch.setattr(litellm, "credential_list", [item])
    return server


async def check_refused(ours, other, model, kwargs, words):
    with pytest.raises(ValueError, match="is refused: ") as caught:
        await aagent(
            Harness.TOOL_LOOP,
            "Go.",
            model=model,
            api_base=ours.base_url,
            api_key=KEY,
            options=ToolLoopOptions(completion_kwargs=kwargs),
        )
    message = str(caught.value)
    assert all(word in message for word in words)
    assert "\n" not in message
    assert other.requests == []
    assert ours.requests == []


@pytest.mark.parametrize("model", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("name", EVERYWHERE)
async def test_an_option_that_leads_elsewhere_is_refused(serve, others_credential, name, model):
    """No request is sent. One line names the option, and what to write instead."""
    make, instead = EVERYWHERE[name]
    kwargs = {name: make(others_credential.base_url), "max_retries": 0}
    words = (f"{name} in completion_kwargs", INSTEAD[instead])
    await check_refused(serve([failure(500)]), others_credential, model, kwargs, words)


@pytest.mark.parametrize("make", ON_GATEWAY.values(), ids=ON_GATEWAY)
async def test_a_gateway_gets_nothing_that_reroutes(serve, others_credential, make):
    """On a gateway, such an option is refused in `completion_kwargs`, and also in the body, the query and the headers."""
    kwargs = make(others_credential.base_url)
    ((where, value),) = kwargs.items()
    name = where if isinstance(value, str) else next(iter(value))
    place = "completion_kwargs" if isinstance(value, str) else where
    await check_refused(
        serve([answer("ok")]), others_credential, ROUTES["gateway"], kwargs, (name, place, "; ")
    )


async def test_the_query_names_no_other_model(serve):
    """A gateway reads the model from `?model=`. So this parameter is not sent; LiteLLM may send the rest of the query in any
    way.
    """
    server = serve([answer("ok")])
    kwargs = {"extra_query": {"model": "other", "own": "one"}}
    await aagent(
        Harness.TOOL_LOOP,
        "Go.",
        model=ROUTES["gateway"],
        api_base=server.base_url,
        api_key=KEY,
        options=ToolLoopOptions(completion_kwargs=kwargs),
    )
    (request,) = server.requests
    sent = request.path + request.raw.decode()
    assert "one" in sent
    assert "other" not in sent


async def test_a_direct_route_does_not_become_a_gateways(serve, others_credential):
    """`custom_llm_provider` cannot send a direct run to the gateway: the run would not have its tags."""
    kwargs = {"custom_llm_provider": "litellm_proxy"}
    words = ("custom_llm_provider", INSTEAD["gateway"])
    await check_refused(serve([answer("ok")]), others_credential, ROUTES["direct"], kwargs, words)


PASSED = {
    "temperature": 0.5,
    "seed": 7,
    "user": "me",
    "n": 1,
    "stop": ["END"],
    "stream": False,
    "tool_choice": "auto",
    "reasoning_effort": "low",
    "num_retries": 0,
    "max_retries": 0,
    "timeout": 30,
    "metadata": {"team": "a"},
    "caching": False,
    "drop_params": False,
    "allowed_openai_params": ["reasoning_effort"],
    "extra_headers": {"x-own": "1"},
    "extra_body": {"guardrails": [], "cache": {"no-cache": True}, "metadata": {"team": "a"}, "own": 1},
    "a_name_of_one_provider": 1,
    "input_cost_per_token": 0.1,
    "ssl_verify": True,
    "fallbacks": None,
    "client": None,
    "model_list": None,
    "mock_response": None,
}


@pytest.mark.parametrize("model", ROUTES.values(), ids=ROUTES)
async def test_what_stays_is_passed(serve, model):
    """Options that LiteLLM documents for a call are passed unchanged. None counts as not given."""
    server = serve([answer("ok")])
    options = ToolLoopOptions(completion_kwargs=PASSED)
    result = await aagent(
        Harness.TOOL_LOOP, "Go.", model=model, api_base=server.base_url, api_key=KEY, options=options
    )
    assert result.text == "ok", result.error
    (request,) = server.requests
    sent = {"temperature": 0.5, "seed": 7, "stop": ["END"], "own": 1, "guardrails": []}
    assert {name: request.body.get(name) for name in sent} == sent
    assert request.headers["x-own"] == "1"


def test_an_account_of_a_provider_is_for_its_own_route():
    """On a direct route, a provider's addresses and accounts are passed, also inside a body."""
    kwargs = {"aws_region_name": "eu-1", "vertex_project": "p", "extra_body": {"models": ["a"], "rpm": 1}}
    check_completion_options(kwargs, gateway=False)


async def test_the_module_has_no_fallbacks_either(serve, monkeypatch):
    """`litellm.model_fallbacks` is refused before a run. If it is set during a run, the next call is refused."""
    server, litellm = serve([answer("ok")]), load_litellm()
    keywords = {"model": "openai/stub", "api_base": server.base_url, "api_key": KEY}
    async with aagent_session(Harness.TOOL_LOOP, **keywords) as session:
        monkeypatch.setattr(litellm, "model_fallbacks", ["openai/other"])
        result = await session.arun("Go.")
    assert "set litellm.model_fallbacks = None" in result.error
    with pytest.raises(ValueError, match=r"litellm\.model_fallbacks is refused"):
        await aagent(Harness.TOOL_LOOP, "Go.", **keywords)
    assert server.requests == []


SWITCHES = {
    "another model's name": (
        "litellm_proxy/coder",
        "model_alias_map",
        {"litellm_proxy/coder": "openai/other"},
    ),
    "a direct model's other name": ("openai/stub", "model_alias_map", {"openai/stub": "openai/other"}),
    "another address": ("ollama_chat/stub", "api_base", "http://127.0.0.1:9/elsewhere"),
    "the gateway": ("openai/stub", "use_litellm_proxy", True),
}


@pytest.mark.parametrize(("model", "switch", "value"), SWITCHES.values(), ids=SWITCHES)
async def test_switches_of_the_module_take_no_run_elsewhere(serve, monkeypatch, model, switch, value):
    """If a global setting of LiteLLM changes during a session, the next call is refused and the error names the setting.
    Nothing is sent.
    """
    server, litellm = serve([answer("ok")]), load_litellm()
    keywords = {"model": model, "api_base": server.base_url, "api_key": KEY}
    async with aagent_session(Harness.TOOL_LOOP, **keywords) as session:
        monkeypatch.setattr(litellm, switch, value)
        result = await session.arun("Go.")
    assert f"litellm.{switch} " in result.error
    # A new run uses the switch: it goes to the gateway's address, with the gateway's key.
    if switch != "use_litellm_proxy":
        with pytest.raises(ValueError, match=rf"litellm\.{switch} is refused"):
            await aagent(Harness.TOOL_LOOP, "Go.", **keywords)
    assert server.requests == []


async def test_switches_that_take_a_run_nowhere_are_free(serve, monkeypatch):
    """Global settings that do not affect this run are allowed: aliases of other models, and an address if the run has none or
    uses a gateway.
    """
    server, litellm = serve([answer("ok"), answer("ok")]), load_litellm()
    monkeypatch.setattr(litellm, "model_alias_map", {"openai/another": "openai/other"})
    monkeypatch.setattr(litellm, "api_base", "http://127.0.0.1:9/elsewhere")
    on_gateway = {"model": "litellm_proxy/coder", "api_base": server.base_url}
    assert (await aagent(Harness.TOOL_LOOP, "Go.", api_key=KEY, **on_gateway)).text == "ok"
    monkeypatch.setattr(litellm, "api_base", server.base_url)
    assert (await aagent(Harness.TOOL_LOOP, "Go.", api_key=KEY, model="openai/stub")).text == "ok"


def names_that_litellm_reads():
    """Return the parameters of LiteLLM's calls, the names in its own list of internal parameters, and the names that its code
    reads from `kwargs`.
    """
    litellm = load_litellm()
    from litellm import constants
    from litellm.litellm_core_utils import get_litellm_params as module
    from litellm.types.utils import all_litellm_params

    names = {*all_litellm_params, *constants.OPENAI_CHAT_COMPLETION_PARAMS}
    names |= {*constants.DEFAULT_CHAT_COMPLETION_PARAM_VALUES, *getattr(module, "OPTIONAL_KWARGS_KEYS", ())}
    for function in (litellm.acompletion, litellm.completion, module.get_litellm_params):
        parameters = inspect.signature(function).parameters.values()
        names |= {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
        tree = ast.parse(inspect.getsource(inspect.unwrap(function)))
        names |= {name for node in ast.walk(tree) if (name := read_from_kwargs(node))}
    return names


def read_from_kwargs(node):
    """Return the name that `kwargs.get("name")` or similar code reads; else None."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=owner), attr="get" | "pop"),
            args=[ast.Constant(value=str(name)), *_],
        ) if owner.endswith("kwargs"):
            return name
    return None


def test_every_name_that_litellm_knows_is_sorted():
    """If a new LiteLLM has a new option, this test fails until somebody decides how the loop treats the option."""
    names = names_that_litellm_reads()
    assert len(names) > 200
    assert {"fallbacks", "temperature", "mock_delay", "prompt_version"} <= names
    assert sorted(name for name in names if find_rule(name).kind is Treatment.UNKNOWN) == []


def test_what_is_read_here_alone_is_not_sent():
    """LiteLLM must treat each LOCAL option as internal. Otherwise, a gateway would get the option in the body."""
    from litellm.types.utils import all_litellm_params

    local = {name for name in names_that_litellm_reads() if find_rule(name).kind is Treatment.LOCAL}
    assert local <= {*all_litellm_params}


def test_what_the_proxy_bans_from_a_body_does_not_reach_it():
    """The proxy has a list of names that a request must not contain. Each of these is refused here, or set only by the loop."""
    path = Path(load_litellm().__file__).parent / "proxy" / "auth" / "auth_utils.py"
    if not path.exists():
        pytest.skip("this LiteLLM comes without its proxy")
    banned = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in (
            "_BANNED_REQUEST_BODY_PARAMS",
            "_AZURE_ENTRA_CREDENTIAL_PARAMS",
        ):
            banned |= {item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant)}
    assert {"user_config", "aws_role_name", "tenant_id"} <= banned
    managed = {name for name in banned if find_rule(name).kind is Treatment.MANAGED}
    assert managed == {"api_base", "base_url"}
    for name in banned - managed:
        with pytest.raises(ValueError, match=f"^{name} in extra_body is refused: "):
            check_completion_options({"extra_body": {name: "x"}}, gateway=True)


class Elsewhere(str):
    """A name of an option whose `str` is another, harmless name."""

    __slots__ = ()

    def __str__(self):
        return "temperature"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"extra_headers": "X-A: b"}, "extra_headers in completion_kwargs must be a mapping"),
        ({"extra_body": [("model", "other")]}, "extra_body in completion_kwargs must be a mapping"),
        ({Elsewhere("fallbacks"): ["other"]}, "a name in completion_kwargs must be plain text"),
        ({1: 2}, "a name in completion_kwargs must be plain text"),
    ],
)
def test_names_and_envelopes_of_another_type(given, said):
    """A name that is not a plain text is refused before the run, and so is a value that must be a mapping and is not. Neither
    can pass as something else.
    """
    with pytest.raises(TypeError, match=said):
        build_config(model="openai/m", options=ToolLoopOptions(completion_kwargs=given))


def test_options_are_sent_as_they_were_checked():
    """If a mapping changes after the check, or returns other values when it is read again, the sent options stay the same."""

    class Second(dict):
        def items(self):
            return [("temperature", 0), ("fallbacks", ["other"])]

    given = Second(temperature=1)
    body = {"a": 1}
    given["extra_body"] = body
    config = build_config(model="openai/m", options=ToolLoopOptions(completion_kwargs=given))
    given["fallbacks"], body["model"] = ["other"], "other"
    assert config.options.completion_kwargs == {"temperature": 1, "extra_body": {"a": 1}}


def test_an_observer_of_another_class():
    """An object that is not an Observer is refused before the run."""
    with pytest.raises(TypeError, match="observer must be an Observer or None, got int"):
        build_config(model="openai/m", observer=5)
