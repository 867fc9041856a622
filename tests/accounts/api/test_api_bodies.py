"""Bodies of requests to the management API, with size and media type."""

import io
import json
from typing import Any

import pytest
from api_client import Api, Tenant
from django.core.exceptions import RequestDataTooBig
from django.core.handlers.asgi import ASGIRequest
from django.urls import resolve

from tests.tables import table
from vinery_accounts.keys.lifecycle import NewKey
from vinery_accounts.models import ApiKey


@table(
    "method, path, body",
    [
        ("POST", "limits/", {"scope": "\ud800"}),
        ("POST", "limits/", {"\ud800": 1}),
        ("POST", "keys/", {"name": "k", "scopes": ["usage", "\udbff"]}),
        ("PATCH", "organizations/{}/", {"name": "\ud800"}),
        ("POST", "organizations/{}/activate/", {"\udc00": "x"}),
    ],
)
def test_half_a_pair_is_400(root: Api, ours: Tenant, method: str, path: str, body: object) -> None:
    error = root.error(method, path.format(ours.organization.pk), body)

    assert error == (400, "invalid_json", None)


@table("method", ["POST", "PATCH"])
def test_a_large_body_returns_413(root: Api, ours: Tenant, settings: Any, method: str) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    path = "organizations/" if method == "POST" else f"organizations/{ours.organization.pk}/"
    response = root.request(method, path, {"name": "x" * 1000})

    assert response.status_code == 413
    error = response.json()["error"]
    assert error["code"] == "request_too_large"
    assert error["message"] == "The request body is larger than 1 MB."


def send_in_chunks(new: NewKey, body: bytes) -> int:
    """Send a chunked request for a new key, without a content length. Returns the status."""
    headers = [
        (b"authorization", f"Bearer {new.secret}".encode()),
        (b"content-type", b"application/json"),
        (b"transfer-encoding", b"chunked"),
    ]
    scope = {"type": "http", "method": "POST", "path": "/api/keys/", "headers": headers}
    response = resolve("/api/keys/").func(ASGIRequest(scope, io.BytesIO(body)))
    return int(response.status_code)


def test_the_server_reads_a_chunked_body_up_to_the_limit(ours: Tenant, settings: Any) -> None:
    management_key = ours.key(ours.one, scopes=["manage"])

    body = json.dumps({"name": "in chunks", "project": ours.one.pk}).encode()
    assert send_in_chunks(management_key, body) == 201
    assert ApiKey.objects.filter(name="in chunks").exists()
    assert send_in_chunks(management_key, b"") == 400
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    with pytest.raises(RequestDataTooBig):  # Django returns 413 for this error.
        send_in_chunks(management_key, b" " * 1001)


def test_the_api_refuses_other_bodies_media_types_and_methods(root: Api, ours: Tenant) -> None:
    for body in ("{", "[]", '"x"', "null", "1"):
        assert root.error("POST", "organizations/", body)[0] == 400, body
    for opening in ("[", '{"name":['):
        nested = root.error("POST", "organizations/", opening * 100_000)
        assert nested == (400, "invalid_json", None)
    # A pair of surrogates is one character.
    assert root.post("organizations/", '{"name": "\\ud83d\\ude80"}')["name"] == "\N{ROCKET}"
    response = root.client.post("/api/organizations/", "name=x", content_type="text/plain")
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_media_type"
    assert root.error("PUT", f"organizations/{ours.organization.pk}/", {})[0] == 405
