"""Clients, administrator's commands and served models of a running platform."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests import forked_commands
from tests.conftest import Running, run_platform, until
from tests.system.ledger import wait_until_seen

MODEL = "tiny-chat"


def openai_of(platform: Running, key: str = "", **changes: Any) -> openai.OpenAI:
    """OpenAI's client with the first key or another one. It does not ask twice."""
    settings = {"max_retries": 0, "timeout": 60, **changes}
    return openai.OpenAI(
        base_url=f"{platform.base_url}/v1", api_key=key or platform.api_key, **settings
    )


def http_of(platform: Running, key: str = "") -> httpx.Client:
    """A client that keeps its connection."""
    return httpx.Client(base_url=platform.base_url, headers=bearer(platform, key), timeout=60)


def async_http_of(platform: Running, **changes: Any) -> httpx.AsyncClient:
    """The same in an event loop."""
    settings = {"base_url": platform.base_url, "headers": bearer(platform), "timeout": 120}
    return httpx.AsyncClient(**{**settings, **changes})


def claude_of(platform: Running) -> anthropic.Anthropic:
    key = platform.api_key
    return anthropic.Anthropic(base_url=platform.base_url, api_key=key, max_retries=0, timeout=60)


def platform_with(**settings: str) -> Any:
    """A fixture: a platform for all tests of a module, with these settings."""

    @pytest.fixture(scope="module")
    def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
        with run_platform(tmp_path_factory.mktemp("platform") / "home", settings) as running:
            yield running

    return platform


def is_ready(platform: Running) -> bool:
    try:
        return httpx.get(f"{platform.base_url}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def bearer(platform: Running, key: str = "") -> dict[str, str]:
    return {"authorization": f"Bearer {key or platform.api_key}"}


def post(platform: Running, path: str, body: Any, key: str = "") -> httpx.Response:
    url, headers = f"{platform.base_url}{path}", bearer(platform, key)
    return httpx.post(url, headers=headers, json=body, timeout=60)


def chat(
    platform: Running, content: Any = "Hello!", *, model: str = MODEL, key: str = "", **fields: Any
) -> httpx.Response:
    """The answer to a message, or to other `messages`."""
    body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
    return post(platform, "/v1/chat/completions", body, key)


def complete(platform: Running, model: str = MODEL, **fields: Any) -> httpx.Response:
    """A short completion."""
    body = {"model": model, "prompt": "one two", "max_tokens": 3, **fields}
    return post(platform, "/v1/completions", body)


def text_of(platform: Running, **fields: Any) -> str:
    """The text of a completion in which nothing is left to chance."""
    response = complete(platform, temperature=0, **fields)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def connect(platform: Running) -> socket.socket:
    url = httpx.URL(platform.base_url)
    return socket.create_connection((url.host, url.port), timeout=60)


def head(platform: Running, request: str, *fields: str, key: str = "") -> bytes:
    """The header of a request such as `GET /livez`, for a connection."""
    host = f"host: {httpx.URL(platform.base_url).netloc.decode()}"
    secret = [f"authorization: Bearer {key}"] if key else []
    return "\r\n".join([f"{request} HTTP/1.1", host, *secret, *fields, "", ""]).encode()


def answers(platform: Running, model: str) -> bool:
    return complete(platform, model).status_code == 200


def vinery(platform: Running, *arguments: str) -> str:
    """Run the `vinery` command beside the running platform. Returns the output, once every web
    process has seen the change."""
    printed = command(platform, *arguments)
    wait_until_seen(platform)
    return printed


def command(platform: Running, *arguments: str) -> str:
    """The same, which does not wait until anyone has seen it."""
    result = forked_commands.run(*arguments, environment=platform.environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def new_key(platform: Running, name: str, *words: str) -> str:
    """The secret of a new key that every web process knows."""
    made = vinery(platform, "key", "create", "--name", name, *words)
    return next(word for word in made.split() if word.startswith("vny_"))


def served(platform: Running) -> dict[str, Any]:
    """The models that can answer now, by name."""
    with http_of(platform) as client:
        return {each["id"]: each for each in client.get("/v1/models").json()["data"]}


@contextmanager
def serving(platform: Running, models: dict[str, Sequence[object]]) -> Iterator[None]:
    """Models that can answer, by name, each with the folder and the options of its command. They
    are removed at the end, because other tests expect one model."""
    for name, words in models.items():
        command(platform, "model", "add", *map(str, words), "--name", name)
    try:
        until(lambda: served(platform).keys() >= models.keys(), timeout_s=60)
        yield
    finally:
        for name in models:
            command(platform, "model", "remove", name)
        wait_until_seen(platform)
