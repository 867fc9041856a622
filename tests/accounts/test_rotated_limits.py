"""A limit of a key goes over to the key that replaces it, with what is used of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from usage_builders import admission, settlement

from accounts import changes
from accounts.keys import NewKey, rotate_key
from accounts.keytable import Caller
from accounts.limits.floors import read_bucket_floors, read_floors
from accounts.limits.leases import Denial
from accounts.limits.memory import MemoryLimiter
from accounts.limits.rulebook import RuleBook
from accounts.limits.rules import Claim, Rule, Spent
from accounts.models import ApiKey, AuditEntry, Limit
from accounts.usage.store import store_settlements

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def key(new_key: Callable[..., NewKey]) -> ApiKey:
    """One with a hundred tokens a day."""
    made = new_key().key
    changes.add(Limit(scope="key", scope_id=made.pk, metric="tokens", window="day", amount=100))
    return made


def rules_of(key: ApiKey, book: RuleBook | None = None) -> tuple[Rule, ...]:
    book = book or RuleBook()
    book.follow(book.read())
    caller = Caller(user_id=key.owner_id, username="alice", key_id=key.pk, key_name=key.name)
    return book.rules_for(caller, "tiny-chat")


def use(key: ApiKey, num_tokens: int) -> None:
    now = datetime.now(UTC)
    who = admission(f"{key.pk}-{num_tokens}", key_id=key.pk, started_at=now)
    counts = {"num_prompt_tokens": num_tokens, "num_cached_tokens": 0, "num_output_tokens": 0}
    store_settlements([settlement(who.request_id, admission=who, **counts)])


def test_the_limit_is_that_of_the_new_key_and_binds_the_old_one_meanwhile(key: ApiKey) -> None:
    new = rotate_key(key, grace=HOUR).key

    assert Limit.objects.get().scope_id == new.pk
    assert [rule.amount for rule in rules_of(new)] == [100]
    assert rules_of(key) == rules_of(new)


def test_a_key_that_is_rotated_twice_in_its_grace_is_bound_all_the_same(key: ApiKey) -> None:
    newest = rotate_key(rotate_key(key, grace=HOUR).key, grace=HOUR).key

    assert rules_of(key) == rules_of(newest) != ()


def test_a_key_without_a_limit_has_none_after_it(new_key: Callable[..., NewKey]) -> None:
    assert rules_of(rotate_key(new_key().key, grace=HOUR).key) == ()


async def count(limiter: MemoryLimiter, rules: tuple[Rule, ...], num_tokens: int) -> bool:
    """Whether so many were let through."""
    answer = await limiter.acquire(Claim(f"r{time.monotonic_ns()}", rules, num_tokens, 0))
    if isinstance(answer, Denial):
        return False
    await limiter.settle(answer, Spent(num_input_tokens=num_tokens))
    return True


async def test_both_keys_use_up_one_limit(limited: tuple[tuple[Rule, ...], ...]) -> None:
    limiter = MemoryLimiter()
    before, old, new = limited

    assert await count(limiter, before, 60)
    assert await count(limiter, old, 30)
    assert not await count(limiter, new, 20)
    assert await count(limiter, new, 10)


@pytest.fixture
def limited(key: ApiKey) -> tuple[tuple[Rule, ...], ...]:
    """The rules of the key before its rotation and after it, and those of the new one."""
    book = RuleBook()
    before = rules_of(key, book)
    new = rotate_key(key, grace=HOUR).key
    return before, rules_of(key, book), rules_of(new, book)


def test_the_books_know_what_all_of_them_have_used(key: ApiKey) -> None:
    use(key, 20)
    second = rotate_key(key, grace=HOUR).key
    use(second, 30)
    third = rotate_key(second, grace=timedelta(0)).key
    use(third, 40)

    (floor,) = read_floors(rules_of(third), time.time())

    assert floor.num_used == 90


def test_buckets_are_filled_from_the_books_of_all_of_them(new_key: Callable[..., NewKey]) -> None:
    old = new_key().key
    day = Limit(scope="key", scope_id=old.pk, metric="tokens", window="minute", amount=100_000)
    changes.add(day)
    use(old, 90_000)
    new = rotate_key(old, grace=HOUR).key

    # What was used before them all is not known, and a bucket that was full is at its rim.
    (floor,) = read_bucket_floors(rules_of(new), time.time())

    assert floor.num_used > 80_000


def test_the_change_is_in_the_log(key: ApiKey) -> None:
    new = rotate_key(key, grace=HOUR).key

    entry = AuditEntry.objects.filter(target_kind="limit").latest("number")
    assert entry.before == {"scope_id": key.pk}
    assert entry.after == {"scope_id": new.pk}
