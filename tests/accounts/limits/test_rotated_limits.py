"""A limit of a key goes over to the new key, with its use."""

from datetime import UTC, datetime, timedelta

import pytest
from row_builders import stored_limit
from usage_builders import store, tokens

from tests.accounts.key_tables import MakeKey
from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import rotate_key
from vinery_accounts.keys.table import Caller
from vinery_accounts.limits.recovery import read_baselines, read_bucket_baselines
from vinery_accounts.limits.rulebook import RuleBook
from vinery_accounts.limits.rules import Rule
from vinery_accounts.models import ApiKey, AuditEntry, Limit

pytestmark = [pytest.mark.django_db, pytest.mark.stores]
HOUR = timedelta(hours=1)


@pytest.fixture
def key(new_key: MakeKey) -> ApiKey:
    """A key with a hundred tokens a day."""
    made = new_key().key
    limit(made, 100)
    return made


def rules_of(key: ApiKey, book: RuleBook | None = None) -> tuple[Rule, ...]:
    book = book or RuleBook()
    book.follow(book.read())
    caller = Caller(user_id=key.owner_id, username="alice", key_id=key.pk, key_name=key.name)
    return book.rules_for(caller, "tiny-chat")


def use(key: ApiKey, num_tokens: int) -> datetime:
    """Store a use of the key. Returns its time."""
    now = datetime.now(UTC)
    store(f"{key.pk}-{num_tokens}", key_id=key.pk, started_at=now, **tokens(num_tokens))
    return now


def test_the_limit_is_that_of_the_new_key_and_binds_the_old_one_beside_its_own(key: ApiKey) -> None:
    new = rotate_key(key, grace=HOUR).key
    assert Limit.objects.get().scope_id == new.pk
    assert [rule.amount for rule in rules_of(new)] == [100]
    assert rules_of(key) == rules_of(new)
    entry = AuditEntry.objects.filter(target_kind="limit").latest("number")
    assert (entry.before, entry.after) == ({"scope_id": key.pk}, {"scope_id": new.pk})

    limit(key, 7, "requests", "minute")
    assert amounts_of(key) == [7, 100]
    assert amounts_of(new) == [100]


def limit(key: ApiKey, amount: int, metric: str = "tokens", window: str = "day") -> None:
    stored_limit("key", key.pk, metric=metric, window=window, amount=amount)


def amounts_of(key: ApiKey) -> list[int]:
    return [rule.amount for rule in rules_of(key)]


def rotated(key: ApiKey, num_times: int = 1) -> tuple[ApiKey, ...]:
    """The key, and its successors by `num_times` rotations."""
    keys = [key]
    for _ in range(num_times):
        keys.append(rotate_key(keys[-1], grace=HOUR).key)
    return tuple(keys)


def test_each_key_has_the_limits_after_it_and_the_use_before_it(key: ApiKey) -> None:
    first, second, third = rotated(key, 2)
    limit(first, 7)
    limit(second, 8)
    found = [amounts_of(each) for each in (first, second, third)]
    assert found == [[7, 8, 100], [8, 100], [100]]

    use(first, 20)
    use(second, 30)
    now = use(third, 40)
    baselines = read_baselines(rules_of(first), now.timestamp())
    num_used = {baseline.rule.amount: baseline.num_used for baseline in baselines}
    assert num_used == {7: 20, 8: 50, 100: 90}


def test_a_key_in_between_may_be_deleted_or_without_limit(key: ApiKey, new_key: MakeKey) -> None:
    _, second, newest = rotated(key, 2)
    changes.remove(second)
    key.refresh_from_db()
    assert rules_of(key) == rules_of(newest) != ()

    assert rules_of(rotate_key(new_key().key, grace=HOUR).key) == ()


def test_the_baseline_of_a_bucket_has_the_usage_of_all_keys_once(new_key: MakeKey) -> None:
    keys = rotated(new_key().key, 2)
    for each, amount in zip(keys, (100, 200, 300), strict=True):
        limit(each, amount, window="minute")
    now = use(keys[0], 50)
    baselines = read_bucket_baselines(rules_of(keys[0]), now.timestamp())
    found = {baseline.rule.amount: baseline.num_used for baseline in baselines}
    assert found == {100: 50, 200: 50, 300: 50}

    old = new_key().key
    limit(old, 100_000, window="minute")
    now = use(old, 90_000)
    new = rotate_key(old, grace=HOUR).key
    (baseline,) = read_bucket_baselines(rules_of(new), now.timestamp())
    assert baseline.num_used == 90_000
