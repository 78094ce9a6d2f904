"""Fixtures that the tests of connections share."""

from __future__ import annotations

import importlib.util

import pytest

from support import mcp_server
from support.optional import optional


@pytest.fixture(autouse=True)
def client():
    """The official client, which is an optional package."""
    optional(importlib.util.find_spec("mcp"), "the package mcp")


@pytest.fixture
def connect():
    """`connect()`. Its connections are closed after the test."""
    from toolloop_jupyter.mcp import connect

    made = []

    def connecting(*args, **keywords):
        made.append(connect(*args, **keywords))
        return made[-1]

    yield connecting
    for one in made:
        one.close()


@pytest.fixture
def server():
    """A server of this process."""
    return mcp_server.make_server()


@pytest.fixture(params=["memory", "stdio", "http"])
def connection(request, connect):
    """A connection to the working server, over each transport."""
    if request.param == "memory":
        return connect(mcp_server.make_server())
    if request.param == "stdio":
        return connect(mcp_server.command(), env=mcp_server.environment())
    return connect(request.getfixturevalue("address"))


@pytest.fixture
def address():
    """The address of a server over HTTP."""
    with mcp_server.serve_http() as address:
        yield address
