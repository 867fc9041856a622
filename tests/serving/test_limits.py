"""Quotas learn what was used of them before they bind, also when their store was away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from django.utils import timezone

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
def quota() -> Limit:
    """Twelve tokens of it have been used."""
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
    return Limit.objects.create(
        scope="platform", metric="tokens", window="none", amount=100, time_zone="UTC"
    )


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
