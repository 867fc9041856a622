"""When the books are looked into again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accounts.limits.recovery import FIRST_PAUSE_S, LONGEST_PAUSE_S, ReconciliationSchedule
from tests.accounts.limits.builders import rule
from tests.fakes.clock import FakeClock


@pytest.fixture
def looks(clock: FakeClock) -> ReconciliationSchedule:
    return ReconciliationSchedule(clock)


def test_what_was_never_told_is_due_until_it_is(looks: ReconciliationSchedule) -> None:
    quota = rule()
    assert looks.due([quota]) == looks.due([quota]) == [quota]
    looks.note_restored([quota])
    assert looks.due([quota]) == []


def test_looks_are_soon_at_first_and_then_less_and_less_often(
    looks: ReconciliationSchedule, clock: FakeClock
) -> None:
    quota = rule()
    pauses: list[float] = []
    for _ in range(9):
        looks.note_restored([quota])
        pauses.append(0.0)
        while not looks.due([quota]):
            clock.pass_s(1.0)
            pauses[-1] += 1.0
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses == sorted(pauses)
    assert pauses[-2:] == [LONGEST_PAUSE_S] * 2


def test_a_shadow_rule_is_told_once_and_again_when_it_is_enforced(
    looks: ReconciliationSchedule, clock: FakeClock
) -> None:
    shadow = rule(is_shadow=True)
    looks.note_restored([shadow])
    clock.pass_s(LONGEST_PAUSE_S)

    assert looks.due([shadow]) == []
    enforced = replace(shadow, is_shadow=False)
    assert looks.due([enforced]) == [enforced]


def test_what_is_gone_and_comes_back_is_new(looks: ReconciliationSchedule) -> None:
    quota, other = rule(), rule()
    looks.note_restored([quota, other])

    looks.keep([other])

    assert not looks.knows(quota)
    assert looks.due([quota, other]) == [quota]


def test_a_look_can_be_hurried_but_not_put_off(
    looks: ReconciliationSchedule, clock: FakeClock
) -> None:
    quota, unknown = rule(), rule()
    for _ in range(5):
        looks.note_restored([quota])
    looks.hurry([quota, unknown])
    clock.pass_s(FIRST_PAUSE_S - 1)
    looks.hurry([quota])
    clock.pass_s(1)
    assert looks.due([quota]) == [quota]
    assert not looks.knows(unknown)
