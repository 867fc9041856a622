"""A GGUF file becomes a folder that the gateway and the engine read."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import openvino
import openvino_genai
import pytest

from tests.fakes.hub import FakeHub
from tests.models.hub.gguf_files import write_gguf
from tests.tables import table
from vinery_serving.models.hub import gguf
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.gguf import read_metadata
from vinery_serving.models.hub.origins import pull
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.folder import ModelFolder


def test_metadata_is_read_without_weights_and_other_kinds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = read_metadata(write_gguf(tmp_path / "m.gguf"))
    assert metadata["general.architecture"] == "qwen3"
    assert metadata["qwen3.context_length"] == 512
    assert len(metadata["tokenizer.ggml.tokens"]) == 3072

    with pytest.raises(PullFailed, match="architectures llama, qwen2, qwen3, and this one is phi2"):
        gguf.convert(write_gguf(tmp_path / "phi.gguf", "phi2"))
    with pytest.raises(PullFailed, match="a tokenizer of the kind gpt2"):
        gguf.convert(write_gguf(tmp_path / "m.gguf", tokenizer="llama"))

    path = write_gguf(tmp_path / "m.gguf")
    content = path.read_bytes()
    kind = content.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    path.write_bytes(content[:kind] + struct.pack("<I", 10) + content[kind + 4 :])
    with pytest.raises(PullFailed, match=r"does not read \(token_embd\.weight: type 10\)"):
        gguf.convert(path)

    path = write_gguf(tmp_path / "m.gguf")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Check failed at gguf.cpp:1:\nno such tensor\n")

    monkeypatch.setattr(openvino_genai, "LLMPipeline", fail)
    with pytest.raises(PullFailed, match=r"GenAI cannot read m\.gguf: no such tensor"):
        gguf.convert(path)


@table("size", [0, 3, 20, 60, 5000, -1000])
def test_a_cut_file_is_refused(tmp_path: Path, size: int) -> None:
    whole = write_gguf(tmp_path / "m.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:size])

    with pytest.raises(PullFailed, match=r"cut\.gguf is no GGUF file, or is damaged"):
        read_metadata(tmp_path / "cut.gguf")


@table(
    "body",
    [
        struct.pack("<QQ", 0, 1 << 60),  # keys
        struct.pack("<QQQ", 0, 1, 1 << 60),  # the length of a key
        struct.pack("<QQQ1sIIQ", 0, 1, 1, b"k", 9, 0, 1 << 60),  # items of a list
        struct.pack("<QQQ1sIIQ", 0, 1, 1, b"k", 9, 0, 1 << 40),
        struct.pack("<QQQ1sIQ", 0, 1, 1, b"k", 8, 1 << 60),  # the length of a text
        struct.pack("<QQQ1sIIQ", 0, 1, 1, b"k", 9, 9, 1),  # a list of lists
        struct.pack("<QQQ1sI", 0, 1, 1, b"k", 99),  # an unknown type
    ],
)
def test_a_hostile_header_takes_no_memory(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + body)

    with pytest.raises(PullFailed, match="is no GGUF file"):
        read_metadata(path)


def test_many_lists_together_have_no_more_items_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "_MAX_ITEMS", 4000)
    path, list_of_texts = tmp_path / "m.gguf", struct.pack("<Q1sIIQ", 1, b"k", 9, 8, 1000)
    empty_texts = bytes(8 * 1000)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 5) + 5 * (list_of_texts + empty_texts))

    with pytest.raises(PullFailed, match="is no GGUF file"):
        read_metadata(path)


def test_texts_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    text = struct.pack("<Q", 1 << 20)
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, 4_000_000))
        for _ in range(80):
            file.write(text)
            file.seek(1 << 20, 1)  # zeros, which take no disk
        file.truncate(1 << 40)

    tracemalloc.start()
    with pytest.raises(PullFailed, match="is no GGUF file"):
        read_metadata(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 200 << 20


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


_ARRAY = struct.pack("<IIQI", 9, 4, 1, 32)


@table(
    "key, value",
    [
        ("general.alignment", _ARRAY),
        ("qwen3.context_length", _ARRAY),
        ("tokenizer.ggml.tokens", struct.pack("<II", 4, 7)),
        ("tokenizer.chat_template", _ARRAY),
    ],
)
def test_a_value_of_another_kind_is_refused(tmp_path: Path, key: str, value: bytes) -> None:
    path = tmp_path / "m.gguf"
    first = _string("general.architecture") + struct.pack("<I", 8) + _string("qwen3")
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + first + _string(key) + value)

    with pytest.raises(PullFailed, match="is no GGUF file, or is damaged"):
        read_metadata(path)


@pytest.mark.live
def test_a_pulled_gguf_file_answers_as_a_model(hub: FakeHub, tmp_path: Path) -> None:
    content = write_gguf(tmp_path / "m.gguf").read_bytes()
    hub.add("acme/gguf", {"q8/tiny-q8_0.gguf": content, "README.md": b"x"})
    own = Hub(hub.endpoint)

    folder = pull(own, own.repository("acme/gguf"), tmp_path / "models", lambda *_: None)

    model = ModelFolder.read(folder)
    assert (model.model_type, model.max_context) == ("qwen3", 512)
    assert model.named_tokens["eos_token"] == "<|im_end|>"
    assert model.templates
    assert not list(folder.glob("*.gguf"))
    assert _generated(folder, list(ModelAssets.load(folder).ids_of_text("hello"))) == 3


def _generated(folder: Path, ids: list[int]) -> int:
    """The number of tokens that the engine's pipeline generates."""
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        str(folder), openvino_genai.SchedulerConfig(), "CPU"
    )
    config = openvino_genai.GenerationConfig(max_new_tokens=3, ignore_eos=True)
    prompt = openvino.Tensor(np.array([ids], dtype=np.int64))
    handle = pipeline.add_request(0, prompt, config)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return len(handle.read_all()[0].generated_ids)
