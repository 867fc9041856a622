"""The delays between the starts of an engine that ends again and again."""

from __future__ import annotations

from vinery_serving.node.backoff import Backoff


def delays(num: int, lived_s: float = 0.5, *, has_loaded: bool) -> list[float]:
    backoff = Backoff()
    return [backoff.after(lived_s, has_loaded=has_loaded) for _ in range(num)]


def test_the_delay_doubles_while_engines_cannot_load() -> None:
    assert delays(10, has_loaded=False) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0]


def test_streams_wait_half_a_second_at_most_for_the_start_of_the_next_engine() -> None:
    assert delays(6, has_loaded=True) == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_an_engine_that_was_stable_begins_with_the_first_delay() -> None:
    assert delays(3, lived_s=3.5, has_loaded=True) == [0.1, 0.1, 0.1]


def test_an_engine_that_has_loaded_shortens_the_delay_of_those_that_could_not() -> None:
    backoff = Backoff()
    for _ in range(9):
        backoff.after(0.5, has_loaded=False)
    assert backoff.after(0.5, has_loaded=True) == 0.5
    assert backoff.after(0.5, has_loaded=False) == 1.0
