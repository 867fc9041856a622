"""Limits in the console: who sets, changes and removes them, what is left of each, and why one has
refused a request."""

import re
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from api.api_client import Tenant
from asgiref.sync import async_to_sync
from django.test import Client
from pages import limit_of, num_queries, page, sent, signed_in, store, text_of, used
from row_builders import logged, stored_limit

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.limits.memory import MemoryLimiter
from vinery_accounts.limits.reservations import Level, LimitsUnavailable, ReservationRequest
from vinery_accounts.limits.rulebook import rule_of
from vinery_accounts.limits.rules import Metric, Rule, Window
from vinery_accounts.limits.service import FailoverLimiter, UnavailablePolicy, show_in_pages
from vinery_accounts.models import ApiKey, AuditEntry, Limit, Role, User
from vinery_accounts.usage.entries import BoundLimit, Outcome

pytestmark = pytest.mark.django_db

LIMITS = "/console/limits/"
NEW = f"{LIMITS}new/"


@pytest.fixture
def admin(ours: Tenant, alice: User) -> Client:
    changes.set_role(alice, ours.organization, Role.ADMIN)
    return signed_in(alice)


@pytest.fixture
def chief(root: User) -> Client:
    return signed_in(root)


@pytest.fixture
def key(ours: Tenant, bob: User) -> ApiKey:
    changes.set_role(bob, ours.one, Role.MEMBER)
    return create_key(owner=bob, project=ours.one, name="laptop").key


def form(of: str, **more: Any) -> dict[str, Any]:
    usual = {"metric": "tokens", "window": "day", "amount": 1000}
    return {"of": of} | usual | {"time_zone": "UTC", "week_start": "monday"} | more


def address_of(limit: Limit) -> str:
    return f"{LIMITS}{limit.pk}/"


def options(text: str) -> set[str]:
    select = re.search(r'<select name="of".*?</select>', text, re.DOTALL)
    assert select is not None
    return set(re.findall(r'value="(.*?)"', select[0]))


def test_a_limit_is_set_changed_and_removed(chief: Client, key: ApiKey) -> None:
    new = form(f"key:{key.pk}", is_shadow="on", alert_at="50, 90")
    assert "The limit is set." in sent(chief, NEW, new)
    limit = Limit.objects.get()
    assert (limit.scope, limit.scope_id, limit.model) == ("key", key.pk, "")
    assert (limit.metric, limit.window, limit.amount) == ("tokens", "day", 1000)
    assert (limit.is_shadow, limit.alert_at) == (True, [50, 90])

    text = text_of(chief.get(address_of(limit)))
    assert f"1000 tokens per day, key laptop ({key.hint})" in text
    assert 'value="50, 90"' in text
    changed = {"amount": 2000, "time_zone": "Europe/Berlin", "alert_at": "off"}
    assert "The limit is changed." in sent(chief, address_of(limit), changed)
    limit.refresh_from_db()
    assert (limit.amount, limit.time_zone) == (2000, "Europe/Berlin")
    assert (limit.is_shadow, limit.alert_at) == (False, [])

    remove = f"{address_of(limit)}remove/"
    assert f"Remove: 2000 tokens per day, key laptop ({key.hint})" in text_of(chief.get(remove))
    assert "is removed." in sent(chief, remove)
    assert not Limit.objects.exists()
    assert logged(actor="root") == ["limit.create", "limit.update", "limit.delete"]

    for window, day in (("week", "saturday"), ("day", "monday")):
        stored = stored_limit("platform", window=window, amount=1)
        assert ("Weeks begin on" in page(chief, address_of(stored))) is (window == "week")
        changed = {"amount": 9, "time_zone": "UTC", "week_start": "saturday"}
        chief.post(address_of(stored), changed)
        stored.refresh_from_db()
        assert (stored.window, stored.week_start, stored.amount) == (window, day, 9)


def test_an_unchanged_form_changes_no_field(chief: Client) -> None:
    values = {"amount": 7, "time_zone": "Asia/Tokyo", "is_shadow": True}
    stored = stored_limit("platform", **values)
    num_before = AuditEntry.objects.count()

    for alert_at in (None, [], [80]):
        Limit.objects.update(alert_at=alert_at)
        text = text_of(chief.get(address_of(stored)))
        inputs = r'<input type="(?:text|number)" name="(\w+)"(?: value="(.*?)")?'
        chief.post(address_of(stored), {**dict(re.findall(inputs, text)), "is_shadow": "on"})
        stored.refresh_from_db()
        assert stored.alert_at == alert_at
        assert Limit.objects.filter(**values).exists()

    assert AuditEntry.objects.count() == num_before


def test_a_key_beyond_the_first_choices_can_be_selected_by_its_link(
    chief: Client, key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vinery_accounts.resources.limits._MAX_CHOICES", 1)
    newer = create_key(owner=key.owner, project=key.project, name="newer").key

    assert f"key:{key.pk}" not in options(page(chief, NEW))
    assert f"key:{newer.pk}" in options(page(chief, NEW))
    assert f"key:{key.pk}" in options(page(chief, f"{NEW}?of=key:{key.pk}"))


def test_many_limits_need_no_more_queries(admin: Client, ours: Tenant, key: ApiKey) -> None:
    kinds = [("key", key.pk), ("project", ours.one.pk), ("user", key.owner_id)]
    for scope, scope_id in kinds:
        stored_limit(scope, scope_id)
    num_queries(admin, LIMITS)  # fills caches
    few = num_queries(admin, LIMITS)
    for scope, scope_id in [*kinds, ("project", ours.two.pk)]:
        for metric in ("requests", "input_tokens", "output_tokens"):
            stored_limit(scope, scope_id, metric=metric)

    assert num_queries(admin, LIMITS) == few


ShowStore = Callable[[MemoryLimiter, UnavailablePolicy], None]


@pytest.fixture
def limiter() -> Iterator[MemoryLimiter]:
    """Show the limits of this process in pages."""
    created = MemoryLimiter()
    show_in_pages(SimpleNamespace(state=None, levels=created.levels))  # type: ignore[arg-type]
    yield created
    show_in_pages(None)


@pytest.fixture
def store_is() -> Iterator[ShowStore]:
    """Return a function that shows in pages the limits of a store."""

    def count(store: MemoryLimiter, when_unavailable: UnavailablePolicy) -> None:
        show_in_pages(FailoverLimiter(store, when_unavailable))

    yield count
    show_in_pages(None)


class _Dead(MemoryLimiter):
    """A store that never answers."""

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        raise LimitsUnavailable("it is dead")


def bound_limit(user: User, number: int, **more: Any) -> BoundLimit:
    usual = {"metric": "tokens", "window": "day", "amount": 10, "level": 3, "needed": 20}
    values = {"scope": f"user:{user.pk}", "wait_s": None, "is_shadow": False, **usual, **more}
    return BoundLimit(limit_id=number, **values)


def limits_page(user: User) -> str:
    return page(signed_in(user), "/console/limits/")


def test_limits_show_what_is_left_and_when(alice: User, bob: User, limiter: MemoryLimiter) -> None:
    assert "No limits yet." in limits_page(alice)
    limit = limit_of(alice, Metric.REQUESTS, Window.DAY, 10)
    limit_of(alice, Metric.TOKENS, Window.MINUTE, 1000)
    limit_of(alice, Metric.TOKENS, Window.WEEK, 5000, week_start="sunday")
    limit_of(bob, Metric.TOKENS, Window.MINUTE, 777)
    claim = ReservationRequest(5, 5, lease_id="r1", rules=(rule_of(limit),))
    async_to_sync(limiter.acquire)(claim)

    text = limits_page(alice)

    cells = re.findall(r'data-name="(\w+)">(.*?)<', text)
    assert cells[:3] == [("Maximum", "10"), ("Used", "1"), ("Left", "9")]
    assert re.fullmatch(r"in .* \(00:00 UTC\)", cells[3][1])
    assert cells[4:7] == [("Maximum", "1,000"), ("Used", "0"), ("Left", "1,000")]
    assert cells[8:11] == [("Maximum", "5,000"), ("Used", "0"), ("Left", "5,000")]
    assert re.fullmatch(r"in .* \(Sunday 00:00 UTC\)", cells[11][1])
    assert "tokens per week" in text
    assert "777" not in text


@table(
    "when_unavailable, result",
    [
        (UnavailablePolicy.REFUSE, "Requests are refused until it is back."),
        (UnavailablePolicy.ALLOW, "Requests run without limits until it is back"),
    ],
)
def test_while_the_store_is_unavailable_pages_of_limits_show_the_policy(
    daily: Limit, alice: User, store_is: ShowStore, when_unavailable: UnavailablePolicy, result: str
) -> None:
    store_is(_Dead(), when_unavailable)

    def each(address: str) -> str:
        return page(signed_in(alice), f"/console/{address}")

    for text in map(each, ("limits/", "account/", "keys/", "usage/", "")):
        assert re.search(r"The store of the limits has not answered for \d+ s\. ", text)
        assert result in text
        assert 'data-name="Left">10<' not in text
        assert "The limits still hold" not in text


@pytest.fixture
def daily(alice: User) -> Limit:
    return limit_of(alice, Metric.REQUESTS, Window.DAY, 10)


def test_a_new_limit_shows_what_was_used(alice: User, limiter: MemoryLimiter, bob: User) -> None:
    store(used(alice, "r1", minutes_ago=0), used(alice, "r2", minutes_ago=0))

    def cells() -> list[str]:
        text = limits_page(alice)
        return re.findall(r'data-name="(?:Used|Left)">(.*?)<', text)

    limit = limit_of(alice, Metric.REQUESTS, Window.MONTH, 10)
    assert cells() == ["2", "8"]

    changes.change(limit, amount=1)
    assert cells() == ["2", "0"]

    store(used(bob, "r3", minutes_ago=0))
    limit_of(bob, Metric.REQUESTS, Window.MONTH, 100)

    assert "requests per month of the user alice is used up" in page(signed_in(alice), "/console/")
    assert "is used up" not in page(signed_in(bob), "/console/")


def test_limit_events_are_explained_to_their_user_and_filtered(alice: User, bob: User) -> None:
    kind = {"metric": "requests", "window": "minute"}
    refused = bound_limit(alice, 1, **kind, level=10, needed=1, wait_s=5.2)
    more: Any = {"outcome": Outcome.REJECTED, "http_status": 429}
    store(used(alice, "r1", **more, bound_limits=(refused,)))
    cut = {"http_status": 200, "finish_reason": "quota_exceeded"}
    store(used(alice, "r2", **cut, bound_limits=(bound_limit(alice, 2),)))
    store(used(alice, "r3", **more, bound_limits=(bound_limit(alice, 3),)))
    client = signed_in(alice)

    text = page(client, "/console/refusals/")
    for sentence in (
        "10 of 10 requests per minute of the user alice were used, and 1 more was needed. "
        "It would have been allowed 6 s later.",
        "Response cut short at the limit: 3 of 10 tokens per day of the user alice were used.",
        "It never fits",
    ):
        assert text.count(sentence) == 1
    assert "No request was refused by a limit" in page(signed_in(bob), "/console/refusals/")
    for query, requests in {
        "": ["r3", "r2", "r1"],
        "effect=refused": ["r3", "r1"],
        "effect=cut_short": ["r2"],
        "limit_id=1": ["r1"],
        "model=another": [],
        "effect=nonsense": ["r3", "r2", "r1"],
    }.items():
        text = page(client, f"/console/refusals/?{query}")
        assert re.findall(r'href="/console/requests/(r\d)/"', text) == requests, query
