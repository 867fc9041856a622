"""A restarted engine reads its compiled graph, and answers as before."""

from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.engine.adapters import matrices, write_safetensors
from tests.engine.conftest import TINY_CHAT, TINY_DRAFT, TINY_VISION
from tests.engine.in_process import LOGPROBS, done, generation, logprobs, pipeline_of, run, served
from tests.engine.pictures import IMAGE, a_picture, asked
from tests.tables import table
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.compiled_graph import KeptAttention
from vinery_serving.engine.pipeline import Pipeline

pytestmark = pytest.mark.live

QUESTIONS = ("Count to 12.", "What is the capital of France?")
EVICTION = {"start_size": 32, "recent_size": 64, "max_cache_size": 192}
NUM_LAYERS, NUM_DRAFT_LAYERS = 5, 2


def answers(pipeline: Pipeline) -> list[Any]:
    """The tokens of each question, and their exact log-probabilities."""
    each = [generation(question, LOGPROBS) for question in QUESTIONS]
    assert run(Batch(pipeline, capacity=16), *each) == []
    return [(one.tokens, logprobs(one)) for one in each]


@table(
    "options, num_attentions",
    [
        ({}, NUM_LAYERS),
        ({"kv_cache_precision": "u8"}, NUM_LAYERS),
        ({"cache_eviction": EVICTION, "enable_prefix_caching": False}, NUM_LAYERS),
        ({"sparse_attention": {"num_last_dense_tokens": 1}}, NUM_LAYERS),
        ({"sparse_attention": {"mode": "xattention", "block_size": 32}}, NUM_LAYERS),
        ({"draft_model": str(TINY_DRAFT)}, NUM_LAYERS + NUM_DRAFT_LAYERS),
    ],
)
def test_a_second_start_reads_the_graph_and_answers_as_the_first(tmp_path, options, num_attentions):
    before = KeptAttention.num_read
    first = answers(served(tmp_path, **options))
    assert KeptAttention.num_read == before, "nothing was kept"

    second = answers(served(tmp_path, **options))

    assert KeptAttention.num_read == before + num_attentions
    assert second == first


def test_a_vision_model_reads_its_compiled_graph_too(tmp_path: Path) -> None:
    def answer() -> Any:
        batch = Batch(pipeline_of(TINY_VISION, tmp_path), capacity=4)
        each = done(batch, asked(f"What is it? {IMAGE}", a_picture(1), logits=LOGPROBS))
        return each.tokens, logprobs(each)

    before, first = KeptAttention.num_read, answer()
    assert KeptAttention.num_read == before

    assert answer() == first
    assert KeptAttention.num_read > before


def test_a_damaged_graph_is_compiled_again(tmp_path: Path) -> None:
    first = answers(served(tmp_path))
    (kept,) = (tmp_path / "cache" / "compiled").rglob("*.blob")
    damaged = kept.read_bytes()[:3_000_000]
    kept.unlink()
    kept.write_bytes(damaged)

    assert answers(served(tmp_path)) == first
    assert kept.stat().st_size > len(damaged)


def test_other_weights_have_another_graph_as_have_adapters_of_the_same_size(tmp_path: Path) -> None:
    folder = Path(copytree(TINY_CHAT, tmp_path / "model"))
    first = answers(pipeline_of(folder, tmp_path))
    weights = bytearray((folder / "openvino_model.bin").read_bytes())
    weights[1_000_000:1_100_000] = bytes(100_000)
    (folder / "openvino_model.bin").write_bytes(weights)

    assert answers(pipeline_of(folder, tmp_path)) != first
    assert len(list((tmp_path / "cache" / "compiled").rglob("*.blob"))) == 1

    adapters = [
        write_safetensors(tmp_path / f"{strength}.safetensors", matrices(strength))
        for strength in (8.0, 9.0)
    ]

    found = [answers(served(tmp_path, adapters=[{"path": str(each)}])) for each in adapters * 2]

    assert found[:2] == found[2:]
    assert found[0] != found[1]
