"""How much memory a model is expected to need, before and after it was measured."""

import json
import mmap
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.tables import table
from vinery_serving.engine.options import EngineOptions
from vinery_serving.node import fit
from vinery_serving.node.fit import EngineFacts, Measured, Need, estimate, find_facts, measure

MIB, GIB = 1 << 20, 1 << 30
CONFIG = {
    "num_hidden_layers": 10,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "max_position_embeddings": 1000,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "openvino_model.bin").write_bytes(bytes(3000))
    (tmp_path / "openvino_tokenizer.bin").write_bytes(bytes(500))
    (tmp_path / "openvino_model.xml").write_bytes(bytes(900))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "openvino_tokenizer.xml").write_text("")
    return tmp_path


def facts_of(folder: Path) -> EngineFacts:
    found = find_facts([folder], generates=True)
    return msgspec.json.decode(found, type=EngineFacts)


def test_weights_are_the_files_and_the_cache_has_its_option_or_one_context(folder: Path) -> None:
    assert estimate([folder], "CPU", EngineOptions(), EngineFacts()).weights_bytes == 3500
    assert estimate([folder, folder], "CPU", EngineOptions(), EngineFacts()).weights_bytes == 7000

    def cache_bytes(device: str = "CPU", **options: object) -> int:
        given = EngineOptions(**options)  # type: ignore[arg-type]
        return estimate([folder], device, given, facts_of(folder)).cache_bytes

    numbers = 2 * 10 * 2 * 64 * 1000
    assert cache_bytes(cache_size_gb=3) == 3 * GIB
    assert cache_bytes() == pytest.approx(1.1 * numbers)
    assert cache_bytes("GPU") == 2 * numbers
    assert cache_bytes(max_context=500) == pytest.approx(1.1 * numbers / 2)
    assert cache_bytes(plugin={"KV_CACHE_PRECISION": "f32"}) == 4 * numbers
    assert cache_bytes(kv_cache_precision="f32") == 4 * numbers
    assert cache_bytes(max_context=1_000_000) == pytest.approx(1.1 * numbers * 16.384)


@table("content", ["", "[]", '{"num_hidden_layers": "many"}'])
def test_without_a_configuration_the_cache_counts_for_nothing(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    facts = facts_of(folder)
    assert estimate([folder], "CPU", EngineOptions(), facts).cache_bytes == 0


def test_a_process_is_measured_and_that_corrects_the_estimate_and_its_refusal() -> None:
    loaded = measure(os.getpid())
    assert loaded.peak_bytes - loaded.loaded_bytes < 20 * MIB, "what loading took is forgotten"
    # Memory of the allocator may be what it holds already.
    with mmap.mmap(-1, 64 * MIB) as large:
        for at in range(0, len(large), mmap.PAGESIZE):
            large[at] = 1
    later = measure(os.getpid(), loaded.loaded_bytes)

    assert later.loaded_bytes == loaded.loaded_bytes
    assert later.peak_bytes > loaded.peak_bytes + 32 * MIB

    assert measure(2**22 + 1) is None

    guess = Need(weights_bytes=5 * GIB, cache_bytes=GIB)
    measured = replace(guess, measured=Measured(loaded_bytes=2 * GIB, peak_bytes=2 * GIB))
    grown = replace(guess, measured=Measured(loaded_bytes=2 * GIB, peak_bytes=9 * GIB))

    assert guess.total_bytes > 6 * GIB
    assert measured.total_bytes == 3 * GIB, "the cache may still grow"
    assert grown.total_bytes == 9 * GIB
    text = fit.unfit_text(Need(5 * GIB, GIB), 4 * GIB, "CPU", GIB)
    assert "about 6.12 GB, of which 1.00 GB for its KV cache" in text
    assert "models on CPU may use 4.00 GB, of which pinned models need 1.00 GB" in text
    assert "VINERY_MODEL_MEMORY_MB" in text
