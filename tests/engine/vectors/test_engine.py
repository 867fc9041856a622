"""The engine process of a pooling model, as the node and a gateway see it, with tiny-embed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tokenizers import Tokenizer

from tests.conftest import REPOSITORY
from tests.engine.conftest import engine_config, serving
from tests.examples import examples
from vinery_serving.core.tasks import Task
from vinery_serving.engine.config import EngineConfig, PoolingConfig
from vinery_serving.engine.kinds.vectors import (
    PoolingModel,
    Vectors,
    WaitingText,
    normalized,
    padded,
    pooled,
)
from vinery_serving.node.engine_process import EngineDied, EngineProcess
from vinery_serving.transport.client import EngineClient, EngineDisconnected
from vinery_serving.transport.messages import PoolTexts, Rejected

pytestmark = pytest.mark.live

EMBED = REPOSITORY / "models" / "tiny-embed"
TIMEOUT_S = 60.0
# The changes by int8 weights and other shapes of the same graph.
TOLERANCE = 0.03


def config_of(home: Path, folder: Path = EMBED, **options: Any) -> EngineConfig:
    config = engine_config(home, "e", {"num_threads": 1, **options}, folder)
    of_embeddings = {"task": Task.EMBEDDINGS, "pooling": PoolingConfig(pooling="mean")}
    return structs.replace(config, name="tiny-embed", max_context=512, **of_embeddings)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolingModel]:
    yield PoolingModel(config_of(tmp_path_factory.mktemp("model")))


@asynccontextmanager
async def an_engine(home: Path, **options: Any) -> AsyncIterator[tuple[EngineProcess, Any]]:
    async with serving(config_of(home, **options)) as gateway:
        yield gateway.process, gateway.client


def text(ids: Sequence[int]) -> WaitingText:
    return WaitingText(None, 0, (0, 0), np.array(ids, np.int32))


def request(client: EngineClient, *texts: Sequence[int], **members: Any) -> PoolTexts:
    packed = tuple(np.array(ids, "<i4").tobytes() for ids in texts)
    starts = (0,) * len(texts)
    return PoolTexts(client.new_id(), packed, starts, **{"deadline_s": 60.0, **members})


async def answer(client: EngineClient, asked: PoolTexts) -> Vectors | Rejected:
    stream, found = client.pool(asked), {}
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            for each in await stream.next():
                if isinstance(each, Rejected):
                    return each
                rows = np.frombuffer(each.vectors, "<f4").reshape(len(each.indexes), -1)
                found.update(zip(each.indexes, rows, strict=True))
                if each.is_last:
                    return np.stack([found[index] for index in range(len(asked.texts))])


IDS = st.lists(st.integers(0, 2000), min_size=1, max_size=60)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(IDS, min_size=1, max_size=8))
def test_a_vector_is_the_same_beside_others(model: PoolingModel, texts: list[list[int]]) -> None:
    together = model.vectors([text(ids) for ids in texts])
    alone = np.concatenate([model.vectors([text(ids)]) for ids in texts])
    assert together == pytest.approx(alone, abs=TOLERANCE)


@pytest.mark.smoke
def test_vectors_are_those_of_genai_and_padding_takes_no_part_in_any(model: PoolingModel) -> None:
    from openvino_genai import TextEmbeddingPipeline

    texts = ["The cat sleeps on the mat.", "Will it rain tomorrow?"]
    config = TextEmbeddingPipeline.Config()
    config.pooling_type = TextEmbeddingPipeline.PoolingType.MEAN
    genai = TextEmbeddingPipeline(str(EMBED), "CPU", config).embed_documents(texts)
    tokenizer = Tokenizer.from_file(str(EMBED / "tokenizer.json"))

    own = model.vectors([text(tokenizer.encode(each).ids) for each in texts])

    assert own == pytest.approx(np.array(genai), abs=TOLERANCE)

    inputs = padded([text([1] * 3), text([1] * 9)], pad_id=7)
    mask = inputs["attention_mask"]
    states = np.zeros((2, mask.shape[1], 1), np.float32)
    states[0, :, 0] = np.where(mask[0] == 1, np.arange(1, mask.shape[1] + 1), 1000)

    assert inputs["input_ids"][0, 3:].tolist() == [7] * (mask.shape[1] - 3)
    assert pooled(states, mask, "cls")[0, 0] == 1
    assert pooled(states, mask, "mean")[0, 0] == 2
    assert pooled(states, mask, "last_token")[0, 0] == 3

    assert normalized(np.zeros((1, 4), np.float32)).tolist() == [[0, 0, 0, 0]]


@pytest.mark.smoke
async def test_it_answers_and_refuses_and_goes_on(tmp_path: Path, model: PoolingModel) -> None:
    async with an_engine(tmp_path) as (_, client):
        assert client.hello.num_dimensions == 96
        many = [[2, 5 + number % 90, 3] * (1 + number % 40) for number in range(300)]
        vectors = await answer(client, request(client, *many))
        cut = await answer(client, request(client, many[7], dimensions=8))
        refused = [
            await answer(client, asked)
            for asked in (
                request(client),
                request(client, []),
                request(client, [1] * 513),
                request(client, [10**6]),
                request(client, [-1]),
                request(client, *[[5] * 500] * 200, deadline_s=0.0),
            )
        ]

        expected = model.vectors([text(many[7])])
        assert vectors[7] == pytest.approx(expected[0], abs=TOLERANCE)
        assert cut == pytest.approx(normalized(expected[:, :8]), abs=TOLERANCE)
        codes = [each.code for each in refused if isinstance(each, Rejected)]
        assert codes == ["invalid_value"] * 5 + ["deadline_exceeded"]
        assert isinstance(await answer(client, request(client, [5])), np.ndarray)


async def test_many_short_texts_of_many_requests_wait_for_their_turn(tmp_path: Path) -> None:
    async with an_engine(tmp_path, max_waiting=64) as (_, client):
        requests = [request(client, *[[5, 6]] * 150, lane=(1, 1)) for _ in range(8)]
        answers = await asyncio.gather(*(answer(client, each) for each in requests))
    assert [len(each) for each in answers if isinstance(each, np.ndarray)] == [150] * 8


async def test_a_full_queue_refuses_a_cancel_empties_it_and_a_kill_ends_all(tmp_path: Path) -> None:
    async with an_engine(tmp_path, max_waiting=10) as (process, client):
        running = client.pool(request(client, *[[5] * 500] * 300, lane=(1, 1)))
        refused = await answer(client, request(client, [5], lane=(1, 1)))
        assert isinstance(refused, Rejected)
        assert refused.code == "overloaded"
        running.cancel()
        while (await client.ping(TIMEOUT_S)).num_waiting:
            pass  # it answers between two batches
        assert isinstance(await answer(client, request(client, [5], lane=(1, 1))), np.ndarray)

        stream = client.pool(request(client, *[[5] * 500] * 400))
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EngineDisconnected) as lost:
            while True:
                await stream.next()
        assert not lost.value.is_planned


async def test_a_graph_for_another_task_does_not_load(tmp_path: Path) -> None:
    config = config_of(tmp_path, REPOSITORY / "models" / "tiny-rerank")
    process = EngineProcess(config)
    try:
        with pytest.raises(EngineDied, match="none of the outputs sentence_embedding"):
            await process.start()
    finally:
        await process.end()
