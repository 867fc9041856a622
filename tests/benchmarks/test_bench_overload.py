"""What the overload part draws from its requests."""

import pytest

from benchmarks.overload import (
    Outcome,
    OverloadResult,
    _back_after_s,
    _goodput,
    _retry_after,
    _returns,
    _summary,
    table,
)

USUAL = [Outcome(number / 10, False, 200, 0.2, 1.0) for number in range(100)]


def test_a_phase_has_answers_refusals_and_failures_apart() -> None:
    refused = [Outcome(1.0, False, 503, None, 0.05, 7.0)] * 10
    outcomes = [*USUAL, *refused, Outcome(2.0, True, 0), Outcome(2.0, True, 200, 0.4, 2.0)]

    phase = _summary("5x", 11.2, outcomes, _goodput(outcomes, 0.0, 10.0))

    assert (phase.num_requests, phase.num_failed) == (112, 1)
    assert phase.goodput_per_s == pytest.approx(9.1), "the last ones end after the phase"
    assert phase.short_first_token_ms == pytest.approx((200.0, 200.0))
    assert phase.long_first_token_ms == pytest.approx((400.0, 400.0))
    assert phase.refusal_ms == pytest.approx((50.0, 50.0))
    assert phase.retry_after_s == (7.0, 7.0)
    shown = table(OverloadResult(20.0, (phase, phase, phase)))
    assert "45% of the best goodput; p99 of first tokens 200 ms, 1.0 times" in shown


def test_clients_that_come_back_count_in_the_phase_of_their_return() -> None:
    returned = [Outcome(at_s, False, status) for at_s, status in [(9.9, 200), (11.0, 503)]]

    assert _returns(returned, 0.0, 10.0) == (1, 1)
    assert _returns(returned, 10.0, 10.0) == (1, 0)
    assert _retry_after(b"HTTP/1.1 503 x\r\nRetry-After: 12\r\n\r\n{}") == 12.0
    assert _retry_after(b"HTTP/1.1 503 x\r\n\r\nretry-after: 12") is None


def test_latency_is_back_after_the_last_late_first_token() -> None:
    late = [Outcome(number / 10, False, 200, 5.0, 6.0) for number in range(30)]

    assert _back_after_s(USUAL, USUAL) == 0.0
    assert _back_after_s(USUAL, [*late, *USUAL[40:]]) == 3
    assert _back_after_s(USUAL, late) == 3
