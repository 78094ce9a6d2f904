"""A key, a password, and a server that repeats everything that it gets."""

from __future__ import annotations

from support.servers import ScriptedServer

KEY = "opaque+Q7/x9.Zp3wVt"  # this key does not look like a key: it is hidden only because a run was given it

PASSWORD = "S3cretPw99"


def echoing(status=401):
    """Return a server that refuses each request. Its error repeats the whole request."""

    def reply(request):
        headers = "; ".join(f"{name}: {value}" for name, value in request.headers.items())
        echo = f"refused. You sent {request.path} {headers} {request.raw.decode()}"
        return {"status": status, "body": {"error": {"message": echo, "type": "x", "code": "y"}}}

    return ScriptedServer(reply)
