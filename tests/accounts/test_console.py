"""The console shows users their own usage, with the numbers of the usage records."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.utils import timezone
from usage_builders import NOON, admission, settlement

from accounts.alerts.quotas import Quota
from accounts.console import words
from accounts.console.limits import closest, quota_rows
from accounts.keys.lifecycle import create_key
from accounts.limits.failover import FailoverLimiter, UnavailablePolicy
from accounts.limits.memory import MemoryLimiter
from accounts.limits.reservations import Level, LimitsUnavailable, ReservationRequest
from accounts.limits.rulebook import rule_of
from accounts.limits.rules import Metric, Rule, Window
from accounts.limits.service import show_in_pages
from accounts.models import Limit, LimitScope, Role, User
from accounts.services import changes
from accounts.services.access import Access
from accounts.services.changes import first_project, set_role
from accounts.usage.entries import BoundLimit, Outcome, Settlement
from accounts.usage.filters import Dimension
from accounts.usage.store import store_settlements

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(db: None) -> User:
    return User.objects.create_superuser("root")


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def used(user: User, request_id: str, minutes_ago: float = 5, **changes: Any) -> Settlement:
    identity = {
        "user_id": user.pk,
        "username": user.username,
        "started_at": timezone.now() - timedelta(minutes=minutes_ago),
    }
    names = {"model", "key_id", "key_name", "project_id", "project_name", "organization_id"}
    identity |= {name: changes.pop(name) for name in names & changes.keys()}
    return settlement(request_id, admission=admission(request_id, **identity), **changes)


def page(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200, response
    return response.content.decode()


def tile(text: str, id_: str) -> str:
    found = re.search(rf'id="{id_}".*?class="number">(.*?)<', text, re.DOTALL)
    assert found is not None
    return found[1]


def store(*settlements: Settlement) -> None:
    store_settlements(settlements)


def numbers(text: str, ids: Iterable[str] = ("requests", "errors", "input", "output")) -> list[str]:
    return [tile(text, id_) for id_ in ids]


# -- Sign-in


def test_an_anonymous_user_is_redirected_to_the_sign_in() -> None:
    assert Client().get("/console/").url == "/accounts/login/?next=/console/"  # type: ignore[attr-defined]


def test_the_start_page_redirects_administrators_to_the_admin_and_others_to_the_console(
    root: User, alice: User
) -> None:
    scopes = [signed_in(user).get("/").url for user in (root, alice)]  # type: ignore[attr-defined]

    assert scopes == ["/admin/", "/console/"]
    assert Client().get("/").url == "/accounts/login/"  # type: ignore[attr-defined]


def test_only_administrators_see_a_link_to_the_admin(root: User, alice: User) -> None:
    assert "Administration" in page(signed_in(root), "/console/")
    assert "Administration" not in page(signed_in(alice), "/console/")


def test_pages_forbid_inline_and_foreign_code(root: User) -> None:
    response = signed_in(root).get("/console/")

    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! src=)|<style| style=| on[a-z]+=", response.content.decode())
    assert response.headers["Cache-Control"] == "no-store, private"


# -- Overview


def test_all_numbers_are_zero_before_the_first_request_and_the_page_shows_advice(
    alice: User,
) -> None:
    text = page(signed_in(alice), "/console/")

    assert numbers(text) == ["0", "0", "0", "0"]
    assert "make a key</a>" in text
    assert text.count("<svg") == 4


def test_the_overview_adds_up_the_period(alice: User) -> None:
    failed: dict[str, Any] = {"outcome": Outcome.FAILED, "http_status": 500}
    store(used(alice, "r1"), used(alice, "r2", **failed), used(alice, "old", minutes_ago=3000))

    client = signed_in(alice)
    assert numbers(page(client, "/console/")) == ["2", "1", "22", "60"]
    assert numbers(page(client, "/console/?period=7d")) == ["3", "1", "33", "90"]
    assert tile(page(client, "/console/"), "total").endswith(" ms")


def test_energy_is_shown_if_it_was_measured(alice: User) -> None:
    client = signed_in(alice)
    store(used(alice, "r1"))
    assert "nergy" not in page(client, "/console/")
    assert "nergy" not in page(client, "/console/usage/")

    store(used(alice, "r2", model="measured", energy_mj=7_200_000))
    assert tile(page(client, "/console/"), "energy") == "2 Wh"
    assert "1 Wh a request, 24.4 Wh for 1,000 tokens" in page(client, "/console/")
    usage = page(client, "/console/usage/?by=model")
    assert re.findall(r'data-name="Energy">(.*?)<', usage) == ["2 Wh", "", "2 Wh"]


@pytest.mark.parametrize(
    ("millijoules", "result"),
    [
        (40.0, "0.0111 mWh"),
        (1_800_000, "500 mWh"),
        (3_600_000, "1 Wh"),
        (3_600_000_000, "1 kWh"),
        (8.64e15, "2,400,000 kWh"),
    ],
)
def test_energy_is_shown_in_watt_hours(millijoules: float, result: str) -> None:
    assert words.energy(millijoules) == result


def test_users_see_their_own_usage_and_admins_that_of_their_organisation(
    alice: User, bob: User, root: User
) -> None:
    organization = first_project().organization
    for user, role in ((alice, Role.ADMIN), (bob, Role.MEMBER)):
        set_role(user, organization, role)
    elsewhere = User.objects.create_user("eve")
    store(
        used(bob, "r1", organization_id=organization.pk),
        used(elsewhere, "r2"),
    )

    seen = {
        user.username: tile(page(signed_in(user), "/console/"), "requests")
        for user in (alice, elsewhere, root)
    }
    assert seen == {"alice": "1", "eve": "1", "root": "2"}


def test_a_filter_is_applied_and_can_be_removed(alice: User) -> None:
    store(used(alice, "r1", model="a"), used(alice, "r2", model="b"))

    text = page(signed_in(alice), "/console/?period=1h&model=a")

    assert tile(text, "requests") == "1"
    assert '<a href="/console/?period=1h" title="Show all again">model: a' in text


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("period=own&since=2026-03-02T00:00&until=2026-03-01T00:00", "ends before it begins"),
        ("period=90d&granularity=minute", "makes more than 1500"),
        ("period=own&until=0001-01-01T00:00", "Choose a year from 1970 to 9000"),
        ("since=0001-01-01T00:00&zone=Asia/Tokyo", "Choose a year from 1970 to 9000"),
        ("zone=Mars/Olympus", "There is no time zone Mars/Olympus"),
        ("period=century", "Select a valid choice"),
    ],
)
def test_an_invalid_period_is_reported_and_the_last_day_is_shown(
    alice: User, query: str, complaint: str
) -> None:
    store(used(alice, "r1"))

    text = page(signed_in(alice), f"/console/?{query}")

    assert complaint in text
    assert tile(text, "requests") == "1"


# -- Quotas on the overview


def quota_cells(text: str, name: str) -> list[str]:
    section = text.partition("Quotas closest to their end")[2].partition("</section>")[0]
    return re.findall(rf'data-name="{name}">(.*?)</td>', section)


def test_the_overview_shows_the_quotas_closest_to_their_end(alice: User, root: User) -> None:
    _limit(alice, Metric.WEIGHTED_TOKENS, Window.NONE, 2000)
    assert "Quotas closest" not in page(signed_in(alice), "/console/")  # there is no usage yet
    changes.add(Limit(scope="platform", metric="weighted_tokens", window="none", amount=1000))
    store(used(alice, "r1", weighted_tokens=1500.0))

    hers, all_ = (page(signed_in(user), "/console/") for user in (alice, root))

    assert quota_cells(hers, "Used") == ["75 %"]
    assert quota_cells(hers, "Resets") == ["never"]
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d, at the current rate", quota_cells(hers, "Runs out")[0]
    )
    assert "The user alice" in hers
    assert '<a href="/console/limits/">All limits</a>' in hers
    # She may not see the usage of all users.
    assert quota_cells(all_, "Used") == ["150 %", "75 %"]
    assert quota_cells(all_, "Runs out")[0] == "<strong>used up</strong>"


def test_the_overview_has_no_quotas_if_there_are_none(alice: User) -> None:
    store(used(alice, "r1"))

    assert "Quotas closest" not in page(signed_in(alice), "/console/")


def test_a_quota_shows_when_it_resets_and_that_it_lasts_until_then(alice: User) -> None:
    _limit(alice, Metric.REQUESTS, Window.DAY, 3)
    asked = admission("r1", user_id=alice.pk, started_at=NOON - timedelta(hours=1))
    store(settlement("r1", admission=asked))

    [row] = quota_rows(Access.of(alice), NOON)

    quota = row["quota"]
    assert (row["owner"], row["what"]) == ("the user alice", "requests per day")
    assert quota.percent == 33
    assert quota.resets_at == NOON + timedelta(hours=12)
    assert quota.runs_out_at is None


def test_quotas_are_sorted_by_forecast_and_then_by_usage() -> None:
    def quota(percent: int, hours: int | None = None) -> Quota:
        end = None if hours is None else datetime(2026, 3, 1, hours, tzinfo=UTC)
        return Quota(Limit(pk=percent, amount=100), percent, NOON, None, end)

    many = [quota(0), quota(90), quota(60), quota(20, 3), quota(30, 2), quota(10, 1), quota(80, 4)]

    assert [each.percent for each in closest(many)] == [10, 30, 20, 90, 80]
    assert [each.percent for each in closest(many[:3])] == [90, 60]
    assert closest([]) == []


# -- Usage


def test_a_request_refused_before_its_model_was_known_has_a_name(alice: User) -> None:
    store(used(alice, "r1", model=""))

    text = page(signed_in(alice), "/console/usage/?by=model")

    assert re.search(r'<a href="[^"]*model=">\(none\)</a>', text)


def test_an_interval_is_chosen_by_its_name(alice: User) -> None:
    text = page(signed_in(alice), "/console/usage/")
    select = re.search(r'<select name="granularity".*?</select>', text, re.DOTALL)

    assert select is not None
    names = re.findall(r"<option[^>]*>(\w+)</option>", select[0])
    assert names == ["automatic", "minute", "hour", "day"]


def test_each_group_of_usage_has_a_link_to_its_records(alice: User) -> None:
    store(used(alice, "r1", model="a"), used(alice, "r2", model="b"), used(alice, "r3", model="b"))

    text = page(signed_in(alice), "/console/usage/?by=model&period=7d")

    rows = re.findall(r'scope="row">(?:<a href="(.*?)">)?(.*?)<.*?Requests">(\d+)', text, re.DOTALL)
    assert rows == [
        ("/console/usage/?by=model&amp;period=7d&amp;model=b", "b", "2"),
        ("/console/usage/?by=model&amp;period=7d&amp;model=a", "a", "1"),
        ("", "All", "3"),
    ]


@pytest.mark.parametrize("by", list(Dimension))
def test_usage_is_shown_by_every_dimension(alice: User, by: str) -> None:
    store(used(alice, "r1"))

    text = page(signed_in(alice), f"/console/usage/?by={by}&most=num_tokens")

    assert f"<title>Usage by {by} | Vinery</title>" in text
    assert f'aria-label="Tokens by {by}' in text


def test_keys_with_the_same_name_are_shown_separately(alice: User, limiter: MemoryLimiter) -> None:
    keys = [create_key(owner=alice, name="t6", project=first_project()).key for _ in range(2)]
    for number, key in enumerate(keys):
        whose = {"scope": LimitScope.KEY, "scope_id": key.pk}
        Limit.objects.create(metric="weighted_tokens", window="none", amount=50, **whose)
        store(used(alice, f"r{number}", key_id=key.pk, key_name="t6", weighted_tokens=9.0))
    store(used(alice, "r9", key_id=10**9, key_name="t6"))
    client = signed_in(alice)

    names = [f"t6 ({key.hint}, alice, {first_project().name})" for key in keys]
    for path in ("", "limits/"):
        text = unescape(page(client, f"/console/{path}"))
        assert [text.count(f">The key {name}<") for name in names] == [1, 1], path
    usage = unescape(page(client, "/console/usage/?by=key"))
    assert [usage.count(f">{name}</a>") for name in names] == [1, 1]
    assert ">t6 (number 1000000000)</a>" in usage  # the key is deleted
    alone = unescape(page(client, f"/console/usage/?by=key&key={keys[0].pk}"))
    assert f">key: {names[0]}" in alone


def test_small_groups_are_summed_as_others(alice: User) -> None:
    store(*(used(alice, f"r{at}", model=f"m{at}") for at in range(8)))

    text = page(signed_in(alice), "/console/usage/?by=model")

    assert "others: 2" in text


def test_the_export_has_the_rows_that_the_page_counts(alice: User, bob: User) -> None:
    store(used(alice, "r1", model="a"), used(alice, "r2", model="b"), used(bob, "r3", model="a"))
    client = signed_in(alice)

    text = page(client, "/console/usage/?period=1h&model=a")
    address = unescape(re.search(r'href="(/api/usage/export.*?)"', text)[1])  # type: ignore[index]
    response = client.get(address)
    chunks = async_to_sync(_all_of)(response)

    rows = list(csv.DictReader(io.StringIO(chunks)))
    assert [row["request_id"] for row in rows] == ["r1"]


def test_requests_without_a_model_have_no_export(alice: User) -> None:
    """The API cannot filter by an empty model. An export without a filter has all records."""
    store(used(alice, "r1", model=""), used(alice, "r2", model="a"))

    text = page(signed_in(alice), "/console/usage/?model=")

    assert 'Requests">1<' in text
    assert "/api/usage/export" not in text


@pytest.mark.parametrize(("status", "request_id"), [("4xx", "r2"), ("none", "r3")])
def test_a_status_links_to_its_records(alice: User, status: str, request_id: str) -> None:
    store(
        used(alice, "r1"),
        used(alice, "r2", http_status=404),
        used(alice, "r3", outcome=Outcome.FAILED, http_status=None),
    )
    client = signed_in(alice)

    grouped = page(client, "/console/usage/?by=status&period=1h")
    result = {"4xx": "4xx", "none": "(no answer)"}[status]
    led_to = unescape(
        re.search(rf'<a href="([^"]*status={status})">{re.escape(result)}</a>', grouped)[1]  # type: ignore[index]
    )
    alone = page(client, led_to)
    address = unescape(re.search(r'href="(/api/usage/export.*?)"', alone)[1])  # type: ignore[index]
    chunks = async_to_sync(_all_of)(client.get(address))

    rows = list(csv.DictReader(io.StringIO(chunks)))
    assert [row["request_id"] for row in rows] == [request_id]


@pytest.mark.parametrize(
    ("path", "query", "left_out"),
    [
        ("", "status=fine", "status=fine"),
        ("", "from=abc&key=x&key=7", "from=abc, key=x"),
        ("", "by=user", "by=user"),
        ("usage/", "by=nope&most=luck", "by=nope, most=luck"),
        ("usage/", "by=user&most=num_tokens&period=7d&model=a&zone=UTC&until=", ""),
        ("refusals/", "before=x&status=4xx", "before=x, status=4xx"),
        ("refusals/", "before=7&model=a&user=none", ""),
        ("refusals/", "before=&zone=", ""),
    ],
)
def test_invalid_parameters_are_ignored_and_reported(
    alice: User, path: str, query: str, left_out: str
) -> None:
    text = page(signed_in(alice), f"/console/{path}?{query}")

    result = re.findall(r"Ignored, because it is invalid here: (.*?)\.<", text)
    assert result == ([left_out] if left_out else [])
    for parameter in left_out.split(", ") if left_out else ():
        name, _, value = parameter.partition("=")
        assert f'name="{name}" value="{value}"' not in text
        assert f"{name}: {value}" not in text


def test_an_ignored_parameter_filters_no_records(alice: User) -> None:
    store(used(alice, "r1"))

    assert tile(page(signed_in(alice), "/console/?status=fine&from=abc"), "requests") == "1"


async def _all_of(response: Any) -> str:
    return b"".join([chunk async for chunk in response.streaming_content]).decode()


# -- Limits and refusals


@pytest.fixture
def limiter() -> Iterator[MemoryLimiter]:
    """Show the limits of this process in pages."""
    created = MemoryLimiter()
    show_in_pages(SimpleNamespace(state=None, levels=created.levels))  # type: ignore[arg-type]
    yield created
    show_in_pages(None)


def test_limits_show_the_remaining_amount_and_the_reset(
    alice: User, bob: User, limiter: MemoryLimiter
) -> None:
    limit = _limit(alice, Metric.REQUESTS, Window.DAY, 10)
    _limit(alice, Metric.TOKENS, Window.MINUTE, 1000)
    _limit(alice, Metric.TOKENS, Window.WEEK, 5000, week_start="sunday")
    _limit(bob, Metric.TOKENS, Window.MINUTE, 777)
    claim = ReservationRequest("r1", (rule_of(limit),), num_input_tokens=5, num_output_tokens=5)
    async_to_sync(limiter.acquire)(claim)

    text = page(signed_in(alice), "/console/limits/")

    cells = re.findall(r'data-name="(\w+)">(.*?)<', text)
    assert cells[:3] == [("Limit", "10"), ("Used", "1"), ("Left", "9")]
    assert re.fullmatch(r"In .*, with the next day of UTC", cells[3][1])
    assert cells[4:7] == [("Limit", "1,000"), ("Used", "0"), ("Left", "1,000")]
    assert cells[8:11] == [("Limit", "5,000"), ("Used", "0"), ("Left", "5,000")]
    assert re.fullmatch(r"In .*, with the next week of UTC, on a Sunday", cells[11][1])
    assert "tokens per week" in text
    assert "777" not in text


def test_limits_show_the_forecast(alice: User, root: User, limiter: MemoryLimiter) -> None:
    hers = _limit(alice, Metric.WEIGHTED_TOKENS, Window.NONE, 3000)
    changes.add(Limit(scope="platform", metric="weighted_tokens", window="none", amount=3000))
    store(used(alice, "r1", weighted_tokens=1500.0))

    def num_forecasts(user: User) -> int:
        text = page(signed_in(user), "/console/limits/")
        return len(re.findall(r">Used up in [^<]+, at the current rate<", text))

    assert num_forecasts(root) == 2
    assert num_forecasts(alice) == 1  # she may not see the usage of all users
    changes.change(hers, amount=1000)
    assert num_forecasts(alice) == 0  # the quota is used up


def test_limits_are_listed_if_their_usage_is_unknown(alice: User) -> None:
    _limit(alice, Metric.REQUESTS, Window.DAY, 10)

    text = page(signed_in(alice), "/console/limits/")

    assert "current use cannot be read" in text
    assert 'data-name="Left">unknown<' in text


@pytest.fixture
def store_is() -> Iterator[Callable[[MemoryLimiter, UnavailablePolicy], None]]:
    """Return a function that shows in pages the limits of a store."""

    def count(store: MemoryLimiter, when_unavailable: UnavailablePolicy) -> None:
        show_in_pages(FailoverLimiter(store, MemoryLimiter(), when_unavailable))

    yield count
    show_in_pages(None)


class _Dead(MemoryLimiter):
    """A store that never answers."""

    async def levels(self, rules: Sequence[Rule]) -> tuple[Level, ...]:
        raise LimitsUnavailable("it is dead")


@pytest.mark.parametrize(
    ("when_unavailable", "result", "is_known"),
    [
        (UnavailablePolicy.REFUSE, "Requests are refused until it is back.", False),
        (UnavailablePolicy.ALLOW, "Requests run without limits until it is back.", False),
        (UnavailablePolicy.SHARE, "each web process counts for itself", True),
    ],
)
def test_while_the_store_is_unavailable_the_page_shows_the_policy(
    alice: User,
    store_is: Callable[[MemoryLimiter, UnavailablePolicy], None],
    when_unavailable: UnavailablePolicy,
    result: str,
    is_known: bool,
) -> None:
    _limit(alice, Metric.REQUESTS, Window.DAY, 10)
    store_is(_Dead(), when_unavailable)

    text = page(signed_in(alice), "/console/limits/")

    assert re.search(r"The store of the limits has not answered for \d+ s\. ", text)
    assert result in text
    assert ('data-name="Left">10<' in text) is is_known
    assert "The limits hold all the same" not in text


def test_the_page_has_no_warning_if_the_store_answers(
    alice: User, store_is: Callable[[MemoryLimiter, UnavailablePolicy], None]
) -> None:
    _limit(alice, Metric.REQUESTS, Window.DAY, 10)
    store_is(MemoryLimiter(), UnavailablePolicy.REFUSE)

    text = page(signed_in(alice), "/console/limits/")

    assert 'data-name="Left">10<' in text
    assert "The store of the limits" not in text


def test_the_page_reports_that_there_are_no_limits(alice: User, limiter: MemoryLimiter) -> None:
    assert "Nothing is limited." in page(signed_in(alice), "/console/limits/")


def _limit(user: User, metric: str, window: str, amount: int, **more: Any) -> Limit:
    whose = {"scope": LimitScope.USER, "scope_id": user.pk}
    return Limit.objects.create(metric=metric, window=window, amount=amount, **whose, **more)


def test_a_refusal_is_explained_to_its_user(alice: User, bob: User) -> None:
    bound = BoundLimit(
        limit_id=1,
        scope=f"user:{alice.pk}",
        metric="requests",
        window="minute",
        amount=10,
        level=10,
        needed=1,
        wait_s=5.2,
        is_shadow=False,
    )
    store(used(alice, "r1", outcome=Outcome.REJECTED, http_status=429, bound_limits=(bound,)))

    sentence = (
        "10 of 10 requests per minute of the user alice were used, and 1 more was needed. "
        "It would have fitted 6 s later."
    )
    assert sentence in page(signed_in(alice), "/console/refusals/")
    assert "No limit refused anything" in page(signed_in(bob), "/console/refusals/")
    assert sentence not in page(signed_in(alice), "/console/refusals/?model=another")


@pytest.mark.parametrize(
    ("finish_reason", "sentence"),
    [
        ("length", "The answer was cut short at the limit: 3 of 10 tokens per day"),
        ("stop", "The request ran, but its answer could go no further than the limit: 3 of 10"),
    ],
)
def test_a_truncated_answer_is_not_described_as_a_refusal(
    alice: User, finish_reason: str, sentence: str
) -> None:
    bound = (_bound(alice, 1),)
    store(used(alice, "r1", http_status=200, finish_reason=finish_reason, bound_limits=bound))
    text = page(signed_in(alice), "/console/refusals/")
    assert sentence in text
    assert "never fits" not in text
    assert "needed" not in text

    store(used(alice, "r2", outcome=Outcome.REJECTED, http_status=429, bound_limits=bound))
    assert "It never fits" in page(signed_in(alice), "/console/refusals/")


def test_older_refusals_are_on_the_next_page(alice: User) -> None:
    store(
        *(
            used(alice, f"r{number}", bound_limits=(_bound(alice, number),), http_status=429)
            for number in range(60)
        )
    )
    client = signed_in(alice)

    first = page(client, "/console/refusals/")
    older = unescape(re.search(r'href="(\?.*?before.*?|/console/refusals/\?.*?)"', first)[1])  # type: ignore[index]

    assert first.count("<code>r") == 50
    assert page(client, older).count("<code>r") == 10


def _bound(user: User, number: int) -> BoundLimit:
    return BoundLimit(
        limit_id=number,
        scope=f"user:{user.pk}",
        metric="tokens",
        window="day",
        amount=10,
        level=3,
        needed=20,
        wait_s=None,
        is_shadow=False,
    )
