"""Which refused requests come back, and when."""

from tests.tables import table
from vinery_serving.flow.returns import Returns

ALICE, BOB = (1, 1), (2, 2)


@table("body", [b"body", b"a" * 200_000])
def test_a_request_is_recognised_by_its_key_and_its_body_from_its_time_on(body):
    returns = Returns()
    returns.expect(ALICE, body, 5.0)

    assert not returns.take(BOB, body, 6.0)
    assert not returns.take(ALICE, b"another", 6.0)
    assert not returns.take(ALICE, body + b"a", 6.0)
    assert not returns.take(ALICE, body, 4.9), "it keeps its time"
    assert returns.take(ALICE, body, 5.0)
    assert not returns.take(ALICE, body, 6.0), "it has come back"


def test_equal_requests_have_a_time_each_until_they_are_forgotten():
    returns = Returns()
    for due_at in (5.0, 6.0):
        returns.expect(ALICE, b"body", due_at)
    assert returns.take(ALICE, b"body", 5.5)
    assert not returns.take(ALICE, b"body", 5.5)
    assert returns.take(ALICE, b"body", 6.0)
    returns.expect(ALICE, b"body", 5.0)
    returns.clear()
    assert not returns.take(ALICE, b"body", 5.0)
    # The oldest are where there are too many.
    returns = Returns(most=2)
    for number in range(3):
        returns.expect(ALICE, b"%d" % number, 5.0)
    assert [returns.take(ALICE, b"%d" % number, 5.0) for number in range(3)] == [False, True, True]
