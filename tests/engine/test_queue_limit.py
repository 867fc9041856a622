"""A request that would wait longer than it may is refused once, and admitted at its time."""

from msgspec import structs

from tests.engine.in_process import generation
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.queue_limit import QueueLimit
from vinery_serving.transport.messages import Submit

ALICE, BOB = (1, 1), (2, 3)


def of(lane: Lane, number: int, max_queue_s: float = 10.0) -> Submit:
    return structs.replace(generation([number]).submit, lane=lane, max_queue_s=max_queue_s)


def test_a_request_waits_unless_its_wait_would_be_longer_than_it_may_be():
    limit = QueueLimit()
    for max_queue_s, wait_s, expected in (
        (0, 1e6, None),
        (10, 10, None),
        (10, 12.5, 3),
        (10, 5, None),
    ):
        assert limit.check(of(ALICE, 1, max_queue_s), wait_s, 0.1, 0.0) == expected


def test_each_refused_client_of_a_lane_has_a_later_time_and_is_admitted_then():
    limit = QueueLimit()
    requests = [of(ALICE, number) for number in range(3)]
    assert [limit.check(each, 15, 2.0, 100.0) for each in requests] == [5, 7, 9]
    assert limit.check(of(BOB, 1), 15, 2.0, 100.0) == 5

    assert limit.check(requests[0], 15, 2.0, 102.0) == 9, "it is too early, like a new one"
    assert limit.check(requests[0], 15, 2.0, 105.0) is None
    assert limit.check(requests[0], 15, 2.0, 105.0) == 8, "behind the others"
    assert limit.check(requests[0], 15, 2.0, 111.0) is None


def test_no_number_of_refused_requests_is_remembered():
    limit = QueueLimit()
    for number in range(10_000):
        limit.check(of((number, number), number), 15, 1.0, 0.0)
    assert len(limit._due_at) == len(limit._last_due_at) == 4096
