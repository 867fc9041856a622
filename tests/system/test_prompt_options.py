"""What an administrator allows for a model: limits, and templates of requests; and a model
that fills in the middle."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import Running, until
from tests.prompting.builders import MODEL as TINY_CHAT
from tests.prompting.builders import name_markers
from tests.system.clients import http_of, serving
from tests.system.ledger import metric
from tests.tables import table

pytestmark = pytest.mark.system

MARKERS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
OPTIONS = {
    "max_tokens_limit": "12",
    "best_of_limit": "2",
    "trust_request_chat_template": "true",
}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n<think>\n\n</think>{{ '\n\n' }}"
)
ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def client(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("models") / "coder"
    shutil.copytree(TINY_CHAT, folder, ignore=shutil.ignore_patterns("openvino_tokenizer*"))
    name_markers(folder, MARKERS)
    options = [word for key, value in OPTIONS.items() for word in ("--option", f"{key}={value}")]
    with serving(running, {"coder": [folder, *options]}), http_of(running) as client:
        yield client


def complete(client: httpx.Client, tree: str = "v1", **fields: Any) -> httpx.Response:
    return client.post(
        f"/{tree}/completions", json={"model": "coder", "prompt": "Once upon", **fields}
    )


def chat(client: httpx.Client, **fields: Any) -> httpx.Response:
    return client.post(
        "/v1/chat/completions", json={"model": "coder", "messages": QUESTION, **fields}
    )


@table("tree", ["v1", "v3"])
def test_the_models_limit_is_the_default_and_may_not_be_exceeded(
    client: httpx.Client, tree: str
) -> None:
    usual = complete(client, tree, ignore_eos=True).json()
    assert usual["usage"]["completion_tokens"] == 12
    assert usual["choices"][0]["finish_reason"] == "length"

    assert complete(client, tree, max_tokens=12).status_code == 200
    error = complete(client, tree, max_tokens=13).json()["error"]
    assert error["param"] == "max_tokens"
    assert "at most 12" in error["message"]
    assert chat(client, max_completion_tokens=13).json()["error"]["param"] == (
        "max_completion_tokens"
    )


def test_the_number_of_answers_is_limited(client: httpx.Client) -> None:
    assert len(complete(client, n=2).json()["choices"]) == 2
    assert complete(client, n=3).json()["error"]["param"] == "n"


@table("tree", ["v1", "v3"])
def test_a_middle_is_filled_in(client: httpx.Client, tree: str) -> None:
    def tokens(text: str) -> int:
        count: int = client.post("/tokenize", json={"model": "coder", "prompt": text}).json()[
            "count"
        ]
        return count

    answer = complete(client, tree, suffix=" the end", echo=True, max_tokens=4).json()

    assert answer["usage"]["prompt_tokens"] == 3 + tokens("Once upon") + tokens(" the end")
    assert answer["choices"][0]["text"].startswith("Once upon")
    assert answer["usage"]["completion_tokens"] >= 1


def test_a_template_of_a_request_renders_its_chat(client: httpx.Client) -> None:
    own = chat(client).json()
    brought = chat(client, chat_template=CHATML).json()
    counted = client.post(
        "/tokenize", json={"model": "coder", "messages": QUESTION, "chat_template": CHATML}
    ).json()

    assert brought["choices"][0]["message"] == own["choices"][0]["message"]
    assert brought["usage"]["prompt_tokens"] == own["usage"]["prompt_tokens"] == counted["count"]


async def test_an_endless_template_is_ended_while_others_are_answered(
    client: httpx.Client, running: Running
) -> None:
    async with httpx.AsyncClient(
        base_url=client.base_url, headers=client.headers, timeout=60
    ) as others:
        body = {"model": "coder", "messages": QUESTION}
        endless = asyncio.create_task(
            others.post("/v1/chat/completions", json={**body, "chat_template": ENDLESS})
        )
        await asyncio.to_thread(until, lambda: metric(running, "vinery_work_running") > 0)
        answers = [await others.post("/v1/chat/completions", json=body)]
        was_endless = not endless.done()
        answers += [await others.post("/v1/chat/completions", json=body) for _ in range(2)]
        response = await endless

    assert [answer.status_code for answer in answers] == [200] * 3
    assert was_endless
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "chat_template"
    assert "too long" in error["message"]
