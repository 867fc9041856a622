"""An administrator reads why a model cannot load, and OpenVINO's own words below; and how often
it is tried."""

import json
from pathlib import Path

from tests.tables import table
from vinery_serving.node.load_errors import FailureKind, LoadAttempts, killed, load_failure

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


@table(
    "kind, pauses_s",
    [
        (FailureKind.FINAL, [None]),
        (FailureKind.PASSING, [1, 5, 20, None]),
        (FailureKind.KILLED, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, None]),
    ],
)
def test_a_model_that_cannot_load_is_tried_a_few_times_with_growing_pauses(kind, pauses_s):
    attempts = LoadAttempts()
    assert [attempts.pause_after(kind) for _ in pauses_s] == pauses_s
    assert attempts.num_failed == attempts.max == len(pauses_s)


def test_a_final_failure_ends_the_attempts_that_others_have_begun() -> None:
    attempts = LoadAttempts()
    attempts.pause_after(FailureKind.KILLED)
    attempts.pause_after(FailureKind.PASSING)
    assert (attempts.num_failed, attempts.max) == (2, 4)
    assert attempts.pause_after(FailureKind.FINAL) is None
    assert (attempts.num_failed, attempts.max) == (3, 3)
