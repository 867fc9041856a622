"""What keys of each scope may ask of the serving API: one rule on every route."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gateway.endpoints.test_requests import Server
from vinery_accounts.keys.grants import Grants
from vinery_accounts.keys.table import Caller
from vinery_accounts.models import Scope
from vinery_serving.protocols.openapi import document

_USAGE = "/usage/me"
# Paths that other servers have.
_OTHER_FORMS = [
    ("post", "/tokenize"), ("post", "/v3/detokenize"), ("post", "/v2/rerank"), ("post", "/score"),
    ("get", "/tokenizer_info"), ("get", "/v3/models"), ("get", "/v1/models/org/name"),
    ("get", "/v1/usage/me"), ("get", "/v3/usage/me/"), ("get", "/v1/responses/r"),
    ("get", "/v1/responses/r/input_items"), ("post", "/v1/responses/r/cancel"),
    ("post", "/openai/deployments/m/chat/completions"), ("get", "//v1/models"),
]  # fmt: skip


def routes() -> list[tuple[str, str]]:
    """The method and path of all operations that need a key."""
    paths = document(version="", max_body_mb=1)["paths"]
    described = [
        (method, re.sub(r"\{\w+\}", "x", path))
        for path, operations in paths.items()
        for method, operation in operations.items()
        if method in ("get", "post", "delete") and operation.get("security") != []
    ]
    return [*described, *_OTHER_FORMS]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    server = Server(tmp_path)
    server.runtime.directory.entries_of = lambda _: {}
    return server


def let_in(server: Server, *scopes: Scope, endpoint: str | None = None) -> None:
    endpoints = None if endpoint is None else frozenset({endpoint})
    grants = Grants(frozenset(map(str, scopes)), endpoints=endpoints)
    caller = Caller(user_id=1, username="u", key_id=1, key_name="k", grants=grants)
    server.runtime.required_keys = SimpleNamespace(authenticate=lambda _: caller)


async def refused(server: Server, why: bytes = b"lacks the scope") -> set[str]:
    """The paths that are refused for want of a scope."""
    found = set()
    for method, path in routes():
        status, body = await server.post(path, b"{}", method.upper())
        if status == 403 and why in body:
            found.add(path)
    return found


async def test_keys_without_the_scope_inference_read_their_usage_and_nothing_else(server: Server):
    every = {path for _, path in routes()}
    usage = {path for path in every if _USAGE in path}
    assert len(every) > 25
    assert usage
    let_in(server, Scope.USAGE)
    assert await refused(server) == every - usage
    let_in(server, Scope.MANAGE, Scope.ADMIN)
    assert await refused(server) == every
    let_in(server, Scope.INFERENCE)
    assert await refused(server) == usage


def storing_endpoint(path: str) -> str | None:
    """The endpoint that stores what a path reads or changes; None for other paths."""
    name = path.rpartition("/v1/")[2].rpartition("/v3/")[2]
    if name.startswith(("responses", "conversations")):
        return "responses"
    return "chat/completions" if name.startswith("chat/completions") else None


async def test_a_key_reads_what_an_endpoint_stores_only_if_it_may_call_it(server: Server) -> None:
    stored = {path for _, path in routes() if storing_endpoint(path) is not None}
    assert {storing_endpoint(path) for path in stored} == {"responses", "chat/completions"}
    assert len(stored) > 20
    for endpoint in ("responses", "chat/completions", "embeddings"):
        let_in(server, Scope.INFERENCE, endpoint=endpoint)
        others = {path for path in stored if storing_endpoint(path) != endpoint}
        assert await refused(server, b"may not call") & stored == others
