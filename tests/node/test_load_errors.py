"""An administrator reads why a model cannot load, and OpenVINO's own words below."""

import json
from pathlib import Path

from tests.tables import table
from vinery_serving.node.backoff import FailureKind
from vinery_serving.node.load_errors import killed, load_failure

ERRORS = json.loads(Path(__file__).with_name("load_errors.json").read_text())


@table("original, cause, advice", ERRORS["final"])
def test_what_cannot_heal_is_explained_and_final(original: str, cause: str, advice: str) -> None:
    failure = load_failure(original)
    sentences, _, below = failure.text.partition("\n\n")
    assert cause in sentences
    assert advice in sentences
    assert below == original.strip()
    assert failure.kind is FailureKind.FINAL


@table("original", [original for (original,) in ERRORS["memory"]])
def test_memory_may_be_free_later(original: str) -> None:
    failure = load_failure(original)
    assert "memory" in failure.text.partition("\n\n")[0]
    assert "Unload other models" in failure.text
    assert failure.text.endswith(original.strip())
    assert failure.kind is FailureKind.PASSING


@table("sentence, kind", ERRORS["sentences"])
def test_sentences_of_vinery_and_unknown_ones_stand_alone(sentence: str, kind: str) -> None:
    failure = load_failure(f"{sentence}\n")
    assert failure.text == sentence
    assert failure.kind is FailureKind[kind]


def test_an_engine_that_was_killed_is_no_fault_of_its_model() -> None:
    failure = killed("The engine process ended with status -9.")
    assert failure.kind is FailureKind.KILLED
    assert "killed while it loaded" in failure.text
    assert failure.text.endswith("\n\nThe engine process ended with status -9.")
