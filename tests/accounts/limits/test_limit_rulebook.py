"""The limits that bind a request, from memory."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from tests.tables import table
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_accounts.limits import rules
from vinery_accounts.limits.rulebook import RuleBook
from vinery_accounts.limits.rules import Metric, Weekday, Window
from vinery_accounts.models import Limit, ModelWeight
from vinery_accounts.usage.entries import EQUAL_WEIGHTS, Weights

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

CALLER = Caller(
    user_id=7, username="alice", key_id=12, key_name="laptop", project_id=3, organization_id=2
)


def limit(scope: str, **changes: Any) -> Limit:
    row = {"scope": scope, "metric": "tokens", "window": "minute", "amount": 1000}
    made = Limit(**{**row, **changes})
    made.full_clean()
    made.save()
    return made


def book() -> RuleBook:
    made = RuleBook()
    made.follow(made.read())
    return made


def test_a_request_is_bound_by_all_that_it_belongs_to_and_by_nothing_else() -> None:
    for scope, own in (("organization", 2), ("project", 3), ("user", 7), ("key", 12)):
        limit(scope, scope_id=own)
        limit(scope, scope_id=99)
    limit("platform")
    limit("model", model="small")
    limit("model", model="large")
    scopes = [rule.scope for rule in book().rules_for(CALLER, "small")]
    assert scopes == ["platform", "organization:2", "project:3", "user:7", "key:12", "model:small"]
    # Without keys the platform and its models are limited all the same.
    scopes = [rule.scope for rule in book().rules_for(ANONYMOUS, "small")]
    assert scopes == ["platform", "model:small"]


def test_each_end_user_of_a_project_has_a_rule_alone_and_a_request_without_one_has_none() -> None:
    row = limit("end_user", scope_id=3)
    limit("end_user", scope_id=99)
    following = book()
    assert following.rules_for(CALLER, "small") == ()
    assert following.rules_for(ANONYMOUS, "small", "ann@x.org") == ()
    [one], [other] = [following.rules_for(CALLER, "small", name) for name in ("ann@x.org", "bob")]
    assert (one.id, one.scope, one.limit_key) == (other.id, "end_user:3", other.limit_key)
    assert one.key != other.key
    assert "ann@x.org" not in repr(one) + one.key
    assert following.rules_for(CALLER, "small", "ann@x.org") == (one,)

    assert following.current((one, other)) == (one, other)
    row.amount = 5
    row.save()
    following.follow(following.read())
    [now] = following.current((one,))
    assert (now.key, now.amount) == (one.key, 5)
    assert following.remaining((one,)) == (now,)
    row.delete()
    following.follow(following.read())
    assert following.remaining((one,)) == ()
    [gone] = following.current((one,))
    assert (gone.key, gone.amount) == (one.key, rules.MAX_AMOUNT)


def test_a_row_becomes_a_rule_and_one_that_means_nothing_hinders_no_other() -> None:
    week = {"window": "week", "week_start": "sunday", "time_zone": "Asia/Tokyo"}
    row = limit("key", scope_id=12, is_shadow=True, **week)
    (rule,) = book().rules_for(CALLER, "small")
    assert (rule.id, rule.metric, rule.window) == (row.pk, Metric.TOKENS, Window.WEEK)
    assert (rule.amount, rule.time_zone, rule.is_shadow) == (1000, "Asia/Tokyo", True)
    assert rule.week_start is Weekday.SUNDAY

    of_day = {"scope": "platform", "window": "day", "amount": 1}
    Limit.objects.create(metric="concurrency", **of_day)
    Limit.objects.create(metric="tokens", time_zone="Moon/Sea", **of_day)
    limit("platform")
    assert len(book().rules_for(CALLER, "small")) == 2


def test_changes_are_followed_and_rules_found_again(django_assert_num_queries: Any) -> None:
    row = limit("platform")
    following = book()
    with django_assert_num_queries(1):
        following.follow(following.read())
    row.amount = 5
    row.save()
    following.follow(following.read())
    assert [rule.amount for rule in following.rules] == [5]
    row.delete()
    following.follow(following.read())
    assert not list(following.rules)
    assert following.rules_for(CALLER, "small") == ()

    raised, _, removed = limit("platform"), limit("user", scope_id=7), limit("key", scope_id=12)
    following = book()
    before = following.rules_for(CALLER, "small")
    following.follow(following.read())
    assert following.current(before) == before
    raised.amount = 500
    raised.save()
    limit("model", model="small")
    removed.delete()
    following.follow(following.read())
    assert [rule.key for rule in following.current(before)] == [rule.key for rule in before]
    amounts = [rule.amount for rule in following.current(before)]
    assert amounts == [500, before[1].amount, rules.MAX_AMOUNT]


def test_a_change_that_becomes_visible_behind_a_later_one_is_seen() -> None:
    first, second = limit("platform"), limit("key", scope_id=12)
    following = book()
    Limit.objects.filter(pk=first.pk).update(amount=7, updated_at=second.updated_at)
    following.follow(following.read())
    assert sorted(rule.amount for rule in following.rules) == [7, 1000]


def test_weights_are_in_thousandths_and_a_wrong_one_does_not_affect_the_others() -> None:
    ModelWeight.objects.create(model="small", uncached=1, cached=0.1, output=4, image=2.5)
    assert book().weights_of("small") == Weights(1000, 100, 4000, 2500)
    assert book().weights_of("large") == EQUAL_WEIGHTS

    limit("platform", amount=7)
    milli = {500_000.0: 100_000_000, 1e308: 1000, float("inf"): 1000, -3.0: 0}
    for stored, uncached_milli in milli.items():
        ModelWeight.objects.filter(model="small").update(uncached=stored)
        following = book()
        assert following.weights_of("small").uncached_milli == uncached_milli, stored
        assert [rule.amount for rule in following.rules] == [7]


@table(
    "wrong",
    [
        {"scope": "key"},
        {"scope": "platform", "scope_id": 3},
        {"scope": "model"},
        {"scope": "platform", "model": "small"},
        {"scope": "platform", "metric": "concurrency"},
        {"scope": "platform", "metric": "requests", "window": "none"},
        {"scope": "platform", "amount": 0},
        {"scope": "platform", "time_zone": "Moon/Sea"},
        {"scope": "end_user"},
        {"scope": "end_user", "scope_id": 3, "metric": "weighted_tokens", "window": "none"},
        {"scope": "end_user", "scope_id": 3, "window": "day", "alert_at": [50]},
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        limit(**wrong)
