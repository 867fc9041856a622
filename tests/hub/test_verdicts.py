"""Whether a model will load is answered from a hub's list of files and its configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hub.models import QWEN3_8B, TINY_VISION, checkpoint_files, openvino_files
from vinery_serving.hub.formats import Format, needed_files
from vinery_serving.hub.machine import Machine, free_bytes, memory_limit
from vinery_serving.hub.memory_need import MeasuredEngine, kv_bytes_of_token, memory_need
from vinery_serving.hub.repository import Repository, RepositoryFile
from vinery_serving.hub.verdict import Answer, Verdict, gigabytes, will_it_load

GB = 10**9
LARGE = Machine(memory_bytes=64 * GB, free_disk_bytes=500 * GB)


def repository(
    files: dict[str, int], config: dict[str, Any] | None = None, **rest: Any
) -> Repository:
    listed = tuple(RepositoryFile(path, size) for path, size in files.items())
    rest.setdefault("name", "acme/tiny")
    return Repository(
        revision="main",
        commit="c" * 40,
        files=listed,
        config=QWEN3_8B if config is None else config,
        **rest,
    )


def openvino(weights_bytes: int = 4_900_000_000, **rest: Any) -> Repository:
    sizes = dict.fromkeys(openvino_files(), 1000) | {"openvino_model.bin": weights_bytes}
    return repository(sizes, **rest)


def checkpoint(weights_bytes: int = 16_400_000_000, **rest: Any) -> Repository:
    names = dict.fromkeys(checkpoint_files(), 1000)
    return repository(names | {"model-00001-of-00001.safetensors": weights_bytes}, **rest)


def judged(found: Repository, machine: Machine = LARGE) -> Verdict:
    return will_it_load(found, machine)


def test_an_openvino_model_that_fits_loads() -> None:
    verdict = judged(openvino(name="OpenVINO/Qwen3-8B-int4-ov"))

    assert (verdict.answer, verdict.format) == (Answer.YES, Format.OPENVINO)
    assert (verdict.task, verdict.precision) == ("chat", "int4")
    assert verdict.reasons == ("It needs about 6.8 GB of the 64.0 GB of memory that CPU has.",)


def test_memory_is_weights_kv_cache_and_overhead() -> None:
    need = memory_need(4_900_000_000, QWEN3_8B, 8192)

    assert kv_bytes_of_token(QWEN3_8B) == 2 * 36 * 8 * 128 * 2
    assert need.kv_cache_bytes == 8192 * 147_456
    assert need.total_bytes == need.weights_bytes + need.kv_cache_bytes + need.overhead_bytes
    assert need.least_bytes == need.total_bytes - need.kv_cache_bytes


def test_the_overhead_is_corrected_by_the_engine_whose_weights_are_the_most_similar() -> None:
    def overhead_bytes(weights_bytes: int, *engines: MeasuredEngine) -> int:
        return memory_need(weights_bytes, QWEN3_8B, 1, engines).overhead_bytes

    estimated = {size: overhead_bytes(size) for size in (1 * GB, 5 * GB)}
    small = MeasuredEngine(1 * GB, 1 * GB + 2 * estimated[1 * GB])
    large = MeasuredEngine(5 * GB, 5 * GB + estimated[5 * GB] // 2)

    assert overhead_bytes(5 * GB, small) == pytest.approx(2 * estimated[5 * GB], rel=1e-6)
    assert overhead_bytes(5 * GB, small, large) == pytest.approx(estimated[5 * GB] / 2, rel=1e-6)
    assert overhead_bytes(1 * GB, small, large) == pytest.approx(2 * estimated[1 * GB], rel=1e-6)
    assert not memory_need(1, {}, 1).is_corrected
    assert memory_need(1, {}, 1, [small]).is_corrected


def test_an_odd_measurement_corrects_an_estimate_by_a_factor_of_four_at_most() -> None:
    def overhead_bytes(*engines: MeasuredEngine) -> int:
        return memory_need(GB, {}, 1, engines).overhead_bytes

    mapped, huge = MeasuredEngine(GB, 100), MeasuredEngine(GB, 60 * GB)

    assert overhead_bytes(mapped) == pytest.approx(overhead_bytes() / 4, abs=1)
    assert overhead_bytes(huge) == pytest.approx(overhead_bytes() * 4, abs=4)


def test_a_model_that_engines_of_this_machine_show_to_be_too_large_does_not_load() -> None:
    tight = replace(LARGE, memory_bytes=6 * GB)
    measured = MeasuredEngine(4_900_000_000, 4_900_000_000 + 2 * GB)

    assert judged(openvino(), tight).answer is Answer.YES
    verdict = judged(openvino(), replace(tight, engines=(measured,)))
    assert verdict.answer is Answer.NO
    assert verdict.reasons[0].startswith("It needs at least 6.9 GB of memory")


def test_a_context_is_at_most_that_of_the_model() -> None:
    assert memory_need(1, {"max_position_embeddings": 2048}, 8192).context_tokens == 2048


@pytest.mark.parametrize("key", ["text_config", "llm_config"])
def test_numbers_of_a_vision_model_are_those_of_its_language_model(key: str) -> None:
    assert kv_bytes_of_token({"hidden_size": 9, key: QWEN3_8B}) == 147_456


def test_a_configuration_without_numbers_gives_no_cache() -> None:
    assert kv_bytes_of_token({"num_hidden_layers": True, "hidden_size": -1}) == 0


def test_a_model_that_is_larger_than_the_memory_does_not_load() -> None:
    verdict = judged(openvino(), replace(LARGE, memory_bytes=4 * GB, device="GPU"))

    assert verdict.answer is Answer.NO
    assert verdict.reasons == (
        "It needs at least 5.6 GB of memory, and GPU has 4.0 GB. Choose a smaller model, or one "
        "with int4 weights.",
    )


def test_a_model_without_room_for_a_conversation_loads_with_a_warning() -> None:
    verdict = judged(openvino(), replace(LARGE, memory_bytes=6 * GB))

    assert verdict.answer is Answer.YES
    assert "Set cache_size_gb" in verdict.reasons[0]


def test_a_full_disk_is_named() -> None:
    verdict = judged(openvino(), replace(LARGE, free_disk_bytes=4 * GB))

    assert verdict.answer is Answer.NO
    assert "4.9 GB" in verdict.reasons[0] and "4.0 GB free" in verdict.reasons[0]


def test_a_file_that_the_hub_does_not_send_is_refused() -> None:
    verdict = judged(openvino(51 * GB))

    assert "openvino_model.bin is above 50 GB" in verdict.reasons[0]


def test_a_checkpoint_needs_a_conversion() -> None:
    verdict = judged(checkpoint())

    assert (verdict.answer, verdict.format) == (Answer.CONVERT, Format.CHECKPOINT)
    assert verdict.precision == "int8"
    assert verdict.need.weights_bytes == int(8_200_000_000 * 1.1)


def test_a_checkpoint_is_judged_by_the_first_precision_that_fits() -> None:
    verdict = judged(checkpoint(), replace(LARGE, memory_bytes=7 * GB))

    assert (verdict.answer, verdict.precision) == (Answer.CONVERT, "int4")


def test_weights_in_pickle_format_are_refused() -> None:
    verdict = judged(repository({"config.json": 10, "pytorch_model.bin": GB}))

    assert (verdict.answer, verdict.format) == (Answer.NO, Format.PICKLE)
    assert "can run any code" in verdict.reasons[0]


def test_a_repository_without_weights_is_refused() -> None:
    assert "neither an OpenVINO model" in judged(repository({"README.md": 10})).reasons[0]


@pytest.mark.parametrize("missing", ["openvino_model.bin", "tokenizer.json"])
def test_an_incomplete_openvino_model_is_refused(missing: str) -> None:
    files = tuple(each for each in openvino().files if each.path != missing)

    verdict = judged(replace(openvino(), files=files))

    assert verdict.answer is Answer.NO
    assert missing.partition(".")[0] in verdict.reasons[0]


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_a_gguf_file_of_a_known_architecture_loads(name: str) -> None:
    verdict = judged(repository({"tiny-q8_0.gguf": GB}, {}, gguf_architecture=name))

    assert (verdict.answer, verdict.format) == (Answer.YES, Format.GGUF)
    assert verdict.architecture == name


def test_a_gguf_file_of_another_architecture_is_refused() -> None:
    verdict = judged(repository({"tiny.gguf": GB}, {}, gguf_architecture="gemma3"))

    assert verdict.answer is Answer.NO
    assert "reads GGUF files of the architectures llama, qwen2, qwen3" in verdict.reasons[0]


def test_one_of_several_gguf_files_must_be_named() -> None:
    several = repository({"a-q4.gguf": GB, "a-q8.gguf": GB}, {}, gguf_architecture="qwen3")

    assert "--include: a-q4.gguf, a-q8.gguf" in judged(several).reasons[0]
    assert judged(several.only(["*q4*"])).answer is Answer.YES


def test_an_unlisted_text_architecture_is_warned_about() -> None:
    verdict = judged(openvino(config=QWEN3_8B | {"architectures": ["NewForCausalLM"]}))

    assert verdict.answer is Answer.YES
    assert "does not name NewForCausalLM" in verdict.reasons[0]


def test_a_vision_model_of_an_unknown_type_is_refused() -> None:
    config = {"model_type": "minicpmv", "vision_config": {}}

    verdict = judged(openvino(config=config))

    assert (verdict.answer, verdict.task) == (Answer.NO, "vision")
    assert "this one is minicpmv" in verdict.reasons[0]


def test_the_shipped_vision_model_is_one() -> None:
    files = {each.name: each.stat().st_size for each in TINY_VISION.iterdir()}

    verdict = judged(repository(files, {"model_type": "qwen2_vl", "vision_config": {}}))

    assert (verdict.answer, verdict.task) == (Answer.YES, "vision")


@pytest.mark.parametrize(
    ("config", "tag", "task"),
    [
        ({"architectures": ["BertModel"]}, None, "embeddings"),
        (QWEN3_8B, "feature-extraction", "embeddings"),
        ({"architectures": ["XLMRobertaForSequenceClassification"]}, None, "rerank"),
        (QWEN3_8B, "text-ranking", "rerank"),
        (QWEN3_8B, "text-generation", "chat"),
    ],
)
def test_the_task_follows_from_class_and_tag(
    config: dict[str, Any], tag: str | None, task: str
) -> None:
    assert judged(openvino(config=config, pipeline_tag=tag)).task == task


def test_a_model_without_chat_template_completes_texts() -> None:
    files = tuple(each for each in openvino().files if each.path != "chat_template.jinja")
    bare = replace(openvino(), files=files)

    assert judged(bare).task == "completion"
    assert judged(replace(bare, chat_template="{{ messages }}")).task == "chat"


@pytest.mark.parametrize(
    ("config", "precision"),
    [({"quantization_config": {"bits": 4}}, "int4"), ({"dtype": "int8"}, "int8"), ({}, None)],
)
def test_the_precision_follows_from_the_export(config: dict[str, Any], precision: str) -> None:
    assert judged(openvino(openvino_config=config)).precision == precision


def test_weights_of_other_formats_are_not_fetched() -> None:
    mixed = {"openvino_model.xml": 1, "openvino_model.bin": 1, "openvino_tokenizer.xml": 1}
    mixed |= {"openvino_tokenizer.bin": 1, "pytorch_model.bin": 9, "model.safetensors": 9}
    mixed |= {"model.onnx": 9, "tiny.gguf": 9, "config.json": 1}

    assert needed_files(repository(mixed)).size_bytes == 5


def test_a_container_has_the_memory_of_its_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "unlimited").write_text("max\n")

    assert memory_limit((tmp_path / "memory.max", tmp_path / "none")) == 1_000_000
    assert memory_limit((tmp_path / "unlimited",)) > 1_000_000_000


def test_a_folder_that_is_not_there_yet_has_a_disk(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "models" / "later") > 0


def test_sizes_are_written_for_people() -> None:
    assert [gigabytes(each) for each in (4_900_000_000, 31_000_000)] == ["4.9 GB", "31 MB"]
