"""The models that our texts name exist, and will exist for a year."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolloop_jupyter.core.models import load_litellm

NAME = re.compile(
    r"(?<![\w/.-])(?:(?:openai|anthropic|gemini|mistral|groq|xai)/)?"
    r"((?:gpt|claude|gemini|mistral|grok)-(?=[\w.-]*(?:\d|-latest))[\w.-]*\w)"
)
"""Matches the name of a provider's model, as people type it."""


def named_models(repository: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, model) for each model that the package, README, the pages or the notebooks name."""
    files = [repository / "README.md", repository / "CONTRIBUTING.md"]
    for folder, kind in (
        ("toolloop_jupyter", "*.py"),
        ("docs", "*.md"),
        ("notebooks", "*.ipynb"),
        ("notebooks", "*.py"),
    ):
        files += sorted((repository / folder).rglob(kind))
    for file in files:
        for match in NAME.finditer(file.read_text("utf-8")):
            yield f"{file.relative_to(repository)}", match[1]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("--model openai/gpt-9-mini and `claude-sonnet-4-6`.", ["gpt-9-mini", "claude-sonnet-4-6"]),
        ("gpt-like, claude-ish, litellm_proxy/gpt-5, claude_code", []),
        ("anthropic/claude-sonnet-latest", ["claude-sonnet-latest"]),
    ],
)
def test_a_name_is_seen(text, names):
    """Names with and without a provider are found. Other words, and the groups of a gateway, are not names of models."""
    assert [found[1] for found in NAME.finditer(text)] == names


def test_each_model_that_is_named_stays_for_a_year(repository):
    """LiteLLM knows every model that our texts name. No provider retires one of them within a year from today."""
    table = load_litellm().model_cost
    in_a_year = (dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=365)).date().isoformat()
    facts_by_name = {name.rpartition("/")[2]: facts for name, facts in table.items()}
    facts_by_name |= table
    named = set(named_models(repository))
    assert named
    gone = {
        (file, name): facts.get("deprecation_date", "unknown")
        for file, name in named
        if (facts := facts_by_name.get(name, {"deprecation_date": ""})).get("deprecation_date", "9999")
        < in_a_year
    }
    assert not gone
