"""When baselines are read again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.accounts.limits.builders import rule
from tests.fakes.clock import FakeClock
from vinery_accounts.limits.recovery import FIRST_PAUSE_S, LONGEST_PAUSE_S, ReconciliationSchedule


@pytest.fixture
def schedule(clock: FakeClock) -> ReconciliationSchedule:
    return ReconciliationSchedule(clock)


def test_a_quota_is_due_until_it_was_restored(schedule: ReconciliationSchedule) -> None:
    quota = rule()
    assert schedule.due([quota]) == schedule.due([quota]) == [quota]
    schedule.note_restored([quota])
    assert schedule.due([quota]) == []


def test_reads_are_soon_at_first_and_then_less_and_less_often(
    schedule: ReconciliationSchedule, clock: FakeClock
) -> None:
    quota = rule()
    pauses: list[float] = []
    for _ in range(9):
        schedule.note_restored([quota])
        pauses.append(0.0)
        while not schedule.due([quota]):
            clock.pass_s(1.0)
            pauses[-1] += 1.0
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses == sorted(pauses)
    assert pauses[-2:] == [LONGEST_PAUSE_S] * 2


def test_a_shadow_rule_is_restored_once_and_again_when_it_is_enforced(
    schedule: ReconciliationSchedule, clock: FakeClock
) -> None:
    shadow = rule(is_shadow=True)
    schedule.note_restored([shadow])
    clock.pass_s(LONGEST_PAUSE_S)

    assert schedule.due([shadow]) == []
    enforced = replace(shadow, is_shadow=False)
    assert schedule.due([enforced]) == [enforced]


def test_a_quota_that_was_removed_and_comes_back_is_new(schedule: ReconciliationSchedule) -> None:
    quota, other = rule(), rule()
    schedule.note_restored([quota, other])

    schedule.keep([other])

    assert not schedule.knows(quota)
    assert schedule.due([quota, other]) == [quota]


def test_a_read_can_be_hurried_but_not_delayed(
    schedule: ReconciliationSchedule, clock: FakeClock
) -> None:
    quota, unknown = rule(), rule()
    for _ in range(5):
        schedule.note_restored([quota])
    schedule.hurry([quota, unknown])
    clock.pass_s(FIRST_PAUSE_S - 1)
    schedule.hurry([quota])
    clock.pass_s(1)
    assert schedule.due([quota]) == [quota]
    assert not schedule.knows(unknown)
