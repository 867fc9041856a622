"""Quotas learn what was used of them before they bind, also when their store was away; buckets
do when whoever counts them has lost its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from django.utils import timezone

from accounts.limits.failover import GuardedLimiter, WhenAway
from accounts.limits.leases import Floor, Lease, Level
from accounts.limits.limiter import LimitsAway
from accounts.limits.memory import MemoryLimiter
from accounts.limits.reconciliation import FIRST_PAUSE_S, LONGEST_PAUSE_S, Looks
from accounts.limits.rules import Claim, Rule, Spent
from accounts.models import Limit
from accounts.usage.entries import Admission, Outcome, Settlement
from accounts.usage.store import store_settlements
from serving.runtime.limits import Limits, LimitSettings
from tests.accounts.limits.conftest import Clock

pytestmark = pytest.mark.django_db


class Store:
    """Of which only `restore` is asked here."""

    def __init__(self) -> None:
        self.is_away = False
        self.told: list[Floor] = []

    async def restore(self, floors: Sequence[Floor]) -> None:
        if self.is_away:
            raise LimitsAway("away")
        self.told += floors


@pytest.fixture
def limits() -> Limits:
    return Limits(LimitSettings())


@pytest.fixture
def store(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(limits, "_limiter", made)
    return made


@pytest.fixture
def twelve_used() -> None:
    """Tokens, a moment ago."""
    use_twelve("r")


def use_twelve(request_id: str) -> None:
    """Tokens, by a request that has just ended."""
    admission = Admission(
        request_id=request_id,
        user_id=1,
        username="alice",
        key_id=1,
        key_name="laptop",
        model="small",
        endpoint="completions",
        dialect="v1",
        is_streamed=False,
        started_at=timezone.now(),
    )
    used = {"num_prompt_tokens": 7, "num_output_tokens": 5}
    store_settlements(
        [Settlement(admission=admission, outcome=Outcome.OK, http_status=200, **used)]
    )


@pytest.fixture
def quota(twelve_used: None) -> Limit:
    return Limit.objects.create(scope="platform", metric="tokens", window="none", amount=100)


@pytest.fixture
def bucket(twelve_used: None) -> Limit:
    """It takes five seconds to refill by one."""
    return Limit.objects.create(scope="platform", metric="tokens", window="minute", amount=12)


def follow(limits: Limits) -> None:
    asyncio.run(limits.follow(limits.read()))


def told(store: Store) -> list[int]:
    return [floor.num_used for floor in store.told]


def test_a_new_quota_begins_with_what_was_used(limits: Limits, store: Store, quota: Limit) -> None:
    follow(limits)
    assert told(store) == [12]
    assert [rule.id for rule in limits.book.rules] == [quota.pk]
    follow(limits)
    assert told(store) == [12]


def test_a_store_that_was_away_is_told_once_it_is_back(
    limits: Limits, store: Store, quota: Limit
) -> None:
    store.is_away = True
    follow(limits)
    assert [rule.id for rule in limits.book.rules] == [quota.pk]
    store.is_away = False
    follow(limits)
    assert told(store) == [12]


def test_a_bucket_goes_on_after_a_start(limits: Limits, store: Store, bucket: Limit) -> None:
    follow(limits)
    [floor] = store.told
    assert (floor.rule.id, 0 < floor.num_used <= 12) == (bucket.pk, True)
    follow(limits)
    assert len(store.told) == 1


def test_a_new_bucket_of_a_process_that_runs_is_full(
    limits: Limits, store: Store, twelve_used: None
) -> None:
    follow(limits)
    Limit.objects.create(scope="platform", metric="tokens", window="minute", amount=12)
    follow(limits)
    assert len(list(limits.book.rules)) == 1
    assert told(store) == []


# -- Looking again ------------------------------------------------------------------------------


@pytest.fixture
def clock(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(limits, "_looks", Looks(made))
    return made


def test_a_new_quota_learns_of_what_ran_when_it_was_set(
    limits: Limits, store: Store, quota: Limit, clock: Clock
) -> None:
    follow(limits)
    use_twelve("ran")
    follow(limits)
    assert told(store) == [12]

    clock.pass_s(FIRST_PAUSE_S)
    follow(limits)

    assert told(store) == [12, 24]
    assert [floor.is_again for floor in store.told] == [False, True]


def test_a_quota_in_another_time_zone_and_back_begins_with_what_was_used(
    limits: Limits, store: Store, twelve_used: None
) -> None:
    quota = Limit.objects.create(scope="platform", metric="tokens", window="month", amount=100)
    for time_zone in ("UTC", "Europe/Berlin", "UTC"):
        quota.time_zone = time_zone
        quota.save()
        follow(limits)

    assert [floor.rule.time_zone for floor in store.told] == ["UTC", "Europe/Berlin", "UTC"]
    assert not any(floor.is_again for floor in store.told)


# -- A store that was away ----------------------------------------------------------------------


class Away(MemoryLimiter):
    """A store that can be away, and lose its memory."""

    is_away = False

    def forget(self) -> None:
        """As a server does that is started again."""
        MemoryLimiter.__init__(self)

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        self._answer()
        return await super().levels(rules)

    async def restore(self, floors: Sequence[Floor]) -> None:
        self._answer()
        await super().restore(floors)

    def _answer(self) -> None:
        if self.is_away:
            raise LimitsAway("away")


class Guarded:
    """Limits in a store that can be away. The thread of a test reads the database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runner: asyncio.Runner) -> None:
        self.store = Away()
        self.guard = GuardedLimiter(
            self.store, MemoryLimiter(), WhenAway.REFUSE, probe_interval_s=0.001
        )
        self.limits = Limits(LimitSettings())
        self.clock = Clock()
        monkeypatch.setattr(self.limits, "_looks", Looks(self.clock))
        monkeypatch.setattr(self.limits, "_guard", self.guard)
        monkeypatch.setattr(self.limits, "_limiter", self.guard)
        self.run = runner.run
        self.follow()

    @property
    def is_away(self) -> bool:
        return self.guard.state.is_degraded

    def follow(self) -> None:
        self.run(self.limits.follow(self.limits.read()))

    def reserve(self) -> Lease:
        """Of all limits, twelve tokens."""
        claim = Claim("r2", tuple(self.limits.book.rules), 7, 5)
        answer = self.run(self.limits.reserve(claim))
        assert isinstance(answer, Lease)
        return answer

    def settle(self, lease: Lease) -> None:
        """It has used all that it has reserved, and that is in the books."""
        use_twelve(lease.id)
        self.run(self._settle(lease))

    async def _settle(self, lease: Lease) -> None:
        self.limits.settle(lease, Spent(7, 5))

    def used(self) -> list[int]:
        """Of each limit, as the store knows it."""
        levels = self.run(self.store.levels(list(self.limits.book.rules)))
        return [level.num_used for level in levels]

    def go_away(self) -> None:
        self.store.is_away = True
        self.run(self.limits.tick())
        assert self.is_away

    def start_again(self) -> None:
        """The server of the store, until it is found to answer."""
        self.store.forget()
        self.store.is_away = False
        self.run(self._answers())

    async def _answers(self) -> None:
        async with asyncio.timeout(60):
            while not self.guard.is_answering:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    with asyncio.Runner() as runner:
        made = Guarded(monkeypatch, runner)
        yield made
        runner.run(made.limits.close())


@pytest.fixture
def guarded_quota(quota: Limit, guarded: Guarded) -> Guarded:
    guarded.follow()
    return guarded


def test_a_store_that_has_lost_its_memory_counts_when_it_knows_what_was_used(
    guarded_quota: Guarded,
) -> None:
    assert guarded_quota.used() == [12]
    guarded_quota.go_away()
    guarded_quota.start_again()
    assert (guarded_quota.is_away, guarded_quota.used()) == (True, [0])

    guarded_quota.follow()

    assert (guarded_quota.is_away, guarded_quota.used()) == (False, [12])


def test_an_outage_between_two_looks_is_not_overlooked(guarded_quota: Guarded) -> None:
    limits = guarded_quota.limits
    read_before = limits.read()
    guarded_quota.go_away()
    guarded_quota.start_again()

    guarded_quota.run(limits.follow(read_before))
    assert (guarded_quota.is_away, guarded_quota.used()) == (True, [0])

    guarded_quota.follow()
    assert (guarded_quota.is_away, guarded_quota.used()) == (False, [12])


def test_a_store_that_goes_away_while_it_is_told_is_told_again(guarded_quota: Guarded) -> None:
    guarded_quota.go_away()
    guarded_quota.start_again()
    guarded_quota.store.is_away = True
    guarded_quota.follow()
    assert guarded_quota.is_away

    guarded_quota.start_again()
    guarded_quota.follow()
    assert (guarded_quota.is_away, guarded_quota.used()) == (False, [12])


def test_what_ran_when_the_store_lost_its_memory_is_learnt_when_it_has_ended(
    guarded_quota: Guarded,
) -> None:
    lease = guarded_quota.reserve()
    guarded_quota.go_away()
    guarded_quota.start_again()
    guarded_quota.follow()
    for _ in range(5):  # it runs so long that looks have become rare
        guarded_quota.clock.pass_s(LONGEST_PAUSE_S)
        guarded_quota.follow()
    assert guarded_quota.used() == [12]

    guarded_quota.settle(lease)
    guarded_quota.clock.pass_s(FIRST_PAUSE_S)
    guarded_quota.follow()

    assert guarded_quota.used() == [24]


def test_what_ended_while_the_store_was_told_is_learnt_soon(guarded_quota: Guarded) -> None:
    guarded_quota.go_away()
    guarded_quota.start_again()
    read = guarded_quota.limits.read()
    use_twelve("meanwhile")
    guarded_quota.run(guarded_quota.limits.follow(read))
    assert guarded_quota.used() == [12]

    guarded_quota.clock.pass_s(FIRST_PAUSE_S)
    guarded_quota.follow()

    assert guarded_quota.used() == [24]


def test_a_bucket_goes_on_when_its_store_is_back(bucket: Limit, guarded: Guarded) -> None:
    guarded.follow()
    guarded.go_away()
    guarded.follow()
    guarded.start_again()
    assert guarded.used() == [0]

    guarded.follow()

    [num_used] = guarded.used()
    assert 0 < num_used <= 12
    assert not guarded.is_away
