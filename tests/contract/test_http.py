"""HTTP: errors, headers, keys, CORS, models."""

import json
from typing import Any

import httpx

from tests.conftest import Running
from tests.tables import golden_errors, table

from .conftest import TREES
from .tiny_chat import CONTEXT, MODEL, OPENAI

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}]}
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": CHAT,
    "completions": {"model": MODEL, "prompt": "Hello", "max_tokens": 2},
    "responses": {"model": MODEL, "input": "Hello!"},
}

both_trees = table("tree", TREES)


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["x-request-id"]
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@both_trees
@table(
    "authorization",
    [None, "Bearer", "Bearer EMPTY", "Basic dXNlcjpwYXNz", "Bearer vny_live_" + "a" * 38],
)
@table("path", [*OPENAI, "models"])
def test_a_bad_key_is_401(
    running: Running, tree: str, path: str, authorization: str | None
) -> None:
    headers = {"authorization": authorization} if authorization is not None else {}
    method, body = ("GET", None) if path == "models" else ("POST", BODIES[path])
    url = f"{running.base_url}/{tree}/{path}"
    response = httpx.request(method, url, headers=headers, json=body)

    assert response.status_code == 401
    assert error_of(response)["code"] == "invalid_api_key"


@both_trees
def test_a_model_is_found_with_its_context_and_abilities(raw: httpx.Client, tree: str) -> None:
    listed = raw.get(f"/{tree}/models").json()
    found = raw.get(f"/{tree}/models/{MODEL}").json()

    assert found in listed["data"]
    assert (listed["object"], found["object"], found["id"]) == ("list", "model", MODEL)
    assert isinstance(found["created"], int)
    assert found["owned_by"]

    assert found["state"] == "loaded"
    for name in ("max_model_len", "context_length", "max_context_length"):
        assert found[name] == CONTEXT
    assert found["top_provider"]["context_length"] == CONTEXT
    assert found["architecture"]["input_modalities"] == ["text"]
    assert found["capabilities"] == {
        **dict.fromkeys(("completion_fim", "vision", "audio"), False),
        **dict.fromkeys(("completion", "completion_chat", "function_calling"), True),
        **dict.fromkeys(("reasoning", "structured_outputs"), True),
    }
    assert {"tools", "tool_choice", "response_format", "reasoning"} <= set(
        found["supported_parameters"]
    )


AS_JSON = {"content-type": "application/json"}
UNKNOWN = {"code": "model_not_found"}
SCHEMA = {"type": "object", "properties": {"a": {"$ref": "#/none"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
# A method and a path, what is sent, and the status and members of the error.
WRONG: list[tuple[str, dict[str, Any], int, dict[str, Any]]] = [
    ("GET models/org%2Fnone", {}, 404, UNKNOWN),
    ("POST chat/completions", {"json": {**CHAT, "model": "org/none"}}, 404, UNKNOWN),
    (
        "POST chat/completions",
        {"json": {**CHAT, "tools": [TOOL], "tool_choice": "required"}},
        400,
        {"code": "invalid_grammar"},
    ),
    *(
        (f"POST {endpoint}", {"content": b"{}", "headers": {"content-type": media}}, 415, {})
        for endpoint in OPENAI
        for media in ("application/x-www-form-urlencoded", "text/plain")
    ),
    *(
        (f"GET {path}", {}, 404, {})
        for path in ("nothing", "chat", "", "chat/completions/x", "models/a/b")
    ),
    *((f"{method} {path}", {}, 405, {}) for path in OPENAI for method in ("PUT", "DELETE")),
    *((f"GET {path}", {}, 405, {}) for path in OPENAI if path != "chat/completions"),
    ("POST models", {}, 405, {}),
]


@both_trees
@table("asked, sent, status, members", WRONG)
def test_a_wrong_request_gets_an_error_in_json(
    raw: httpx.Client, tree: str, asked: str, sent: Any, status: int, members: dict[str, Any]
) -> None:
    method, _, path = asked.partition(" ")

    response = raw.request(method, f"/{tree}/{path}", **sent)

    assert response.status_code == status
    assert error_of(response).items() >= members.items()
    assert bool(response.headers.get("allow")) == (status == 405)
    if status == 415:
        assert "application/json" in error_of(response)["message"]


def test_a_base_url_without_v1_gets_an_error_that_names_it(raw: httpx.Client) -> None:
    preflight = raw.options("/chat/completions")
    response = raw.post("/chat/completions", json=CHAT)

    assert preflight.status_code == 204
    assert response.status_code == 404
    assert response.headers["access-control-allow-origin"] == "*"
    assert "/v1" in error_of(response)["message"]


@both_trees
def test_the_api_is_reached_by_any_host_name(raw: httpx.Client, tree: str) -> None:
    host = {"host": "inference.internal:8000"}

    assert raw.get(f"/{tree}/models", headers=host).status_code == 200
    assert raw.get(f"/{tree}/nothing", headers=host).status_code == 404
    assert raw.post(f"/{tree}/chat/completions", json=CHAT, headers=host).status_code == 200


def test_the_site_is_reached_by_its_own_host_names_only(raw: httpx.Client) -> None:
    host = {"host": "evil.example"}
    elsewhere = raw.get("/nothing", headers=host)

    assert raw.get("/admin/login/", headers=host).status_code == 400
    assert elsewhere.status_code == 400
    assert "VINERY_ALLOWED_HOSTS" in error_of(elsewhere)["message"]


@both_trees
@table("path", [*OPENAI, "models", "models/x", "nothing"])
def test_preflight_needs_no_key_and_reflects_headers(
    running: Running, tree: str, path: str
) -> None:
    response = httpx.options(
        f"{running.base_url}/{tree}/{path}",
        headers={
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,x-stainless-lang,x-new",
        },
    )

    assert response.status_code in (200, 204)
    assert response.headers["access-control-allow-origin"] == "*"
    assert "x-new" in response.headers["access-control-allow-headers"]
    assert "POST" in response.headers["access-control-allow-methods"]


@both_trees
def test_every_answer_has_the_headers_of_openai_and_names_the_organisation_of_the_key(
    running: Running, raw: httpx.Client, tree: str
) -> None:
    mine = raw.get(f"/{tree}/usage/me")
    known = [
        mine,
        raw.post(f"/{tree}/chat/completions", json=CHAT),
        raw.post(f"/{tree}/chat/completions", json={**CHAT, "stream": True}),
        raw.post(f"/{tree}/chat/completions", json={}),
        raw.post(f"/{tree}/tokenize", json={"model": MODEL, "prompt": "Hello"}),
        raw.get(f"/{tree}/models"),
        raw.get(f"/{tree}/models/{MODEL}"),
        raw.get(f"/{tree}/models/nothing"),
    ]
    unknown = [
        raw.get(f"/{tree}/nothing"),
        raw.request("OPTIONS", f"/{tree}/chat/completions"),
        httpx.get(f"{running.base_url}/{tree}/models"),
        httpx.post(f"{running.base_url}/{tree}/chat/completions", json=CHAT),
    ]

    organization = mine.json()["organization"]["name"]
    assert organization
    for answer in known + unknown:
        named = [organization] if answer in known else []
        assert answer.headers.get_list("openai-organization") == named
        assert answer.headers.get_list("openai-version") == ["2020-10-01"]
        assert answer.headers["x-request-id"]
        # A browser may read the answer.
        assert answer.headers["access-control-allow-origin"] == "*"
        if answer.request.method != "OPTIONS":
            exposed = answer.headers["access-control-expose-headers"].split(", ")
            assert {"x-request-id", "openai-version", "openai-organization"} <= set(exposed)


@both_trees
@table("endpoint", OPENAI)
def test_a_stream_is_framed_as_server_sent_events(
    raw: httpx.Client, tree: str, endpoint: str
) -> None:
    headers = {"accept": "application/json", "accept-encoding": "gzip"}
    body = {**BODIES[endpoint], "stream": True}
    response = raw.post(f"/{tree}/{endpoint}", json=body, headers=headers)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert "content-encoding" not in response.headers
    assert response.text.endswith("data: [DONE]\n\n")
    for block in response.text.removesuffix("data: [DONE]\n\n").strip().split("\n\n"):
        *names, data = block.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert names == ([f"event: {payload['type']}"] if endpoint == "responses" else [])


@table(
    "headers",
    [{}, {"content-type": "Application/JSON; charset=utf-8"}, {"content-type": "text/json"}],
)
def test_a_body_without_a_content_type_is_read(raw: httpx.Client, headers: dict[str, str]) -> None:
    body = json.dumps(CHAT).encode()

    assert raw.post("/v1/chat/completions", content=body, headers=headers).status_code == 200


# -- Models ----------------------------------------------------------------------------------


def test_every_parameter_of_the_list_is_one_that_chats_take(raw: httpx.Client) -> None:
    model = raw.get(f"/v1/models/{MODEL}").json()
    schemas = raw.get("/openapi.json").json()["components"]["schemas"]
    chat = schemas["ChatBody"]

    honoured = {name for name, text in chat["x-foreign"].items() if text.startswith("honoured")}
    taken = {name for name, each in chat["properties"].items() if "x-refused" not in each}
    assert set(model["supported_parameters"]) <= honoured | taken


@both_trees
def test_all_models_may_be_listed_and_another_value_of_all_is_refused(
    raw: httpx.Client, tree: str
) -> None:
    for value in ("true", "1", "True", "false", "0"):
        listed = raw.get(f"/{tree}/models", params={"all": value})
        assert [model["id"] for model in listed.json()["data"]] == [MODEL], value
    refused = raw.get(f"/{tree}/models", params={"all": "some"})

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "all"


# -- Errors that need a server ---------------------------------------------------------------


# A row has a path, what is sent, and the error; the defaults are POST and 400.
ERRORS: list[dict[str, Any]] = [
    {
        "path": "completions",
        "content": lambda: bytes(64 * 2**20 + 1),
        "status": 413,
        "code": "request_too_large",
        "message": "The request body is larger than 64 MB.",
    },
    {
        "path": "completions",
        "content": b"",
        "code": "invalid_json",
        "message": "The request body cannot be read: it is empty.",
    },
    *golden_errors("tiny-chat"),
]


@both_trees
@table("row", ERRORS)
def test_the_error_is_the_one_in_the_table(
    raw: httpx.Client, tree: str, row: dict[str, Any]
) -> None:
    content = row.get("content")
    sent = content() if callable(content) else content
    body: dict[str, Any] = {"json": row.get("body")} if sent is None else {"content": sent}
    response = raw.request(
        row.get("method", "POST"), f"/{tree}/{row['path']}", headers=AS_JSON, timeout=60, **body
    )

    assert response.status_code == row.get("status", 400), response.text
    error = {"type": "invalid_request_error", "param": row.get("param"), "code": row["code"]}
    assert response.json() == {"error": {"message": row["message"], **error}}
    assert response.headers["x-request-id"]
