"""Official clients against the whole platform, started as `make up` starts it."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.conftest import Running
from tests.pooling_models import pooling_models

TREES = ("v1", "v3")


@pytest.fixture(params=TREES)
def tree(request: pytest.FixtureRequest) -> str:
    """Either URL tree."""
    return str(request.param)


def strict_client(running: Running, tree: str) -> openai.OpenAI:
    """OpenAI's client, refusing answers that break its own types."""
    return openai.OpenAI(
        base_url=f"{running.base_url}/{tree}",
        api_key=running.api_key,
        max_retries=0,
        timeout=60,
        _strict_response_validation=True,
    )


@pytest.fixture
def client(running: Running, tree: str) -> openai.OpenAI:
    return strict_client(running, tree)


@pytest.fixture
def strict(running: Running) -> openai.OpenAI:
    return strict_client(running, "v1")


@pytest.fixture
def v1(strict: openai.OpenAI) -> openai.OpenAI:
    return strict


@pytest.fixture
def raw(running: Running) -> httpx.Client:
    """Plain HTTP with the key."""
    return httpx.Client(
        base_url=running.base_url,
        headers={"authorization": f"Bearer {running.api_key}"},
        timeout=60,
    )


@pytest.fixture(scope="module")
def with_every_task(running: Running) -> Iterator[Running]:
    """The shared platform with models that chat, embed and rank."""
    with pooling_models(running):
        yield running
