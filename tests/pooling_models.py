"""The embeddings model and the rerank model that ship, on a running platform."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.conftest import Running, until
from tests.system.commands import vinery

POOLING_MODELS = ("tiny-embed", "tiny-rerank")


@contextmanager
def pooling_models(running: Running) -> Iterator[Running]:
    """Both are loaded; they are removed at the end, because other tests expect one model."""
    for name in POOLING_MODELS:
        vinery(running, "model", "add", name)
    try:
        until(lambda: served(running).keys() >= set(POOLING_MODELS), timeout_s=60)
        yield running
    finally:
        for name in POOLING_MODELS:
            vinery(running, "model", "remove", name)


def served(running: Running) -> dict[str, Any]:
    """The models that can answer now, by name."""
    headers = {"authorization": f"Bearer {running.api_key}"}
    answer = httpx.get(f"{running.base_url}/v1/models", headers=headers).json()
    return {each["id"]: each for each in answer["data"]}
