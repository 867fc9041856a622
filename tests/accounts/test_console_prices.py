"""Prices, budgets and statements in the console."""

import csv
import io
import re

import pytest
from django.core.exceptions import ValidationError
from django.db.models import Sum
from django.test import Client
from pages import limit_of, page, sent, signed_in, store, used

from vinery_accounts.access import changes, served
from vinery_accounts.access.served import Served
from vinery_accounts.models import Currency, Limit, ModelWeight, Project, Role, UsageRecord, User

pytestmark = pytest.mark.django_db

PRICES = "/console/model-weights/"


@pytest.fixture
def euro() -> Currency:
    return changes.add(Currency(code="EUR"))


def test_an_administrator_sets_the_currency_and_exact_prices(root: User, client: Client) -> None:
    client.force_login(root)
    form = {"model": "chat", "uncached": "0.25", "cached": "0.025", "output": "2", "image": "0"}
    assert 'href="/console/currency/"' in page(client, PRICES)
    assert "Give three capital letters" in sent(client, "/console/currency/new/", {"code": "eur"})
    sent(client, "/console/currency/new/", {"code": "EUR"})
    assert client.get("/console/currency/new/").status_code == 403
    with pytest.raises(ValidationError, match="There is a currency already"):
        changes.add(Currency(code="USD"))

    assert "the price of a million. 0 to 100,000, in steps of 0.001." in page(
        client, f"{PRICES}new/"
    )
    finer = form | {"output": "0.0005"}
    assert "Give at most three decimals" in sent(client, f"{PRICES}new/", finer)
    text = sent(client, f"{PRICES}new/", form)
    assert "In EUR for a million tokens" in page(client, PRICES)
    assert "chat is created." in text
    assert ModelWeight.objects.get().cached == 0.025


@pytest.mark.parametrize(
    "address", [f"{PRICES}new/", "/console/limits/new/", "/admin/accounts/limit/add/"]
)
def test_forms_offer_the_models_that_usage_counts(
    address: str, root: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [Served("chat"), Served("latest", is_alias=True)]
    monkeypatch.setattr(served, "_readers", [lambda: models])
    client.force_login(root)
    text = page(client, address)
    [listed] = re.findall(r'<input type="text" name="model"[^>]* list="([^"]+)"', text)
    assert f'<datalist id="{listed}"><option value="chat"></option></datalist>' in text


def test_a_budget_is_entered_and_shown_in_the_currency(
    root: User, client: Client, euro: Currency, search: Project
) -> None:
    client.force_login(root)
    new = "/console/limits/new/"
    assert "millionths" not in page(client, new)
    form = {"of": f"project:{search.pk}", "metric": "cost", "window": "month", "amount": "12.50"}
    form |= {"time_zone": "UTC", "week_start": "monday"}
    assert "at most six decimals" in sent(client, new, form | {"amount": "1.0000001"})
    assert "at most 9,000,000.00" in sent(client, new, form | {"amount": "9000001"})
    assert "not a whole number" in sent(client, new, form | {"metric": "tokens"})
    assert "12.50 EUR" in sent(client, new, form)

    limit = Limit.objects.get()
    assert limit.amount == 12_500_000
    address = f"/console/limits/{limit.pk}/"
    assert 'value="12.5"' in page(client, address)
    sent(client, address, form | {"amount": "20"})
    limit.refresh_from_db()
    assert limit.amount == 20_000_000
    assert "20.00 EUR per month, project" in page(client, f"{address}remove/")
    assert "There are limits of the cost" in sent(client, f"/console/currency/{euro.pk}/remove/")
    sent(client, f"{address}remove/")
    sent(client, f"/console/currency/{euro.pk}/remove/")
    assert "cost is not one of the available choices" in sent(client, new, form)
    with pytest.raises(ValidationError, match="Nothing has a cost"):
        changes.add(Limit(scope="platform", metric="cost", window="month", amount=1))


def test_the_account_shows_a_budget_in_the_currency(alice: User, euro: Currency) -> None:
    limit_of(alice, "cost", "month", 12_500_000)
    assert "of 12.50 EUR</td>" in page(signed_in(alice), "/console/account/")


def test_without_a_currency_no_page_has_a_cost(alice: User, root: User) -> None:
    assert "millionths" not in page(signed_in(root), "/console/limits/new/")
    store(used(alice, "r1", model="chat"))
    text = page(signed_in(alice), "/console/usage/")
    assert "Cost" not in text and "Weighted" not in text
    changes.add(ModelWeight(model="chat"))
    assert 'data-name="Weighted tokens"' in page(signed_in(alice), "/console/usage/")


def test_a_statement_is_the_sum_of_the_ledger(
    alice: User, bob: User, search: Project, euro: Currency
) -> None:
    changes.set_role(alice, search, Role.ADMIN)
    changes.add(ModelWeight(model="chat", uncached=1, cached=0.1, output=4))
    shared = {"project_id": search.pk, "project_name": search.name}
    cost = {"weighted_tokens": 1_500_000.0, "cost": 1_500_000.0}
    store(
        used(alice, "r1", model="chat", **shared, **cost),
        used(bob, "r2", model="chat", **shared, **cost),
        used(bob, "r3", model="free", **shared),
        used(bob, "elsewhere", model="chat", **cost),
    )
    client = signed_in(alice)
    query = f"of=project:{search.pk}"
    text = page(client, f"/console/statements/?{query}")
    assert "3.00 EUR" in text and "no price" in text

    file = client.get(f"/console/statements/statement.csv?{query}").content.decode()
    rows = {row["model"]: row for row in csv.DictReader(io.StringIO(file))}
    assert {name: row["cost"] for name, row in rows.items()} == {
        "chat": "3.0",
        "free": "0.0",
        "all": "3.0",
    }
    sums = ("num_prompt_tokens", "num_cached_tokens", "num_output_tokens", "cost")
    ledger = UsageRecord.objects.filter(project_id=search.pk)
    of_ledger = ledger.aggregate(**{f"sum_{each}": Sum(each) for each in sums})
    assert [int(rows["all"][each]) for each in sums[:3]] == [*of_ledger.values()][:3]
    assert of_ledger["sum_cost"] == 3_000_000
    assert (rows["all"]["num_requests"], rows["all"]["currency"]) == ("3", "EUR")

    # A member's statement is one's own.
    theirs = page(signed_in(bob), f"/console/statements/?{query}")
    options = re.findall(r'<option value="([^"]+)"', theirs)
    assert f"user:{bob.pk}" in options and f"project:{search.pk}" not in options
    assert "Choose an entry of the list." in theirs
