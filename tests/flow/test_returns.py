"""Which refused requests come back, and when."""

from __future__ import annotations

from vinery_serving.flow.returns import Returns

ALICE, BOB = (1, 1), (2, 2)


def test_a_request_is_recognised_by_its_key_and_its_body() -> None:
    returns = Returns()
    returns.expect(ALICE, b"body", 5.0)

    assert not returns.take(BOB, b"body", 6.0)
    assert not returns.take(ALICE, b"another", 6.0)
    assert returns.take(ALICE, b"body", 6.0)


def test_long_bodies_with_one_beginning_and_other_lengths_are_different() -> None:
    returns = Returns()
    long = b"a" * 200_000
    returns.expect(ALICE, long, 5.0)

    assert not returns.take(ALICE, long + b"a", 6.0)
    assert returns.take(ALICE, long, 6.0)


def test_a_request_that_comes_too_early_keeps_its_time() -> None:
    returns = Returns()
    returns.expect(ALICE, b"body", 5.0)

    assert not returns.take(ALICE, b"body", 4.9)
    assert returns.take(ALICE, b"body", 5.0)
    assert not returns.take(ALICE, b"body", 5.0), "it has come back"


def test_equal_requests_have_a_time_each() -> None:
    returns = Returns()
    for due_at in (5.0, 6.0):
        returns.expect(ALICE, b"body", due_at)

    assert returns.take(ALICE, b"body", 5.5)
    assert not returns.take(ALICE, b"body", 5.5)
    assert returns.take(ALICE, b"body", 6.0)


def test_the_oldest_times_are_forgotten_where_there_are_too_many() -> None:
    returns = Returns(most=2)
    for number in range(3):
        returns.expect(ALICE, b"%d" % number, 5.0)

    assert [returns.take(ALICE, b"%d" % number, 5.0) for number in range(3)] == [False, True, True]


def test_nothing_is_left_of_forgotten_times() -> None:
    returns = Returns()
    returns.expect(ALICE, b"body", 5.0)
    returns.clear()

    assert not returns.take(ALICE, b"body", 5.0)
