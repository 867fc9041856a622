"""Quotas learn what was used of them before they bind, also when their store was away; buckets
do when whoever counts them has lost its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from django.utils import timezone

from accounts.limits.away import StoreState, WhenAway
from accounts.limits.leases import Floor
from accounts.limits.limiter import LimitsAway
from accounts.models import Limit
from accounts.usage.entries import Admission, Outcome, Settlement
from accounts.usage.store import store_settlements
from serving.limits import Limits, LimitSettings

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
    admission = Admission(
        request_id="r",
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


def test_a_bucket_goes_on_when_its_store_is_back(
    limits: Limits, store: Store, bucket: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    away_since_s: float | None = None

    def state(_: Limits) -> StoreState:
        return StoreState(WhenAway.REFUSE, away_since_s, 0, 0, 0)

    monkeypatch.setattr(Limits, "state", property(state))
    store.is_away = True
    follow(limits)  # nobody has noticed yet
    away_since_s = 1.0
    assert limits.read().floors == []
    follow(limits)
    store.is_away, away_since_s = False, None
    follow(limits)
    follow(limits)
    assert [floor.rule.id for floor in store.told] == [bucket.pk]

    away_since_s = 2.0
    follow(limits)
    away_since_s = None
    follow(limits)
    assert [floor.rule.id for floor in store.told] == [bucket.pk] * 2
