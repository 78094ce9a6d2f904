"""A key, a password, and a server that repeats whatever it was sent."""

from __future__ import annotations

from support.servers import ScriptedServer

KEY = "opaque+Q7/x9.Zp3wVt"  # of no known shape: it is hidden because it is known, not because it looks like a key

PASSWORD = "S3cretPw99"


def echoing(status=401):
    """A server that refuses each request and repeats everything it was sent in its error."""

    def reply(request):
        headers = "; ".join(f"{name}: {value}" for name, value in request.headers.items())
        echo = f"refused. You sent {request.path} {headers} {request.raw.decode()}"
        return {"status": status, "body": {"error": {"message": echo, "type": "x", "code": "y"}}}

    return ScriptedServer(reply)
