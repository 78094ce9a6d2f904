"""Code that runs inside the proxy: it decides who may do what, and writes the log.

It replaces the proxy's database of virtual keys, which needs an engine that no package ships. `authenticate` is the proxy's
documented `custom_auth`, and `log` is one of its `callbacks`.
"""

from __future__ import annotations

import json
import os

from fastapi import HTTPException, Request
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import UserAPIKeyAuth

GROUPS = {"sk-allowed": ["coder", "unpriced"], "sk-revoked": []}
"""Virtual key -> the model groups that it may use."""


async def authenticate(request: Request, api_key: str) -> UserAPIKeyAuth:
    """Allow the master key everything, and a virtual key its own models. The errors have the words of the proxy's own check."""
    if api_key == os.environ["LITELLM_MASTER_KEY"]:
        return UserAPIKeyAuth(api_key=api_key)
    if api_key not in GROUPS:
        raise HTTPException(401, "Authentication Error, Invalid proxy server token passed.")
    if not GROUPS[api_key]:
        raise HTTPException(
            401, "Authentication Error, Key is blocked. Update via `/key/unblock` if you're an admin."
        )
    if request.url.path.startswith("/mcp"):
        return UserAPIKeyAuth(api_key=api_key, models=GROUPS[api_key])
    group = (await request.json()).get("model")
    if group not in GROUPS[api_key]:
        may = GROUPS[api_key]
        raise HTTPException(
            401,
            f"key not allowed to access model. This key can only access models={may}. Tried to access {group}",
        )
    return UserAPIKeyAuth(api_key=api_key, models=GROUPS[api_key])


class Log(CustomLogger):
    """Writes one JSON line for each call that succeeded."""

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        payload = kwargs["standard_logging_object"]
        line = {
            "group": payload["model_group"],
            "tags": payload["request_tags"],
            "metadata": payload["metadata"]["spend_logs_metadata"],
            "cost": payload["response_cost"],
            "streamed": bool(payload["stream"]),
        }
        with open(os.environ["PROXY_LOG"], "a", encoding="utf-8") as file:  # noqa: ASYNC230, PTH123 - one short line
            file.write(json.dumps(line) + "\n")


log = Log()
