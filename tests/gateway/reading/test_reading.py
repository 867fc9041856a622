"""A worker prepares a request as the web process does, and within limits."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.gateway.reading.readers import LARGE, new_pool, read
from tests.gateway.running.tiny_chat import new_engine
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, ServingError
from vinery_serving.core.request import Endpoint, GenerationRequest
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.preparing.prepared import Draft
from vinery_serving.gateway.workers.pool import WorkerPool, WorkLimits
from vinery_serving.media.decoding import DecodeLimits

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = WorkLimits(
    num_processes=2, cpu_s=2, wall_s=60, memory_bytes=512 * 2**20, max_waiting=9, wait_s=60
)
_HANGING_S = 60

USER = {"role": "user", "content": "Hello!"}
TOOL = {
    "type": "function",
    "function": {
        "name": "ping",
        "description": "Ping",
        "parameters": {"type": "object", "properties": {"a": {"type": "number", "maximum": 1e300}}},
    },
}
REQUESTS: list[tuple[Endpoint, dict[str, Any]]] = [
    (Endpoint.CHAT, {"messages": [USER]}),
    (Endpoint.CHAT, {"messages": [USER, {"role": "assistant", "content": "Hi"}, USER], "n": 3}),
    (Endpoint.CHAT, {"messages": [USER], "tools": [TOOL], "tool_choice": "required"}),
    (Endpoint.CHAT, {"messages": [USER], "functions": [TOOL["function"]], "stream": True}),
    (Endpoint.CHAT, {"messages": [USER], "logprobs": True, "top_logprobs": 3}),
    (Endpoint.CHAT, {"messages": [USER], "logit_bias": {"5": 3}, "bad_words": ["no"]}),
    (Endpoint.CHAT, {"messages": [USER], "guided_regex": "[ab]+"}),
    (Endpoint.CHAT, {"messages": [USER], "guided_choice": ["a", "b"], "metadata": {"a": "b"}}),
    (Endpoint.CHAT, {"messages": [USER], "stop": ["x"], "return_token_ids": True}),
    (Endpoint.COMPLETIONS, {"prompt": ["Hi", "there"], "echo": True, "logprobs": 1}),
    (Endpoint.COMPLETIONS, {"prompt": [[5, 6], [7]], "best_of": 2}),
    (Endpoint.RESPONSES, {"input": "Hello!", "instructions": "Be kind.", "tools": []}),
    (Endpoint.RESPONSES, {"input": [USER], "text": {"format": {"type": "json_object"}}}),
    (
        Endpoint.RESPONSES,
        {"input": "Hi", "tools": [{"type": "function", **TOOL["function"]}], "stream": True},
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[WorkerPool]:
    """A pool for all tests, because a fork server takes a second to start."""
    async with new_pool(LIMITS) as pool:
        yield pool


@pytest_asyncio.fixture(loop_scope="module")
async def own_pool() -> AsyncIterator[WorkerPool]:
    """For a test that loads something else, or counts processes."""
    async with new_pool(LIMITS) as pool:
        yield pool


@pytest_asyncio.fixture(loop_scope="module")
async def engine(tmp_path: Path) -> Engine:
    return new_engine(tmp_path, trust_request_chat_template=True)


async def chat(pool: WorkerPool, engine: Engine, **fields: Any) -> Draft:
    body = json.dumps({"messages": [USER], **fields}).encode()
    draft: Draft = (await read(pool, engine, Endpoint.CHAT, body))[1]
    return draft


def parts_of(error: ServingError) -> tuple[object, ...]:
    return type(error), error.message, error.param, error.code, error.type


async def test_a_large_body_is_prepared_as_a_small_one(pool: WorkerPool, engine: Engine) -> None:
    for endpoint, fields in REQUESTS:
        for tree in ("v1", "v3"):
            body = json.dumps({"seed": 7, **fields})
            small, here = await read(pool, engine, endpoint, body.encode(), tree=tree)
            large, there = await read(pool, engine, endpoint, (body + LARGE).encode(), tree=tree)

            assert ids_of(there) == ids_of(here)
            assert there.submits == here.submits
            assert getattr(there.request.prompt, "messages", ()) == ()
            assert there.num_returned == here.num_returned
            assert like(here.request, there.request) == here.request
            assert replace(large, request=like(small.request, large.request)) == small


def ids_of(draft: Draft) -> list[tuple[int, ...]]:
    return [prompt.token_ids for prompt in draft.prompts]


def like(whole: GenerationRequest, slim: GenerationRequest) -> GenerationRequest:
    """The slim request with the parts of the whole request that only rendering needs."""
    assert slim.num_prompts == whole.num_prompts
    return replace(slim, prompt=whole.prompt, grammar=whole.grammar)


REFUSED: list[tuple[Endpoint, str]] = [
    (Endpoint.CHAT, "{"),
    (Endpoint.CHAT, '{"messages": [{"role": "user", "content": "\\ud800"}]}'),
    (Endpoint.CHAT, '{"messages": [], "n": "x"}'),
    (Endpoint.COMPLETIONS, '{"prompt": [99999999]}'),
    (Endpoint.COMPLETIONS, json.dumps({"prompt": "a b " * 9000})),
    (Endpoint.CHAT, json.dumps({"messages": [USER], "guided_json": {"type": "nothing"}})),
]


async def test_a_refusal_of_a_worker_is_that_of_the_web_process(
    pool: WorkerPool, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for endpoint, text in REFUSED:
        body = (text + LARGE).encode()
        with pytest.raises(ServingError) as there:
            await read(pool, engine, endpoint, body)
        with monkeypatch.context() as patch:
            patch.setattr("vinery_serving.gateway.reading.reading.SMALL_BODY_BYTES", len(body))
            with pytest.raises(ServingError) as here:
                await read(pool, engine, endpoint, body)
        assert parts_of(there.value) == parts_of(here.value)


def endless_schema(depth: int = 60) -> dict[str, Any]:
    """A short schema that needs 2^depth steps where alternatives are counted one by one."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    items = {"$ref": "#/$defs/n"}
    node = {"anyOf": [{"items": items}, {"items": items}]}
    return {"$defs": {"n": node}, "const": value, "items": items}


ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)


async def test_a_short_schema_of_much_work_ends_and_an_endless_template_is_refused(
    pool: WorkerPool, engine: Engine
) -> None:
    """Refusals of patterns are decided elsewhere: see `serving/vinery_serving/grammars`."""
    async with asyncio.timeout(_HANGING_S):
        with contextlib.suppress(InvalidRequest):
            await chat(pool, engine, max_tokens=1, guided_json=endless_schema())

    async with asyncio.timeout(_HANGING_S):
        with pytest.raises(InvalidRequest, match="takes too long"):
            await chat(pool, engine, chat_template=ENDLESS)


@table("padding", ["", LARGE])
async def test_no_other_client_uses_the_process_of_a_template(
    pool: WorkerPool, engine: Engine, padding: str
) -> None:
    num_killed = pool.num_killed
    template = "a{{ messages[0].content }}{#" + padding + "#}"
    draft = await chat(pool, engine, chat_template=template)

    assert draft.prompts[0].token_ids
    assert pool.num_killed == num_killed + 1


TOKENS: list[tuple[str, dict[str, Any]]] = [
    ("tokenize", {"prompt": "Hi there", "return_token_strs": True}),
    ("tokenize", {"text": ["Hi", "there"]}),
    ("tokenize", {"messages": [USER]}),
    ("detokenize", {"tokens": [5, 6, 7]}),
    ("responses/input_tokens", {"input": "Hello!"}),
    ("messages/count_tokens", {"messages": [{"role": "user", "content": "Hello!"}]}),
]


async def test_a_tokenizer_answers_in_both_processes(pool: WorkerPool, engine: Engine) -> None:
    num_before = pool.num_ended["tokens", "ok"]
    for name, fields in TOKENS:
        body = json.dumps(fields)
        here = await read(pool, engine, name, body.encode())
        assert here == await read(pool, engine, name, (body + LARGE).encode())
    assert pool.num_ended["tokens", "ok"] == num_before + len(TOKENS)
    # A short body may ask for a long answer.
    long = {"prompt": "Hi", "max_length": 9000, "pad_to_max_length": True}
    await read(pool, engine, "tokenize", json.dumps(long).encode())
    assert pool.num_ended["tokens", "ok"] == num_before + len(TOKENS) + 1


async def test_a_worker_imports_neither_django_nor_an_engine() -> None:
    code = (
        "import sys, vinery_serving.gateway.reading.worker_jobs\n"
        "import vinery_serving.gateway.workers.worker\n"
        "print([name for name in ('django', 'channels', 'openvino', 'openvino_genai', 'numpy',"
        " 'vinery_accounts') if name in sys.modules])"
    )

    found = await asyncio.to_thread(subprocess.check_output, [sys.executable, "-c", code])

    assert found.strip() == b"[]"


async def test_a_worker_has_the_limits_of_its_web_process(
    own_pool: WorkerPool, engine: Engine
) -> None:
    own_pool.load((((engine.entry, engine.assets.facts),), {"messages": 1}, DecodeLimits()))
    body = json.dumps({"messages": [USER, USER]}) + LARGE

    with pytest.raises(InvalidRequest, match="at most 1 entries") as caught:
        await read(own_pool, engine, Endpoint.CHAT, body.encode())

    assert caught.value.param == "messages"
