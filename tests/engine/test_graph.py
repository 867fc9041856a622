"""The copy of a model's folder with the logits hook: the new graph, and when the copy is kept."""

import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.engine.conftest import TINY_CHAT
from tests.engine.in_process import done, emptied, generation, pipeline_of, tokens_of
from tests.engine.test_logits_handler import LONG_PROMPT, SCORED, scores
from tests.random_models.folder import write_llama_folder, write_qwen2_folder
from tests.tables import table
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.graph import MODEL_FILE, GraphFeatures, kept, write_hooked_folder
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import LogitsSpec

PROMPT = LONG_PROMPT[:300]
Write = Callable[[Path], Path]


def edited(folder: Path, target: Path, *changes: tuple[str, str]) -> Path:
    """A copy of a model folder with strings of its graph replaced."""
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    text = (target / MODEL_FILE).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (target / MODEL_FILE).write_text(text)
    return target


def test_the_copy_links_to_the_weights_and_has_a_salt_if_there_is_a_table(tmp_path: Path) -> None:
    write_hooked_folder(TINY_CHAT, tmp_path / "hooked")
    features = write_hooked_folder(TINY_CHAT, tmp_path / "hooked")
    assert features == GraphFeatures(has_logits_hook=True, salt_modulus=3072, vocab_size=3072)
    assert (tmp_path / "hooked" / "openvino_model.bin").is_symlink()
    graph = ElementTree.parse(tmp_path / "hooked" / MODEL_FILE).getroot()
    assert [layer.attrib["type"] for layer in graph.iter("layer")].count("LogitsHook") == 1

    folder = edited(TINY_CHAT, tmp_path / "model", ('type="Gather"', 'type="Other"'))
    assert write_hooked_folder(folder, tmp_path / "hooked") == GraphFeatures(
        has_logits_hook=True, salt_modulus=0, vocab_size=3072
    )

    (tmp_path / MODEL_FILE).write_text("no graph")
    with pytest.raises(RuntimeError, match=r"openvino_model\.xml is not an OpenVINO graph"):
        write_hooked_folder(tmp_path, tmp_path / "hooked")


@table("name", ["position_ids", "input_ids", "logits"])
def test_a_graph_without_the_inputs_of_the_hook_is_not_copied(name: str, tmp_path: Path) -> None:
    folder = edited(TINY_CHAT, tmp_path / name, (f'names="{name}"', 'names="other"'))
    assert write_hooked_folder(folder, tmp_path / "hooked") == GraphFeatures()
    assert not (tmp_path / "hooked").exists()


def can_be_biased_and_scored(batch: Batch) -> None:
    biased = tokens_of(batch, PROMPT, LogitsSpec(bias=((77, 100.0),)), max_new_tokens=2)
    scored = done(batch, generation(PROMPT, SCORED, max_new_tokens=0))
    assert biased == [77, 77]
    assert len(scores(scored)) == len(PROMPT) - 1


def largest_salts_change_nothing(batch: Batch, pipeline: Pipeline) -> None:
    """The plugin computes remainders of integers with floats, which end at 2^24."""
    num_salts = pipeline._graph.num_salts
    plain = done(batch, generation(PROMPT, SCORED, max_new_tokens=3))
    for salt in (num_salts, num_salts // 2 + 1, 2**24 // pipeline._graph.salt_modulus + 1):
        pipeline._next_salt = salt
        salted = done(batch, generation(PROMPT, SCORED, max_new_tokens=3))
        assert salted.tokens == plain.tokens
        assert scores(salted) == pytest.approx(scores(plain), abs=0.05)


@pytest.mark.live
@table("write", [lambda _: TINY_CHAT, write_llama_folder, write_qwen2_folder])
def test_all_architectures_are_biased_and_scored_with_salts(write: Write, tmp_path: Path) -> None:
    pipeline = pipeline_of(write(tmp_path / write.__name__), tmp_path)
    assert pipeline.has_logits_hook
    assert pipeline.can_score_prompts
    for batch in emptied(pipeline):
        can_be_biased_and_scored(batch)
        largest_salts_change_nothing(batch, pipeline)


FEATURES = GraphFeatures(has_logits_hook=True, salt_modulus=7)


class Copies:
    """A model's folder, and how often a copy was made of it."""

    def __init__(self, home: Path) -> None:
        self.folder, self.target = home / "model", home / "hooked"
        self.number = 0
        self.folder.mkdir(parents=True)
        self.graph.write_text("<net/>")

    @property
    def graph(self) -> Path:
        return self.folder / "openvino_model.xml"

    def keep(self) -> GraphFeatures:
        return kept(self.folder, self.target, self.write)

    def write(self) -> GraphFeatures:
        self.number += 1
        self.target.mkdir(exist_ok=True)
        return FEATURES

    def touch(self) -> None:
        os.utime(self.graph, ns=(1, 1))


@table(
    "name, change, number",
    [
        ("none", lambda _: None, 1),
        ("rewritten", lambda copies: copies.graph.write_text("<net />"), 2),
        ("touched", Copies.touch, 2),
        ("added", lambda copies: (copies.folder / "tokenizer.json").touch(), 2),
        ("damaged note", lambda copies: copies.target.with_suffix(".json").write_text("{"), 2),
    ],
)
def test_a_copy_is_made_again_after_a_change_alone(tmp_path, name, change, number):
    copies = Copies(tmp_path / name)
    assert copies.keep() == FEATURES
    change(copies)
    assert [copies.keep() for _ in range(2)] == [FEATURES] * 2
    assert copies.number == number


def test_a_copy_that_was_not_finished_is_made_again(tmp_path: Path) -> None:
    def fail() -> GraphFeatures:
        raise KeyboardInterrupt

    copies = Copies(tmp_path)
    copies.keep()
    copies.touch()
    with pytest.raises(KeyboardInterrupt):
        kept(copies.folder, copies.target, fail)
    copies.keep()
    assert copies.number == 2
