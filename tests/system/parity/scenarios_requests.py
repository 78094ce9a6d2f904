"""Scenarios: what is sent besides messages and tools, the gateway, prices, and changed files."""

from __future__ import annotations

from support.servers import answer, calls
from system.parity.functions import END, ONE, REVIEW, TOOLS, Review, add, writer
from system.parity.sides import MISSING, Expected, Made, Scenario

UNKNOWN_COST = [Expected("unknown cost", "*cost", 0.0, None)]
GATEWAY = "litellm_proxy/coder"

REQUESTS = [
    Scenario("instructions", [END], keywords={"instructions": "Be brief."}),
    Scenario(
        "options reach every call",
        [ONE, END],
        keywords={"tools": [add]},
        completion_kwargs={"temperature": 0.5, "seed": 7, "user": "me", "extra_headers": {"x-own": "1"}},
    ),
    Scenario(
        "what the loop manages wins over options",
        [END],
        keywords={"tools": [add]},
        completion_kwargs={
            "model": "openai/other",
            "messages": [],
            "tools": [],
            "api_key": "sk-other",
            "api_base": "http://127.0.0.1:1",
        },
    ),
    Scenario(
        "key and address may come by options",
        [END],
        keywords={"api_key": None, "api_base": None},
        completion_kwargs={"api_key": "sk-options", "api_base": Made(lambda run: run.base_url)},
    ),
    Scenario(
        "response_format by options",
        [answer('{"a": 1}')],
        completion_kwargs={"response_format": {"type": "json_object"}},
    ),
    Scenario(
        "output wins over response_format",
        [REVIEW],
        keywords={"output": Review},
        completion_kwargs={"response_format": {"type": "json_object"}},
    ),
    Scenario("metadata without a gateway", [END], keywords={"metadata": {"team": "a"}}),
    Scenario(
        "gateway: tags and metadata on every call",
        [ONE, END],
        model=GATEWAY,
        keywords={"tools": TOOLS, "metadata": {"team": "a", "run": 7}},
        expected=UNKNOWN_COST,
    ),
    Scenario(
        "gateway: own headers",
        [END],
        model=GATEWAY,
        completion_kwargs={"extra_headers": {"x-own": "1", "x-litellm-tags": "mine"}},
        expected=[*UNKNOWN_COST, Expected("own headers", "requests.0.headers.x-own", MISSING, "1")],
    ),
    Scenario(
        "gateway: the cost that it tells",
        [answer("Hi.", headers={"x-litellm-response-cost": "0.125"})],
        model=GATEWAY,
    ),
    Scenario("an unknown price", [END], model="openai/unpriced", expected=UNKNOWN_COST),
    Scenario(
        "changed files",
        [
            calls(
                ("write", {"name": "new.txt", "text": "a\nb\n"}),
                ("write", {"name": "old.txt", "text": "two"}),
                ("write", {"name": "data.bin", "text": "x"}),
                ("delete", {"name": "gone.txt"}),
                ("write", {"name": "same.txt", "text": "same"}),
            ),
            END,
            answer("No more."),
        ],
        ("Go", "Again"),
        keywords={"tools": writer()},
        files={"old.txt": b"one\n", "data.bin": b"\0\1", "gone.txt": b"bye", "same.txt": b"same"},
    ),
]
