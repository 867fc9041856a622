"""Official clients against the whole platform, started as `make up` starts it."""

from collections.abc import Iterator, Sequence
from zlib import crc32

import httpx
import openai
import pytest

from tests.conftest import Running
from tests.examples import FACTOR
from tests.pooling_models import pooling_models

TREES = ("v1", "v3")


def trees_of(name: str) -> Sequence[str]:
    """The URL trees of a test or a row of this name: by day one of the two, which the name decides,
    so that each has half of the tests; by night both."""
    return TREES if FACTOR > 1 else TREES[crc32(name.encode()) % 2 :][:1]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where the trees differ, a test names them itself."""
    is_own = any("tree" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "tree" in metafunc.fixturenames and not is_own:
        metafunc.parametrize("tree", trees_of(metafunc.function.__name__))


@pytest.fixture
def client(running: Running, tree: str) -> openai.OpenAI:
    """OpenAI's client, refusing answers that break its own types."""
    return openai.OpenAI(
        base_url=f"{running.base_url}/{tree}",
        api_key=running.api_key,
        max_retries=0,
        timeout=60,
        _strict_response_validation=True,
    )


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
