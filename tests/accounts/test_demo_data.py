"""Made-up usage: plausible, replaced by another run, and removed without a trace."""

from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from usage_builders import NOON, store

from vinery_accounts.access import changes
from vinery_accounts.keys.demo import has_other_usage, make_demo, remove_demo
from vinery_accounts.limits.recovery import read_use
from vinery_accounts.limits.rulebook import valid_rules
from vinery_accounts.models import (
    AuditEntry,
    Currency,
    Limit,
    ModelWeight,
    RefusedRequest,
    UsageRecord,
    User,
)
from vinery_accounts.usage.filters import Effect, with_effect
from vinery_accounts.usage.reports import Figures, Question, totals
from vinery_accounts.usage.upkeep import verify

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

NUM_REQUESTS, NUM_DAYS = 250, 3
SINCE, UNTIL = NOON - timedelta(days=5), NOON + timedelta(hours=1)


def figures() -> Figures:
    return totals(Question(since=SINCE, until=UNTIL, visible=None)).figures


def rows_of_all_tables() -> dict[str, Any]:
    """Return all rows without their numbers, but for the audit log."""
    tables = [each for each in apps.get_app_config("accounts").get_models() if each != AuditEntry]
    return {
        table.__name__: sorted(
            str({name: value for name, value in row.items() if name != "id"})
            for row in table._base_manager.values()
        )
        for table in tables
    }


def made(seed: int) -> int:
    return make_demo(["tiny-chat"], until=NOON, num_requests=NUM_REQUESTS, days=NUM_DAYS, seed=seed)


def test_a_month_is_made_up_and_replaced_and_removed_without_a_trace() -> None:
    User.objects.create_user("demo-visitor")  # of others, like its usage
    others = [
        {"model": model, "started_at": NOON - timedelta(days=days)}
        for model in ("tiny-chat", "demo-8b")
        for days in (1, 3)
    ]
    for number, other in enumerate(others):
        store(f"other{number}", **other)
    before = rows_of_all_tables()
    assert has_other_usage()

    for seed in (1, 2):
        num = made(seed)

        assert num == UsageRecord.objects.count() - len(others) == NUM_REQUESTS
        found = figures()
        assert found.num_requests == num + len(others)
        assert min(found.num_limited, found.num_client_errors) > 0
        assert found.num_cached_tokens < found.num_prompt_tokens
        refused = with_effect(RefusedRequest.objects.all())
        assert refused.filter(effect=Effect.REFUSED).count() == found.num_limited
        assert refused.filter(effect=Effect.CUT_SHORT).count() == found.num_cut_short
        budgets = valid_rules(Limit.objects.filter(window="none"))
        used = read_use(dict.fromkeys(budgets.values(), 0))
        shares = sorted(100 * used[rule] // rule.amount for rule in budgets.values())
        assert shares == [96]
        costs = UsageRecord.objects.values_list("cost", flat=True)
        assert found.cost > 0
        assert found.cost == pytest.approx(sum(costs))
        assert Currency.current() == "EUR"
        checked = list(verify(SINCE, UNTIL))
        assert [difference for day in checked for difference in day.differences] == []

    assert remove_demo()
    assert rows_of_all_tables() == before
    assert not remove_demo()


def test_what_others_set_or_need_stays() -> None:
    made(1)
    changes.add(ModelWeight(model="tiny-chat"))
    remove_demo()
    assert (Currency.current(), ModelWeight.objects.count()) == ("EUR", 1)
    changes.change(Currency.objects.get(), code="JPY")
    made(1)
    assert Currency.current() == "JPY"
    remove_demo()
    changes.remove(ModelWeight.objects.get())
    made(1)
    remove_demo()
    assert Currency.current() == "JPY"


def test_an_installation_without_usage_of_others_is_known() -> None:
    made(1)
    assert not has_other_usage()
