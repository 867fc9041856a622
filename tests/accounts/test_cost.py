"""The cost of usage: by the prices at the time of the request, since there is a currency."""

from datetime import timedelta

import pytest
from usage_builders import NOON, settlement, store

from vinery_accounts.access import changes
from vinery_accounts.alerts.deliveries import mail_of
from vinery_accounts.base.money import limited, money, short_money
from vinery_accounts.limits.rulebook import RuleBook
from vinery_accounts.models import Alert, Currency, ModelWeight, UsageRecord
from vinery_accounts.usage.entries import TokenCounts
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Question, groups, totals
from vinery_accounts.usage.store import store_settlements

pytestmark = [pytest.mark.django_db, pytest.mark.stores]

DAY = Question(since=NOON, until=NOON + timedelta(days=1), visible=None)


def test_a_changed_price_and_a_later_currency_leave_the_cost_of_the_past() -> None:
    """Settlements of dead processes are priced when they are stored."""
    price = changes.add(ModelWeight(model="reference-chat", uncached=2, cached=0.5, output=3))
    store("before the currency")
    changes.add(Currency(code="EUR"))
    store("priced", "not served by a price", model="other")
    store("cheap")
    changes.change(price, output=60)
    store_settlements([settlement("dear"), settlement("known", weighted_tokens=1.0, cost=0.5)])

    costs = dict(UsageRecord.objects.values_list("request_id", "cost"))
    cheap, dear = 3 * 2 + 8 * 0.5 + 30 * 3, 3 * 2 + 8 * 0.5 + 30 * 60
    expected = {"before the currency": 0, "priced": 0, "not served by a price": 0}
    assert costs == {**expected, "cheap": cheap, "dear": dear, "known": 0.5}
    assert totals(DAY).figures.cost == cheap + dear + 0.5
    largest = groups(DAY, [Dimension.MODEL], largest="cost")
    assert [group.values for group in largest.groups] == [("reference-chat",), ("other",)]


def test_running_processes_have_prices_while_there_is_a_currency() -> None:
    changes.add(ModelWeight(model="small", output=2.345))
    book, used = RuleBook(), TokenCounts(num_output_tokens=1000)

    def cost() -> int:
        book.follow(book.read())
        return book.weights_of("small").cost_milli(used)

    assert cost() == 0
    currency = changes.add(Currency(code="EUR"))
    assert cost() == 2_345_000
    assert book.weights_of("large").cost_milli(used) == 0
    assert book.weights_of("large").weigh_milli(used) == 1_000_000
    changes.remove(currency)
    assert cost() == 0


def test_amounts_are_exact_to_a_millionth() -> None:
    assert money(12_500_000, "EUR") == "12.50 EUR"
    assert money(1234, "EUR") == "0.001234 EUR"
    assert money(1_234_567_890_000, "EUR") == "1,234,567.89 EUR"
    assert short_money(1_234_567, "EUR") == "1.23 EUR"
    assert short_money(1234, "EUR") == "0.001234 EUR"
    assert limited("cost", "month", 50_000_000, "EUR") == "50.00 EUR per month"
    assert limited("tokens", "day", 5000, "EUR") == "5,000 tokens per day"


def test_an_alert_of_a_budget_is_about_money() -> None:
    changes.add(Currency(code="EUR"))
    used = {"metric": "cost", "window": "month", "amount": 50_000_000, "num_used": 40_500_000}
    _, text = mail_of(Alert(scope="project:3", whose="acme / search", percent=80, **used))
    assert text.startswith("40.50 EUR of 50.00 EUR are used by project acme / search.")
