"""Whether a model will load is answered from a hub's list of files and its configuration."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.models.hub.models import QWEN3_8B, TINY_VISION, checkpoint_files, openvino_files
from tests.tables import table
from vinery_serving.models.hub.machine import Machine, free_bytes, memory_limit, memory_need
from vinery_serving.models.hub.repository import (
    Format,
    Repository,
    RepositoryFile,
    needed_files,
    wanted_files,
)
from vinery_serving.models.hub.verdict import Answer, Verdict, gigabytes, will_it_load

GB = 10**9
LARGE = Machine(memory_bytes=64 * GB, free_disk_bytes=500 * GB)


def repository(
    files: dict[str, int], config: dict[str, Any] | None = None, **rest: Any
) -> Repository:
    listed = tuple(RepositoryFile(path, size) for path, size in files.items())
    rest = {"name": "acme/tiny", "config": QWEN3_8B if config is None else config} | rest
    return Repository(revision="main", commit="c" * 40, files=listed, **rest)


def openvino(weights_bytes: int = 4_900_000_000, **rest: Any) -> Repository:
    sizes = dict.fromkeys(openvino_files(), 1000) | {"openvino_model.bin": weights_bytes}
    return repository(sizes, **rest)


def checkpoint(weights_bytes: int = 16_400_000_000, **rest: Any) -> Repository:
    names = dict.fromkeys(checkpoint_files(), 1000)
    return repository(names | {"model-00001-of-00001.safetensors": weights_bytes}, **rest)


def judged(found: Repository, machine: Machine = LARGE) -> Verdict:
    return will_it_load(found, machine)


def without(name: str, **rest: Any) -> Repository:
    """An OpenVINO model that lacks this file."""
    found = openvino(**rest)
    return replace(found, files=tuple(each for each in found.files if each.path != name))


def gguf(architecture: str, *names: str) -> Repository:
    return repository(
        dict.fromkeys(names or ["m-q8_0.gguf"], GB), {}, gguf_architecture=architecture
    )


PICKLE = repository({"config.json": 10, "pytorch_model.bin": GB})
SEVERAL = gguf("qwen3", "a-q4.gguf", "a-q8.gguf")
MINICPM = {"model_type": "minicpmv", "vision_config": {}}
TOO_LARGE = (
    "It needs at least 5.6 GB of memory, and GPU has 4.0 GB. Choose a smaller model, or one with "
    "int4 weights."
)


@table(
    "found, machine, answer, reason",
    [
        (openvino(), {}, Answer.YES, "needs about 6.8 GB of the 64.0 GB of memory that CPU has."),
        (openvino(), {"memory_bytes": 6 * GB}, Answer.YES, "Set cache_size_gb"),
        (openvino(), {"memory_bytes": 4 * GB, "device": "GPU"}, Answer.NO, TOO_LARGE),
        (openvino(), {"free_disk_bytes": 4 * GB}, Answer.NO, "4.9 GB"),
        (openvino(), {"free_disk_bytes": 4 * GB}, Answer.NO, "4.0 GB free"),
        (openvino(51 * GB), {}, Answer.NO, "openvino_model.bin is above 50 GB"),
        (openvino(config=MINICPM), {}, Answer.NO, "this one is minicpmv"),
        (without("openvino_model.bin"), {}, Answer.NO, "openvino_model"),
        (without("tokenizer.json"), {}, Answer.NO, "tokenizer"),
        (PICKLE, {}, Answer.NO, "can run any code"),
        (repository({"README.md": 10}), {}, Answer.NO, "neither an OpenVINO model"),
        (gguf("gemma3"), {}, Answer.NO, "of the architectures llama, qwen2, qwen3"),
        (SEVERAL, {}, Answer.NO, "--include: a-q4.gguf, a-q8.gguf"),
    ],
)
def test_the_answer_has_a_reason(
    found: Repository, machine: dict[str, Any], answer: Answer, reason: str
) -> None:
    verdict = judged(found, replace(LARGE, **machine))

    assert verdict.answer is answer
    assert len(verdict.reasons) == 1
    assert reason in verdict.reasons[0]


TIGHT = replace(LARGE, memory_bytes=7 * GB)
VISION_FILES = {each.name: each.stat().st_size for each in TINY_VISION.iterdir()}
VISION = repository(VISION_FILES, {"model_type": "qwen2_vl", "vision_config": {}})
BERT = {"architectures": ["BertModel"]}
RERANK = {"architectures": ["XLMRobertaForSequenceClassification"]}
GGUF, GGUF_NAMES = {"answer": Answer.YES, "format": Format.GGUF}, ("llama", "qwen2", "qwen3")
INT4 = {"quantization_config": {"bits": 4}}
BARE = without("chat_template.jinja")


@table(
    "verdict, expected",
    [
        (judged(openvino()), {"answer": Answer.YES, "format": Format.OPENVINO, "task": "chat"}),
        (judged(openvino(name="OpenVINO/Qwen3-8B-int4-ov")), {"precision": "int4"}),
        (judged(openvino(openvino_config={"dtype": "int8"})), {"precision": "int8"}),
        (judged(openvino(openvino_config=INT4)), {"precision": "int4"}),
        (judged(openvino(openvino_config={})), {"precision": None}),
        (judged(checkpoint()), {"answer": Answer.CONVERT, "format": Format.CHECKPOINT}),
        # By the first precision that fits.
        (judged(checkpoint()), {"precision": "int8"}),
        (judged(checkpoint(), TIGHT), {"answer": Answer.CONVERT, "precision": "int4"}),
        (judged(PICKLE), {"format": Format.PICKLE}),
        *((judged(gguf(each)), GGUF | {"architecture": each}) for each in GGUF_NAMES),
        (judged(wanted_files(SEVERAL, ["*q4*"])), {"answer": Answer.YES}),
        (judged(VISION), {"answer": Answer.YES, "task": "vision"}),
        (judged(openvino(config=MINICPM)), {"task": "vision"}),
        (judged(openvino(config=BERT)), {"task": "embeddings"}),
        (judged(openvino(pipeline_tag="feature-extraction")), {"task": "embeddings"}),
        (judged(openvino(config=RERANK)), {"task": "rerank"}),
        (judged(openvino(pipeline_tag="text-ranking")), {"task": "rerank"}),
        (judged(openvino(pipeline_tag="text-generation")), {"task": "chat"}),
        (judged(BARE), {"task": "completion"}),
        (judged(replace(BARE, chat_template="{{ messages }}")), {"task": "chat"}),
    ],
)
def test_a_verdict_names_what_the_files_and_the_configuration_show(
    verdict: Verdict, expected: dict[str, Any]
) -> None:
    assert {name: getattr(verdict, name) for name in expected} == expected


def test_memory_is_weights_kv_cache_and_overhead_within_the_context_of_the_model() -> None:
    need = memory_need(4_900_000_000, QWEN3_8B, 8192)

    assert need.kv_cache_bytes == 8192 * 2 * 36 * 8 * 128 * 2
    assert need.total_bytes == need.weights_bytes + need.kv_cache_bytes + need.overhead_bytes
    assert need.least_bytes == need.total_bytes - need.kv_cache_bytes

    assert memory_need(1, {"max_position_embeddings": 2048}, 8192).context_tokens == 2048

    assert memory_need(1, {"num_hidden_layers": True, "hidden_size": -1}, 1).kv_cache_bytes == 0
    for key in ("text_config", "llm_config"):  # of a vision model's language model
        config = {"hidden_size": 9, key: QWEN3_8B}
        assert memory_need(1, config, 1).kv_cache_bytes == 147_456

    assert judged(checkpoint()).need.weights_bytes == int(8_200_000_000 * 1.1)


def test_weights_of_other_formats_are_not_fetched() -> None:
    mixed = {"openvino_model.xml": 1, "openvino_model.bin": 1, "openvino_tokenizer.xml": 1}
    mixed |= {"openvino_tokenizer.bin": 1, "pytorch_model.bin": 9, "model.safetensors": 9}
    mixed |= {"model.onnx": 9, "tiny.gguf": 9, "config.json": 1}

    assert needed_files(repository(mixed)).size_bytes == 5


def test_a_machine_has_the_memory_of_its_limit_a_disk_and_units(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "unlimited").write_text("max\n")

    assert memory_limit((tmp_path / "memory.max", tmp_path / "none")) == 1_000_000
    assert memory_limit((tmp_path / "unlimited",)) > 1_000_000_000

    assert free_bytes(tmp_path / "models" / "later") > 0

    assert [gigabytes(each) for each in (4_900_000_000, 31_000_000)] == ["4.9 GB", "31 MB"]
