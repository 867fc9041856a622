"""Quotas receive baselines of use before they bind, also after an outage of Redis. Buckets receive
them when their limiter has lost its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from django.utils import timezone

from tests.fakes.clock import FakeClock
from tests.fakes.limiter import FakeLimiter
from vinery_accounts.limits.failover import FailoverLimiter, UnavailablePolicy
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.recovery import FIRST_PAUSE_S, LONGEST_PAUSE_S, ReconciliationSchedule
from vinery_accounts.limits.reservations import ActualUsage, Lease, ReservationRequest
from vinery_accounts.limits.service import LimitService, LimitSettings
from vinery_accounts.models import Limit
from vinery_accounts.usage.entries import Admission, Outcome, Settlement
from vinery_accounts.usage.store import store_settlements

pytestmark = pytest.mark.django_db


@pytest.fixture
def limits() -> LimitService:
    return LimitService(LimitSettings())


@pytest.fixture
def store(limits: LimitService, monkeypatch: pytest.MonkeyPatch) -> FakeLimiter:
    fake = FakeLimiter()
    monkeypatch.setattr(limits, "_limiter", fake)
    return fake


@pytest.fixture
def clock(limits: LimitService, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(limits, "_schedule", ReconciliationSchedule(fake))
    return fake


@pytest.fixture
def twelve_used() -> None:
    """A request has just used twelve tokens."""
    use_twelve("r")


def use_twelve(request_id: str) -> None:
    """Store the usage record of a request that has just used twelve tokens."""
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


def test_a_new_quota_begins_with_what_was_used(
    limits: LimitService, store: FakeLimiter, quota: Limit
) -> None:
    follow(limits)
    assert restored(store) == [12]
    assert [rule.id for rule in limits.book.rules] == [quota.pk]
    follow(limits)
    assert restored(store) == [12]


def test_redis_receives_the_baselines_after_an_outage(
    limits: LimitService, store: FakeLimiter, quota: Limit
) -> None:
    store.is_unavailable = True
    follow(limits)
    assert [rule.id for rule in limits.book.rules] == [quota.pk]
    store.is_unavailable = False
    follow(limits)
    assert restored(store) == [12]


def test_a_bucket_continues_after_a_start(
    limits: LimitService, store: FakeLimiter, bucket: Limit
) -> None:
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


# -- Later baselines ----------------------------------------------------------------------------


def test_a_new_quota_counts_requests_that_ran_when_it_was_set(
    limits: LimitService, store: FakeLimiter, quota: Limit, clock: FakeClock
) -> None:
    follow(limits)
    use_twelve("ran")
    follow(limits)
    assert restored(store) == [12]

    clock.pass_s(FIRST_PAUSE_S)
    follow(limits)

    assert restored(store) == [12, 24]
    assert [baseline.is_update for baseline in store.restored] == [False, True]


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


# -- Outages of Redis ---------------------------------------------------------------------------


class OnRedis:
    """Limits on a fake Redis. The thread of a test reads the database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runner: asyncio.Runner) -> None:
        self.store = FakeLimiter()
        self.failover = FailoverLimiter(
            self.store, MemoryLimiter(), UnavailablePolicy.REFUSE, probe_interval_s=0.001
        )
        self.limits = LimitService(LimitSettings())
        self.clock = FakeClock()
        monkeypatch.setattr(self.limits, "_schedule", ReconciliationSchedule(self.clock))
        monkeypatch.setattr(self.limits, "_failover", self.failover)
        monkeypatch.setattr(self.limits, "_limiter", self.failover)
        self.run = runner.run
        self.follow()

    @property
    def state(self) -> tuple[bool, list[int]]:
        """Whether Redis is marked as unavailable, and what is used of each limit there."""
        levels = self.run(self.store.inner.levels(list(self.limits.book.rules)))
        return self.failover.state.is_degraded, [level.num_used for level in levels]

    def follow(self) -> None:
        self.run(self.limits.follow(self.limits.read_update()))

    def reserve(self) -> Lease:
        """Reserve twelve tokens of all limits."""
        request = ReservationRequest("r2", tuple(self.limits.book.rules), 7, 5)
        answer = self.run(self.limits.reserve(request))
        assert isinstance(answer, Lease)
        return answer

    def settle(self, lease: Lease) -> None:
        """End a request that has used its reservation, and store its usage record."""
        use_twelve(lease.id)
        self.run(self._settle(lease))

    async def _settle(self, lease: Lease) -> None:
        self.limits.settle(lease, ActualUsage(7, 5))

    def stop_redis(self) -> None:
        self.store.is_unavailable = True
        self.run(self.limits.tick())
        assert self.failover.state.is_degraded

    def start_redis(self) -> None:
        """Start the server without its data, and wait until the failover sees it."""
        self.store.forget()
        self.store.is_unavailable = False
        self.run(self._until_it_answers())

    async def _until_it_answers(self) -> None:
        async with asyncio.timeout(60):
            while not self.failover.is_answering:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture
def on_redis(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnRedis]:
    with asyncio.Runner() as runner:
        made = OnRedis(monkeypatch, runner)
        yield made
        runner.run(made.limits.close())


@pytest.fixture
def quota_on_redis(quota: Limit, on_redis: OnRedis) -> OnRedis:
    on_redis.follow()
    return on_redis


def test_redis_without_its_data_counts_when_it_has_the_baselines(quota_on_redis: OnRedis) -> None:
    assert quota_on_redis.state == (False, [12])
    quota_on_redis.stop_redis()
    quota_on_redis.start_redis()
    assert quota_on_redis.state == (True, [0])

    quota_on_redis.follow()

    assert quota_on_redis.state == (False, [12])


def test_an_outage_between_two_checks_is_noticed(quota_on_redis: OnRedis) -> None:
    limits = quota_on_redis.limits
    read_before = limits.read_update()
    quota_on_redis.stop_redis()
    quota_on_redis.start_redis()

    quota_on_redis.run(limits.follow(read_before))
    assert quota_on_redis.state == (True, [0])

    quota_on_redis.follow()
    assert quota_on_redis.state == (False, [12])


def test_redis_receives_its_baselines_again_after_an_outage_meanwhile(
    quota_on_redis: OnRedis,
) -> None:
    quota_on_redis.stop_redis()
    quota_on_redis.start_redis()
    quota_on_redis.store.is_unavailable = True
    quota_on_redis.follow()
    assert quota_on_redis.failover.state.is_degraded

    quota_on_redis.start_redis()
    quota_on_redis.follow()
    assert quota_on_redis.state == (False, [12])


def test_a_request_that_ran_when_redis_lost_its_data_counts_after_its_end(
    quota_on_redis: OnRedis,
) -> None:
    lease = quota_on_redis.reserve()
    quota_on_redis.stop_redis()
    quota_on_redis.start_redis()
    quota_on_redis.follow()
    for _ in range(5):  # it runs until checks have become rare
        quota_on_redis.clock.pass_s(LONGEST_PAUSE_S)
        quota_on_redis.follow()
    assert quota_on_redis.state == (False, [12])

    quota_on_redis.settle(lease)
    quota_on_redis.clock.pass_s(FIRST_PAUSE_S)
    quota_on_redis.follow()

    assert quota_on_redis.state == (False, [24])


def test_a_request_that_ended_while_baselines_were_read_counts_soon(
    quota_on_redis: OnRedis,
) -> None:
    quota_on_redis.stop_redis()
    quota_on_redis.start_redis()
    update = quota_on_redis.limits.read_update()
    use_twelve("meanwhile")
    quota_on_redis.run(quota_on_redis.limits.follow(update))
    assert quota_on_redis.state == (False, [12])

    quota_on_redis.clock.pass_s(FIRST_PAUSE_S)
    quota_on_redis.follow()

    assert quota_on_redis.state == (False, [24])


def test_a_bucket_continues_after_an_outage_of_redis(bucket: Limit, on_redis: OnRedis) -> None:
    on_redis.follow()
    on_redis.stop_redis()
    on_redis.follow()
    on_redis.start_redis()
    assert on_redis.state == (True, [0])

    on_redis.follow()

    is_degraded, [num_used] = on_redis.state
    assert 0 < num_used <= 12
    assert not is_degraded
