"""The delays between the starts of an engine, and the number of attempts to load a model."""

from tests.tables import table
from vinery_serving.node.backoff import Backoff, FailureKind, LoadAttempts


def delays(num: int, lived_s: float) -> list[float]:
    backoff = Backoff()
    return [backoff.after(lived_s) for _ in range(num)]


@table(
    "lived_s, expected",
    [
        (0.5, [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]),  # streams wait for the next engine
        (3.5, [0.1, 0.1, 0.1]),  # it was stable
    ],
)
def test_an_engine_that_lived_shortly_waits_longer(lived_s: float, expected: list[float]) -> None:
    assert delays(len(expected), lived_s) == expected


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
