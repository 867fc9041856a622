"""Quotas receive baselines of use before they bind, also after an outage of Redis. Buckets receive
baselines when the limiter has lost its memory."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.utils import timezone
from msgspec import structs
from usage_builders import store as store_usage
from usage_builders import tokens

from tests.accounts.limits.builders import rule
from tests.conftest import until_in_loop
from tests.fakes.clock import FakeClock
from tests.fakes.limiter import FakeLimiter
from vinery_accounts.keys.table import ANONYMOUS
from vinery_accounts.limits.recovery import FIRST_PAUSE_S, LONGEST_PAUSE_S, ReconciliationSchedule
from vinery_accounts.limits.reservations import ActualUsage, Lease, ReservationRequest
from vinery_accounts.limits.service import FailoverLimiter, LimitService, UnavailablePolicy
from vinery_accounts.models import Limit

pytestmark = [pytest.mark.django_db, pytest.mark.stores]


@pytest.fixture
def limits() -> LimitService:
    return LimitService()


@pytest.fixture
def store(limits: LimitService, monkeypatch: pytest.MonkeyPatch) -> FakeLimiter:
    fake = FakeLimiter()
    monkeypatch.setattr(limits, "_limiter", fake)
    return fake


@pytest.fixture
def twelve_used() -> None:
    """A request has just used twelve tokens."""
    use_twelve("r")


def use_twelve(request_id: str) -> None:
    """Store the usage record of a request that has just used twelve tokens."""
    store_usage(request_id, user_id=1, key_id=1, started_at=timezone.now(), **tokens(7, 5))


def platform_limit(window: str, amount: int = 100) -> Limit:
    return Limit.objects.create(scope="platform", metric="tokens", window=window, amount=amount)


@pytest.fixture
def quota(twelve_used: None) -> Limit:
    return platform_limit("none")


@pytest.fixture
def bucket(twelve_used: None) -> Limit:
    """A bucket that refills one token in five seconds."""
    return platform_limit("minute", 12)


def follow(limits: LimitService) -> None:
    asyncio.run(limits.follow(limits.read_update()))


def restored(store: FakeLimiter) -> list[int]:
    return [baseline.num_used for baseline in store.restored]


def test_a_new_quota_begins_with_what_was_used_when_redis_answers_and_counts_what_ran_then(
    limits: LimitService, store: FakeLimiter, quota: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(limits, "_schedule", ReconciliationSchedule(clock))
    store.is_unavailable = True
    follow(limits)
    assert [rule.id for rule in limits.book.rules] == [quota.pk]
    store.is_unavailable = False
    for _ in range(2):
        follow(limits)
        assert restored(store) == [12]

    use_twelve("ran")
    follow(limits)
    assert restored(store) == [12]
    clock.pass_s(FIRST_PAUSE_S)
    follow(limits)
    assert restored(store) == [12, 24]
    assert [baseline.is_update for baseline in store.restored] == [False, True]


def test_a_bucket_survives_a_start(limits: LimitService, store: FakeLimiter, bucket: Limit) -> None:
    follow(limits)
    [baseline] = store.restored
    assert (baseline.rule.id, 0 < baseline.num_used <= 12) == (bucket.pk, True)
    follow(limits)
    assert len(store.restored) == 1


def test_a_new_bucket_of_a_running_process_is_full(
    limits: LimitService, store: FakeLimiter, twelve_used: None
) -> None:
    follow(limits)
    platform_limit("minute", 12)
    follow(limits)
    assert len(list(limits.book.rules)) == 1
    assert restored(store) == []


def test_a_quota_in_another_time_zone_and_back_begins_with_what_was_used(
    limits: LimitService, store: FakeLimiter, twelve_used: None
) -> None:
    quota = platform_limit("month")
    for time_zone in ("UTC", "Europe/Berlin", "UTC"):
        quota.time_zone = time_zone
        quota.save()
        follow(limits)
    zones = [baseline.rule.time_zone for baseline in store.restored]
    assert zones == ["UTC", "Europe/Berlin", "UTC"]
    assert not any(baseline.is_update for baseline in store.restored)


def test_end_users_begin_with_what_they_used_and_a_known_quota_is_updated(
    limits: LimitService, store: FakeLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(limits, "_schedule", ReconciliationSchedule(clock))
    monkeypatch.setattr("vinery_accounts.limits.service._BASELINES_IN_A_CALL", 1)
    at = {"started_at": timezone.now(), "project_id": 3, **tokens(7, 5)}
    store_usage("a", end_user="ann", **at)
    store_usage("b", end_user="bob", **at)
    Limit.objects.create(scope="end_user", scope_id=3, metric="tokens", window="month", amount=99)
    caller = structs.replace(ANONYMOUS, project_id=3)

    follow(limits)
    assert (store.num_calls, restored(store)) == (2, [12, 12])
    [ann] = limits.book.rules_for(caller, "small", "ann")
    assert [level.num_used for level in asyncio.run(limits.levels([ann]))] == [12]
    store_usage("c", end_user="ann", **at)
    clock.pass_s(FIRST_PAUSE_S)
    follow(limits)
    assert [level.num_used for level in asyncio.run(limits.levels([ann]))] == [24]
    assert [each.is_update for each in store.restored] == [False, False, True, True]
    limits._schedule.read_soon()
    clock.pass_s(FIRST_PAUSE_S)
    assert limits.is_update_due


class OnRedis:
    """Limits on a fake Redis. The thread of a test reads the database."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, runner: asyncio.Runner, policy: UnavailablePolicy
    ) -> None:
        self.store = FakeLimiter()
        self.num_requests = 0
        self.failover = FailoverLimiter(self.store, policy, probe_interval_s=0.001)
        self.limits = LimitService()
        self.clock = FakeClock()
        monkeypatch.setattr(self.limits, "_schedule", ReconciliationSchedule(self.clock))
        monkeypatch.setattr(self.limits, "_failover", self.failover)
        monkeypatch.setattr(self.limits, "_limiter", self.failover)
        self.run = runner.run
        self.follow()

    @property
    def state(self) -> tuple[bool, list[int]]:
        """Whether Redis is marked as unavailable, and the use of each limit there."""
        levels = self.run(self.store.inner.levels(list(self.limits.book.rules)))
        return self.failover.state.is_degraded, [level.num_used for level in levels]

    def follow(self, after_s: float = 0.0) -> None:
        self.clock.pass_s(after_s)
        self.run(self.limits.follow(self.limits.read_update()))

    def restart_redis(self) -> None:
        """Restart Redis without data."""
        self.stop_redis()
        self.start_redis()

    def reserve(self) -> Lease:
        """Reserve twelve tokens of all limits."""
        self.num_requests += 1
        name = f"r{self.num_requests} of us"
        request = ReservationRequest(7, 5, lease_id=name, rules=tuple(self.limits.book.rules))
        answer = self.run(self.limits.reserve(request))
        assert isinstance(answer, Lease)
        return answer

    def settle(self, lease: Lease) -> None:
        """End a request that has used its reservation, and store a usage record."""
        use_twelve(lease.id)
        self.run(self._settle(lease))

    async def _settle(self, lease: Lease) -> None:
        self.limits.settle(lease, ActualUsage(7, 5))

    def stop_redis(self) -> None:
        self.store.is_unavailable = True
        self.run(self.limits.tick())
        assert self.failover.state.is_degraded

    def start_redis(self, *, has_data: bool = False) -> None:
        """Start the server, and wait until the failover sees it."""
        if not has_data:
            self.store.forget()
        self.store.is_unavailable = False
        self.run(until_in_loop(lambda: self.failover.is_answering))


@pytest.fixture
def policy() -> UnavailablePolicy:
    return UnavailablePolicy.REFUSE


@pytest.fixture
def on_redis(monkeypatch: pytest.MonkeyPatch, policy: UnavailablePolicy) -> Iterator[OnRedis]:
    with asyncio.Runner() as runner:
        made = OnRedis(monkeypatch, runner, policy)
        yield made
        runner.run(made.limits.close())


@pytest.fixture
def redis(quota: Limit, on_redis: OnRedis) -> OnRedis:
    """Limits on Redis, with the quota."""
    on_redis.follow()
    return on_redis


def test_redis_without_its_data_counts_when_it_has_the_baselines(redis: OnRedis) -> None:
    assert redis.state == (False, [12])
    redis.restart_redis()
    assert redis.state == (True, [0])
    redis.follow()
    assert redis.state == (False, [12])

    # An outage between two checks is noticed.
    limits = redis.limits
    read_before = limits.read_update()
    redis.restart_redis()
    redis.run(limits.follow(read_before))
    assert redis.state == (True, [0])
    redis.follow()
    assert redis.state == (False, [12])

    redis.restart_redis()
    redis.store.is_unavailable = True
    redis.follow()
    assert redis.failover.state.is_degraded
    redis.start_redis()
    redis.follow()
    assert redis.state == (False, [12])


def test_a_request_counts_that_ran_when_data_was_lost_or_read(redis: OnRedis) -> None:
    lease = redis.reserve()
    redis.restart_redis()
    redis.follow()
    for _ in range(5):  # the request runs until checks have become rare
        redis.follow(LONGEST_PAUSE_S)
    assert redis.state == (False, [12])
    redis.settle(lease)
    redis.follow(FIRST_PAUSE_S)
    assert redis.state == (False, [24])

    redis.restart_redis()
    update = redis.limits.read_update()
    use_twelve("meanwhile")
    redis.run(redis.limits.follow(update))
    assert redis.state == (False, [24])
    redis.follow(FIRST_PAUSE_S)
    assert redis.state == (False, [36])


@pytest.mark.parametrize("policy", [UnavailablePolicy.ALLOW])
@pytest.mark.parametrize("has_data", [True, False])
def test_what_runs_without_redis_counts_when_it_answers(on_redis: OnRedis, has_data: bool) -> None:
    platform_limit("none")
    platform_limit("hour", 40)  # which refills one token in 90 seconds
    on_redis.follow()
    on_redis.settle(on_redis.reserve())
    on_redis.stop_redis()
    on_redis.follow()
    ended, late, running = [on_redis.reserve() for _ in range(3)]
    assert ended.is_uncounted
    on_redis.settle(ended)
    on_redis.start_redis(has_data=has_data)
    on_redis.follow()
    assert on_redis.state == (False, [24, 24])

    # The late request's record was written a moment later.
    use_twelve(late.id)
    on_redis.follow(FIRST_PAUSE_S)
    assert on_redis.state == (False, [36, 36])

    for _ in range(5):
        on_redis.follow(LONGEST_PAUSE_S)
    on_redis.settle(running)
    on_redis.follow(FIRST_PAUSE_S)
    assert on_redis.state == (False, [48, 40])


@pytest.fixture
def schedule(clock: FakeClock) -> ReconciliationSchedule:
    return ReconciliationSchedule(clock)


def test_a_shadow_rule_is_restored_once_and_again_when_it_is_enforced(
    schedule: ReconciliationSchedule, clock: FakeClock
) -> None:
    shadow = rule(is_shadow=True)
    schedule.note_restored([shadow])
    clock.pass_s(LONGEST_PAUSE_S)
    assert schedule.due([shadow]) == []
    enforced = replace(shadow, is_shadow=False)
    assert schedule.due([enforced]) == [enforced]


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
