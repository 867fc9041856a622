"""LoRA adapters, with the real engine: an adapter's name gives other answers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.adapters import LAYER, matrices, safetensors, write_adapter, write_safetensors
from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import LOGPROBS, assert_alike, done, generation, logprobs, pipeline_of
from tests.tables import table
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.lora import read_adapters
from vinery_serving.engine.option_groups import Adapter

GRAPH = TINY_CHAT / "openvino_model.xml"
QUESTIONS = ["Count to 12.", "What is the capital of France?"]


def answers(home: Path, *adapters: Adapter, **options: Any) -> list[tuple[list[int], list[float]]]:
    """Return the tokens and their log-probabilities, twice: the second time from the cache."""
    pipeline = pipeline_of(TINY_CHAT, home, adapters=list(adapters), **options)
    batch = Batch(pipeline, capacity=4)
    given = [generation(each, LOGPROBS, max_new_tokens=12) for each in QUESTIONS * 2]
    first, second, *again = (done(batch, each) for each in given)
    for one, other in zip((first, second), again, strict=True):
        assert_alike(one, other)
    return [(each.tokens, logprobs(each)) for each in (first, second)]


@pytest.mark.live
def test_an_adapter_changes_answers_as_strongly_as_it_was_trained(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "adapter", r=4, lora_alpha=8)
    file = folder / "adapter_model.safetensors"
    bare = write_safetensors(tmp_path / "bare.safetensors", matrices(8.0))

    plain = answers(tmp_path)
    changed = answers(tmp_path, Adapter(path=str(folder)))

    assert [tokens for tokens, _ in changed] != [tokens for tokens, _ in plain]
    assert answers(tmp_path, Adapter(path=str(file), alpha=0)) == plain
    # lora_alpha / r is 2.
    assert answers(tmp_path, Adapter(path=str(bare), alpha=2)) == changed


def read(*paths: Path, alpha: float = 1.0) -> list[tuple[Path, float]]:
    return [
        (each.path, each.scale)
        for each in read_adapters([Adapter(path=str(path), alpha=alpha) for path in paths], GRAPH)
    ]


def test_the_scale_is_that_of_the_configuration_and_all_modules_may_change(tmp_path: Path) -> None:
    plain = write_adapter(tmp_path / "plain")
    scaled = write_adapter(tmp_path / "scaled", r=4, lora_alpha=16)
    rooted = write_adapter(tmp_path / "rooted", r=4, lora_alpha=16, use_rslora=True)

    scales = [scale for _, scale in read(plain, scaled, rooted, alpha=0.5)]

    assert scales == [0.5, 2.0, 4.0]

    tensors = matrices(1.0, "self_attn.k_proj", (256, 128))
    tensors |= matrices(1.0, "mlp.down_proj", (768, 256))
    assert read(write_adapter(tmp_path / "several", tensors))


Q = f"{LAYER.format(0)}self_attn.q_proj"
PAIR = {
    f"{Q}.lora_A.weight": np.zeros((4, 256), np.float32),
    f"{Q}.lora_B.weight": np.zeros((256, 4), np.float32),
}


@table(
    "tensors, config, message",
    [
        (
            matrices(1.0, "self_attn.q_proj", (128, 128)),
            {},
            "is for another model: model.layers.0.self_attn.q_proj has 128 inputs and 128 outputs "
            "in the adapter, and the model has 256 inputs and 256 outputs.",
        ),
        (
            matrices(1.0, "attention.wq"),
            {},
            "is for another model: model.layers.0.attention.wq has .* the model has no such layer.",
        ),
        (
            {name.removeprefix("base_model.model."): each for name, each in PAIR.items()},
            {},
            "has the tensor model.layers.0.self_attn.q_proj.lora_A.weight, which is not one of",
        ),
        ({f"{Q}.weight": np.zeros((256, 256), np.float32)}, {}, "which is not one of a LoRA"),
        ({f"{Q}.lora_A.weight": PAIR[f"{Q}.lora_A.weight"]}, {}, "has no matching pair"),
        ({}, {}, "has no tensors"),
        (PAIR, {"use_dora": True}, "was trained with use_dora, which OpenVINO GenAI does not"),
        (PAIR, {"modules_to_save": ["lm_head"]}, "was trained with modules_to_save"),
    ],
)
def test_an_adapter_that_would_be_ignored_is_refused(tmp_path, tensors, config, message):
    folder = write_adapter(tmp_path / "_".join(config), tensors, **config)
    with pytest.raises(RuntimeError, match=f"^The adapter {folder}.*{message}"):
        read(folder)


CUT = safetensors(PAIR)[:-100]


@table(
    "content, message",
    [
        (b"", "cannot be read"),
        (b"hello, I am no adapter", "it is not a safetensors file"),
        (b"\x02\0\0\0\0\0\0\0{]", "cannot be read"),
        (b'\x07\0\0\0\0\0\0\0{"a":1}', "cannot be read"),
        (CUT, "it is cut"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "adapter.safetensors"
    file.write_bytes(content)
    with pytest.raises(RuntimeError, match=message):
        read(file)
