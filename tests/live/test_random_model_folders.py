"""The random models load in the pipeline and answer, from ids and from text."""

import json
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import openvino
import openvino_genai
import pytest
from jinja2 import Environment
from tokenizers import Tokenizer

from tests.random_models.small import without_tokenizer_json, write_llama_folder, write_qwen2_folder

pytestmark = pytest.mark.live
Pipeline = openvino_genai.ContinuousBatchingPipeline

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
SMALL = {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False, **EXACT}
BUILDERS = [write_llama_folder, write_qwen2_folder]
TEXTS = [
    "The server answers 1234 people!\n\n  Twice. ",
    "déjà vu 漢字 🙂 e\u0301",
    "\t a  b\n",
    "'s don't",
]


@pytest.fixture(scope="module", params=BUILDERS, ids=["llama", "qwen2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return request.param(tmp_path_factory.mktemp("random") / "model")


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> Pipeline:
    return load(folder)


@pytest.fixture(scope="module")
def prompt(folder: Path) -> list[int]:
    return rendered(folder)


def load(folder: Path) -> Pipeline:
    return Pipeline(str(folder), openvino_genai.SchedulerConfig(), "CPU", SMALL)


def answer(pipeline: Pipeline, ids: list[int], n: int) -> list[int]:
    config = pipeline.get_config()
    config.max_new_tokens = n
    prompt = openvino.Tensor(np.array([ids], np.int64))
    return pipeline.generate([prompt], [config])[0].m_generation_ids[0]


def stateful_answer(folder: Path, ids: list[int], n: int) -> list[int]:
    """Return the greedy tokens of the bare graph, one forward pass after the other."""
    model = openvino.Core().compile_model(folder / "openvino_model.xml", "CPU", SMALL)
    request = model.create_infer_request()
    chosen: list[int] = []
    fresh, total = ids, 0
    for _ in range(n):
        positions = np.arange(total, total + len(fresh))
        total += len(fresh)
        request.infer(
            {
                "input_ids": np.array([fresh], np.int64),
                "attention_mask": np.ones((1, total), np.int64),
                "position_ids": positions[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )
        fresh = [int(request.get_tensor("logits").data[0, -1].argmax())]
        chosen += fresh
    return chosen


def rendered(folder: Path) -> list[int]:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = Environment().from_string(config["chat_template"])
    text = template.render(
        messages=[{"role": "user", "content": "What is the capital?"}],
        add_generation_prompt=True,
        bos_token=config["bos_token"],
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_its_answers_follow_prompts_and_grammars(pipeline: Pipeline, prompt: list[int]) -> None:
    one = answer(pipeline, prompt, 48)
    text = pipeline.get_tokenizer().decode(one, skip_special_tokens=False)

    assert one != answer(pipeline, [*prompt, 300], 48)
    assert len(one) == 48
    assert len(set(one)) > 8
    assert text.isascii()
    assert text.isprintable()
    assert "<|" not in text

    config = pipeline.get_config()
    config.max_new_tokens = 24
    config.structured_output_config = openvino_genai.StructuredOutputConfig(regex="(yes|no)")
    tensor = openvino.Tensor(np.array([prompt], np.int64))

    ids = pipeline.generate([tensor], [config])[0].m_generation_ids[0]

    assert pipeline.get_tokenizer().decode(ids) in {"yes", "no"}


def test_the_pipeline_chooses_what_the_bare_graph_chooses_for_one_prompt_and_for_many(
    folder: Path, pipeline: Pipeline, prompt: list[int]
) -> None:
    prompts = [prompt, *([*prompt, 300 + number] for number in range(4))]
    config = pipeline.get_config()
    config.max_new_tokens = 12
    tensors = [openvino.Tensor(np.array([ids], np.int64)) for ids in prompts]

    together = pipeline.generate(tensors, [config] * 5)

    alone = [answer(pipeline, ids, 12) for ids in prompts]
    assert [result.m_generation_ids[0] for result in together] == alone
    assert alone[0] == stateful_answer(folder, prompt, 12)


def test_both_tokenizers_give_the_same_ids(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = openvino_genai.Tokenizer(str(folder))

    for text, with_special in product([*TEXTS, f"{config['eos_token']}hello"], [True, False]):
        expected = theirs.encode(text, add_special_tokens=with_special).ids
        encoded = ours.encode(text, add_special_tokens=with_special)
        assert encoded.input_ids.data[0].tolist() == expected
        assert ours.decode(expected) == theirs.decode(expected)


def test_it_answers_the_same_without_the_hugging_face_tokenizer(
    folder: Path, pipeline: Pipeline, prompt: list[int], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))

    other = load(without_tokenizer_json(copy))

    assert answer(other, prompt, 8) == answer(pipeline, prompt, 8)
    tokenizer = other.get_tokenizer()
    ids = tokenizer.encode("the server").input_ids.data[0].tolist()
    assert tokenizer.decode(ids) == "the server"


def test_the_two_small_families_have_different_tokens(tmp_path: Path) -> None:
    llama, qwen = write_llama_folder(tmp_path / "llama"), write_qwen2_folder(tmp_path / "qwen")
    of_llama, of_qwen = (
        Tokenizer.from_file(str(each / "tokenizer.json")) for each in (llama, qwen)
    )

    assert of_llama.token_to_id("<|eot_id|>") is not None
    assert of_qwen.token_to_id("<|eot_id|>") is None
    assert of_llama.encode("100").ids != of_qwen.encode("100").ids
    for folder in (llama, qwen):
        assert sum(file.stat().st_size for file in folder.iterdir()) < 700_000
