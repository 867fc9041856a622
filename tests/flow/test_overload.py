"""A request that would wait too long is refused at its arrival."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from tests.fakes.clock import FakeClock
from tests.tables import table
from vinery_serving.core.errors import Overloaded
from vinery_serving.flow.meter import Meter
from vinery_serving.flow.overload import Lane, OverloadGate
from vinery_serving.transport.messages import Load

ALICE, ALAN, BOB = (1, 1), (1, 2), (2, 3)  # Alice and Alan are of one organisation
EVE = (4, 4)


def load_of(
    *waiting: tuple[Lane, float],
    num_free: int = 0,
    per_s: float = 1000.0,
    waiting_s: float = 5.0,
    used: tuple[tuple[Lane, float], ...] = ((ALICE, 0.8),),
) -> Load:
    lanes = tuple((*lane, num_tokens) for lane, num_tokens in waiting)
    return Load(
        num_free,
        per_s,
        100.0,
        answer_s=2.0,
        waiting_s=waiting_s,
        waiting=lanes,
        first_token_s=0.1,
        used=tuple((*lane, part) for lane, part in used),
    )


def gate_of(load: Load | None, *, max_queue_s: float = 0.0) -> OverloadGate:
    engine: Any = SimpleNamespace(load=load)
    return OverloadGate(engine, "m", max_queue_s)


@table("load", [None, load_of((ALICE, 1e9), per_s=0.0), load_of(), load_of(num_free=64)])
def test_without_a_queue_of_known_pace_every_request_enters(load):
    with gate_of(load).enter(ALICE, Meter()):
        pass


def test_a_key_that_has_filled_its_queue_is_refused_and_another_waits_for_its_turn_only():
    gate = gate_of(load_of((ALICE, 6500.0)))
    with pytest.raises(Overloaded, match="Try again in 7 s") as refusal, gate.enter(ALICE, Meter()):
        pass
    assert refusal.value.retry_after_s == 7
    assert Overloaded("").retry_after_s == 1, "of other errors"

    gate = gate_of(load_of((ALICE, 1e6)))
    assert gate.expected_wait_s(BOB) == pytest.approx(0.1)
    assert gate.expected_wait_s(ALAN) == pytest.approx(0.1)
    with gate.enter(BOB, Meter()):
        pass


def test_files_that_are_fetched_and_decoded_are_no_queue_of_the_engine():
    """One long stream has a slot, and a prompt waits: each request that comes adds its tokens."""
    load = structs.replace(load_of(per_s=4.0), prefill_s=0.1)
    gate = gate_of(load)
    passages = [gate.enter(EVE, Meter(), has_media=True) for _ in range(8)]
    assert gate.expected_wait_s(BOB) == gate.expected_wait_s(EVE) == 0
    for passage in passages:
        passage.set_out()
        passage.set_out()
    assert gate.expected_wait_s(EVE) == 8 * 100 / 4
    for passage in passages:
        passage.close()
    assert gate.expected_wait_s(EVE) == 0
    # A file that is refused leaves the gate.
    gate = gate_of(load_of((ALICE, 100.0)))
    with gate.enter(EVE, Meter(), has_media=True):
        pass
    assert gate.expected_wait_s(EVE) == pytest.approx(0.1)


def test_keys_of_one_organisation_wait_together_beside_another():
    gate = gate_of(load_of((ALICE, 1000.0), (ALAN, 1000.0), (BOB, 500.0)))

    assert gate.expected_wait_s(BOB) == pytest.approx(0.5 + 0.6)
    assert gate.expected_wait_s(ALICE) == pytest.approx(1.0 + 1.0 + 0.5)


def refusal(gate: OverloadGate, lane: Lane = ALICE, **values: Any) -> Overloaded | None:
    try:
        with gate.enter(lane, Meter(), **values):
            return None
    except Overloaded as error:
        return error


def with_arrivals(gate: OverloadGate, *, num: int, num_ended: int) -> OverloadGate:
    """Let so many arrive, of which some have ended, all at this moment."""
    gate._note(arrived=num, ended=num_ended)
    return gate


def rested(num_tokens: float, waiting_s: float) -> Load:
    return load_of((ALICE, num_tokens), waiting_s=waiting_s, used=((ALICE, 0.3),))


# One key uses the whole engine, and another hardly any of it.
UNEQUAL = load_of((ALICE, 1e6), (BOB, 2000.0), waiting_s=60.0, used=((ALICE, 0.9), (BOB, 0.01)))
LITTLE_EACH = load_of(
    *(((number, number), 100.0) for number in range(30)),
    used=tuple(((number, number), 0.03) for number in range(30)),
)


@table(
    "load, arrived, ended, lane, is_late",
    [
        # A queue that does not grow may be as long as an answer.
        (load_of((ALICE, 1800.0)), 100, 100, ALICE, False),
        (load_of((ALICE, 2100.0)), 100, 100, ALICE, True),
        # A few refusals are no reason for further ones.
        (load_of((ALICE, 900.0)), 100, 75, ALICE, False),
        # An engine that was well used and gets more than it serves has a short queue.
        (load_of((ALICE, 120.0)), 500, 100, ALICE, False),
        (load_of((ALICE, 250.0)), 500, 100, ALICE, True),
        # What comes at once for a rested engine may wait for seconds: a burst of hundreds is
        # served, and one that goes on is not a burst any more.
        (rested(19000.0, 0.5), 400, 0, ALICE, False),
        (rested(16000.0, 5.0), 400, 0, ALICE, True),
        # A key that uses the whole engine does not take the bursts of others.
        (UNEQUAL, 500, 100, BOB, False),
        (UNEQUAL, 500, 100, ALICE, True),
        # Many keys overload the engine together although each uses little.
        (LITTLE_EACH, 500, 100, EVE, True),
    ],
)
def test_a_request_that_would_wait_too_long_is_refused(load, arrived, ended, lane, is_late):
    gate = with_arrivals(gate_of(load), num=arrived, num_ended=ended)

    assert bool(refusal(gate, lane)) is is_late


def test_an_administrator_may_choose_the_longest_wait():
    for num_tokens, is_late in [(9000.0, False), (11000.0, True)]:
        gate = gate_of(load_of((ALICE, num_tokens)), max_queue_s=10.0)
        assert bool(refusal(with_arrivals(gate, num=500, num_ended=100))) is is_late


def test_each_refused_client_returns_later_than_the_one_before_it_within_a_minute():
    """They return at half the pace, so that those who wait at their clients find room."""
    gate = with_arrivals(gate_of(load_of((ALICE, 5000.0))), num=500, num_ended=100)
    times = [gate.retry_after_s(ALICE) for _ in range(100)]
    assert times[0] == 5
    assert times == sorted(times)
    assert times[-1] == pytest.approx(5 + 99 * 0.1 / 0.5, abs=1)
    assert gate.retry_after_s(BOB) <= 1, "it waits for its turn only"
    with_arrivals(gate, num=0, num_ended=400)
    assert gate.retry_after_s(ALICE) == 5, "the overload has ended"

    gate = gate_of(load_of((ALICE, 1e7)))
    far_times = {gate.retry_after_s(ALICE) for _ in range(200)}
    assert 30 <= min(far_times) <= max(far_times) <= 60
    assert len(far_times) > 10, "they do not return at the same moment"


def test_a_check_before_a_request_is_read_refuses_as_its_entry_would():
    gate = with_arrivals(gate_of(load_of((ALICE, 9000.0))), num=500, num_ended=100)

    assert gate.may_refuse
    with pytest.raises(Overloaded):
        gate.check(ALICE, b"{}")
    assert not gate.check(BOB, b"{}")
    assert not gate_of(load_of()).may_refuse
    assert not gate_of(None).may_refuse


def refused_for_s(gate: OverloadGate, body: bytes) -> int | None:
    """After how many seconds a refused request of Alice should come back; None: it may enter."""
    try:
        is_expected = gate.check(ALICE, body)
        with gate.enter(ALICE, Meter(), is_expected=is_expected):
            return None
    except Overloaded as error:
        return error.retry_after_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    result = FakeClock(1000.0)
    monkeypatch.setattr("vinery_serving.flow.overload.time.monotonic", result)
    return result


def overloaded_gate() -> OverloadGate:
    """A gate that refuses new requests, while those that come back may enter."""
    return with_arrivals(gate_of(load_of((ALICE, 1500.0))), num=5000, num_ended=100)


def test_a_refused_request_that_comes_back_at_its_time_goes_before_new_ones(clock):
    gate = overloaded_gate()
    times_s = {body: refused_for_s(gate, body) for body in (b"1", b"2", b"3")}
    for body, retry_s in times_s.items():
        clock.now_s = 1000.0 + retry_s

        assert refused_for_s(gate, b"new") is not None
        assert refused_for_s(gate, body) is None
        assert refused_for_s(gate, body) is not None, "it comes back once"


def test_equal_requests_of_many_clients_each_have_a_time(clock):
    gate = overloaded_gate()
    times_s = [refused_for_s(gate, b"same") for _ in range(20)]
    assert times_s[-1] > times_s[0]
    clock.now_s = 1000.0 + times_s[-1]
    assert [refused_for_s(gate, b"same") for _ in range(20)] == [None] * 20
    assert refused_for_s(gate, b"same") is not None


def test_requests_that_come_back_wait_no_longer_than_in_a_steady_queue(clock):
    gate = with_arrivals(gate_of(load_of((ALICE, 9000.0))), num=5000, num_ended=100)
    clock.now_s = 1000.0 + refused_for_s(gate, b"1")

    assert refused_for_s(gate, b"1") is not None


def test_requests_that_the_engine_has_not_seen_yet_count_beyond_its_free_slots(monkeypatch):
    gate = gate_of(load_of(num_free=3, used=()))
    meters = [Meter() for _ in range(8)]
    entered = [gate.enter(ALICE, meter) for meter in meters]
    assert gate.expected_wait_s(ALICE) == pytest.approx(0.5)
    meters[0].is_accepted = meters[1].is_accepted = True
    monkeypatch.setattr(gate, "_next_look_at", 0.0)
    assert gate.expected_wait_s(ALICE) == pytest.approx(0.3)
    for each in entered:
        each.close()
    assert gate.expected_wait_s(ALICE) == 0
    assert not gate._coming
    assert not gate._num_coming


def test_hundreds_that_come_at_once_do_not_each_look_at_all_others():
    class Counting(Meter):
        @property  # type: ignore[override]
        def is_accepted(self) -> bool:
            looks.append(self)
            return False

        @is_accepted.setter
        def is_accepted(self, value: bool) -> None:
            pass

    looks: list[object] = []
    gate = gate_of(load_of(num_free=64), max_queue_s=1e9)
    gate._next_look_at = float("inf")
    for _ in range(500):
        gate.enter(ALICE, Counting())

    assert not looks
    assert gate.expected_wait_s(ALICE) == pytest.approx(43.6, rel=0.01)


def load_of_pictures(num: int, encoding_s: float = 5.0) -> Load:
    """So many requests of Alice wait until their pictures may be encoded, while slots are free."""
    load = load_of(num_free=63)
    return structs.replace(load, encoding=((*ALICE, num),), encoding_s=encoding_s)


def test_pictures_that_wait_to_be_encoded_hold_up_no_other_request():
    gate = gate_of(load_of_pictures(1000))

    assert not gate.may_refuse
    assert refusal(gate) is None
    # A picture of another key waits for its turn.
    assert gate.encoding_wait_s(BOB) == pytest.approx(5.0)
    assert refusal(gate, BOB, has_media=True) is None


def test_a_picture_that_would_wait_long_to_be_encoded_is_refused_with_that_time():
    few = gate_of(load_of_pictures(7))
    assert few.encoding_wait_s(ALICE) == pytest.approx(35.0)
    assert refusal(few, has_media=True) is None

    patient = gate_of(load_of_pictures(7), max_queue_s=10.0)
    for gate, retry_s in ((gate_of(load_of_pictures(100)), 60), (patient, 35)):
        refused = refusal(gate, has_media=True)
        assert refused is not None and refused.retry_after_s == retry_s
        assert f"Try again in {retry_s} s" in refused.message
