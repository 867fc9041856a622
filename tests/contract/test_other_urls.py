"""URLs, keys and probes of clients that were made for other servers."""

from typing import Any

import httpx
import openai
import pytest

from tests.conftest import Running
from tests.tables import table

from .tiny_chat import CAPITAL, MODEL, PARIS, QUESTION


def azure(running: Running, **options: Any) -> openai.AzureOpenAI:
    """Azure's client, which sends its key as `api-key` and names the model in the path."""
    return openai.AzureOpenAI(
        azure_endpoint=running.base_url,
        api_key=running.api_key,
        api_version="2024-10-21",
        max_retries=0,
        timeout=60,
        **options,
    )


def test_azures_client_chats_streams_completes_responds_and_lists_models(running: Running) -> None:
    client = azure(running)

    answer = client.chat.completions.create(model=MODEL, messages=QUESTION)
    chunks = client.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)

    assert (answer.choices[0].message.content, answer.model) == (PARIS, MODEL)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == PARIS
    assert client.completions.create(model=MODEL, prompt="Hello", max_tokens=2).model == MODEL
    assert MODEL in [model.id for model in client.models.list()]
    assert client.responses.create(model=MODEL, input=CAPITAL).output_text == PARIS


def test_the_deployment_of_the_path_replaces_the_model_of_the_body(running: Running) -> None:
    client = azure(running, azure_deployment=MODEL)

    answer = client.chat.completions.create(model="gpt-4o", messages=QUESTION)

    assert answer.model == MODEL
    with pytest.raises(openai.NotFoundError) as refused:
        azure(running).chat.completions.create(model="none", messages=QUESTION)
    assert refused.value.code == "model_not_found"


@table("base", ["/v1/", "//v1", "/v1/v1", "/v3/v1", "/openai/v1", "/openai//v1/"])
def test_openais_client_works_with_a_base_url_that_has_too_much(
    running: Running, base: str
) -> None:
    url = running.base_url + base
    headers = {"authorization": f"Bearer {running.api_key}"}

    chat = httpx.post(
        f"{url}/chat/completions", headers=headers, json={"messages": QUESTION}, timeout=60
    )
    models = httpx.get(f"{url}/models", headers=headers)

    assert chat.json()["choices"][0]["message"]["content"] == PARIS
    assert models.json()["data"][0]["id"] == MODEL


@table("path", ["/v1//chat/completions", "/openai/v1/chat/completions"])
@table("headers", [{}, {"api-key": "vny_live_none"}, {"x-api-key": "a"}])
def test_no_url_and_no_header_is_answered_without_a_key(
    running: Running, path: str, headers: dict[str, str]
) -> None:
    deployment = f"/openai/deployments/{MODEL}/chat/completions"
    for url in (path, deployment):
        response = httpx.post(running.base_url + url, json={"messages": []}, headers=headers)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"


def test_a_probe_gets_an_empty_200_and_only_ping_may_be_posted(running: Running) -> None:
    for path in ("/health", "/ping"):
        response = httpx.get(running.base_url + path)
        assert (response.status_code, response.content) == (200, b"")
    assert httpx.post(f"{running.base_url}/ping").status_code == 200
    assert httpx.post(f"{running.base_url}/health").status_code == 405


@table("value", ["", "yes", "2"])
def test_a_flag_of_a_url_that_is_neither_true_nor_false_is_refused(
    v1: openai.OpenAI, value: str
) -> None:
    with pytest.raises(openai.BadRequestError, match="`all` must be true or false") as refused:
        v1.models.list(extra_query={"all": value})
    assert refused.value.param == "all"
