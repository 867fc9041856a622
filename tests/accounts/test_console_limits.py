"""Limits in the console: only admins of the scope above set, change and remove them. Each change is
audited."""

from __future__ import annotations

import re
from typing import Any

import pytest
from api.api_client import Tenant, make_tenant
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pages import signed_in, text_of

from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import ApiKey, AuditEntry, Limit, Role, User
from vinery_accounts.services import changes

pytestmark = pytest.mark.django_db

LIMITS = "/console/limits/"
NEW = f"{LIMITS}new/"


@pytest.fixture
def ours() -> Tenant:
    return make_tenant("ours")


@pytest.fixture
def admin(ours: Tenant, alice: User) -> User:
    changes.set_role(alice, ours.organization, Role.ADMIN)
    return alice


@pytest.fixture
def key(ours: Tenant, bob: User) -> ApiKey:
    changes.set_role(bob, ours.one, Role.MEMBER)
    return create_key(owner=bob, project=ours.one, name="laptop").key


def form(of: str, **more: Any) -> dict[str, Any]:
    usual = {"metric": "tokens", "window": "day", "amount": 1000}
    return {"of": of} | usual | {"time_zone": "UTC", "week_start": "monday"} | more


def errors(text: str) -> list[str]:
    found = re.findall(r'class="errorlist"[^>]*>(.*?)</ul>|role="alert">(.*?)</p>', text, re.DOTALL)
    return [re.sub("<.*?>", "", "".join(each)).strip() for each in found]


def options(text: str) -> set[str]:
    select = re.search(r'<select name="of".*?</select>', text, re.DOTALL)
    assert select is not None
    return set(re.findall(r'value="(.*?)"', select[0]))


def actions() -> list[tuple[str, str]]:
    entries = AuditEntry.objects.filter(target_kind="limit").order_by("id")
    return list(entries.values_list("actor", "action"))


# -- Changes


def test_a_limit_is_set_changed_and_removed(root: User, key: ApiKey) -> None:
    client = signed_in(root)

    result = client.post(NEW, form(f"key:{key.pk}", is_shadow="on", alert_at="50, 90"), follow=True)
    assert "The limit is set." in text_of(result)
    limit = Limit.objects.get()
    assert (limit.scope, limit.scope_id, limit.model) == ("key", key.pk, "")
    assert (limit.metric, limit.window, limit.amount) == ("tokens", "day", 1000)
    assert (limit.is_shadow, limit.alert_at) == (True, [50, 90])

    page = text_of(client.get(f"{LIMITS}{limit.pk}/"))
    whose = f"the key laptop ({key.hint}, bob, ours one)"
    assert f"Tokens per day, for {whose}." in page
    assert 'value="50, 90"' in page
    changed = {"amount": 2000, "time_zone": "Europe/Berlin", "alert_at": "off"}
    assert "The limit is changed." in text_of(
        client.post(f"{LIMITS}{limit.pk}/", changed, follow=True)
    )
    limit.refresh_from_db()
    assert (limit.amount, limit.time_zone) == (2000, "Europe/Berlin")
    assert (limit.is_shadow, limit.alert_at) == (False, [])

    assert f"2000 tokens per day, for {whose}." in text_of(
        client.get(f"{LIMITS}{limit.pk}/remove/")
    )
    assert "The limit is removed." in text_of(
        client.post(f"{LIMITS}{limit.pk}/remove/", follow=True)
    )
    assert not Limit.objects.exists()
    assert actions() == [
        ("root", "limit.create"),
        ("root", "limit.update"),
        ("root", "limit.delete"),
    ]


def test_a_weekly_limit_begins_on_the_chosen_day(root: User) -> None:
    client = signed_in(root)

    client.post(NEW, form("platform", window="week", week_start="sunday"))
    limit = Limit.objects.get()
    page = text_of(client.get(f"{LIMITS}{limit.pk}/"))
    assert "Tokens per week, for the whole platform." in page
    assert '<option value="sunday" selected>Sunday</option>' in page
    changed = {"amount": 9, "time_zone": "UTC"}
    client.post(f"{LIMITS}{limit.pk}/", changed | {"week_start": "saturday"})
    limit.refresh_from_db()
    assert (limit.window, limit.week_start, limit.amount) == ("week", "saturday", 9)

    days = changes.add(Limit(scope="platform", metric="tokens", window="day", amount=1))
    assert "Weeks begin on" not in text_of(client.get(f"{LIMITS}{days.pk}/"))
    client.post(f"{LIMITS}{days.pk}/", changed | {"week_start": "sunday"})
    days.refresh_from_db()
    assert (days.week_start, days.amount) == ("monday", 9)


def test_an_unchanged_form_changes_no_field(root: User) -> None:
    values = {"amount": 7, "time_zone": "Asia/Tokyo", "is_shadow": True}
    limit = changes.add(Limit(scope="platform", metric="tokens", window="day", **values))
    client = signed_in(root)
    num_before = AuditEntry.objects.count()

    for alert_at in (None, [], [80]):
        Limit.objects.update(alert_at=alert_at)
        page = text_of(client.get(f"{LIMITS}{limit.pk}/"))
        fields = dict(
            re.findall(r'<input type="(?:text|number)" name="(\w+)"(?: value="(.*?)")?', page)
        )
        client.post(f"{LIMITS}{limit.pk}/", {**fields, "is_shadow": "on"})
        assert Limit.objects.filter(alert_at=alert_at, **values).exists() or alert_at is None
        limit.refresh_from_db()
        assert limit.alert_at == alert_at

    assert AuditEntry.objects.count() == num_before


@pytest.mark.parametrize("of", ["platform", "model"])
def test_administrators_set_limits_of_the_platform_and_of_models(root: User, of: str) -> None:
    model = "tiny-chat" if of == "model" else ""
    signed_in(root).post(NEW, form(of, model=model))

    limit = Limit.objects.get()
    assert (limit.scope, limit.scope_id, limit.model) == (of, 0, model)
    assert "tokens per day" in text_of(signed_in(root).get(f"{LIMITS}{limit.pk}/remove/"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"amount": 0}, "greater than or equal to 1"),
        ({"amount": "many"}, "Enter a whole number."),
        ({"amount": 10**30}, "less than or equal to"),
        ({"of": ""}, "This field is required."),
        ({"of": "planet:1"}, "Choose an entry of the list."),
        ({"of": "key"}, "Choose an entry of the list."),
        ({"of": "platform:1"}, "Choose an entry of the list."),
        ({"of": "key:999999"}, "There is no key 999999."),
        ({"of": "model"}, "Name the model for a limit of a model"),
        ({"model": "tiny-chat"}, "Name the model for a limit of a model"),
        ({"metric": "concurrency"}, "has no window"),
        ({"window": "none"}, "needs one of these windows: minute"),
        ({"week_start": "sunday"}, "Only limits per week have a first day"),
        ({"window": "week", "week_start": "someday"}, "Select a valid choice."),
        ({"time_zone": "Mars"}, "There is no time zone Mars."),
        ({"alert_at": "half"}, "Give whole percentages"),
        ({"alert_at": "80, 50"}, "the smallest first"),
        ({"alert_at": "101"}, "whole percentages from 1 to 100"),
    ],
    ids=str,
)
def test_an_invalid_value_is_reported_at_its_field(
    root: User, more: dict[str, Any], message: str
) -> None:
    text = text_of(signed_in(root).post(NEW, form("platform") | more))

    [error] = errors(text)
    assert message in error
    assert "<title>Error:" in text
    assert not Limit.objects.exists()


def test_a_duplicate_limit_is_refused_and_the_form_keeps_its_values(
    root: User,
) -> None:
    client = signed_in(root)
    client.post(NEW, form("platform"))

    text = text_of(client.post(NEW, form("platform", amount=77)))

    assert errors(text) == ["This limit exists already: change its amount."]
    assert 'value="77"' in text
    assert Limit.objects.get().amount == 1000


# -- Rights


def test_admins_set_limits_below_their_own_scope(admin: User, ours: Tenant, key: ApiKey) -> None:
    client = signed_in(admin)
    theirs = make_tenant("theirs")

    offered = options(text_of(client.get(NEW)))
    assert offered == {
        f"project:{ours.one.pk}",
        f"project:{ours.two.pk}",
        f"key:{key.pk}",
        f"user:{key.owner_id}",
    }
    for of in offered:
        assert client.post(NEW, form(of)).status_code == 302
    for of in (f"organization:{ours.organization.pk}", f"project:{theirs.one.pk}", "platform"):
        assert client.post(NEW, form(of)).status_code == 403
    assert Limit.objects.count() == 4


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_user_without_an_admin_role_cannot_set_change_or_remove_limits(
    bob: User, key: ApiKey, ours: Tenant, method: str
) -> None:
    limit = changes.add(
        Limit(scope="key", scope_id=key.pk, metric="tokens", window="day", amount=1000)
    )
    client = signed_in(bob)
    ask = getattr(client, method)

    assert ask(NEW, form(f"key:{key.pk}", window="month")).status_code == 403
    for page in (f"{LIMITS}{limit.pk}/", f"{LIMITS}{limit.pk}/remove/"):
        assert ask(page, {"amount": 10**9, "time_zone": "UTC"}).status_code == 403

    assert [limit.amount for limit in Limit.objects.all()] == [1000]
    listed = text_of(client.get(LIMITS))
    assert "1,000" in listed
    assert "Set a limit" not in listed
    assert "Change<" not in listed


def test_an_invisible_limit_is_not_found(admin: User) -> None:
    theirs = make_tenant("theirs")
    limit = changes.add(
        Limit(scope="project", scope_id=theirs.one.pk, metric="tokens", window="day", amount=9)
    )

    for page in (f"{LIMITS}{limit.pk}/", f"{LIMITS}{limit.pk}/remove/"):
        assert signed_in(admin).get(page).status_code == 404
        assert signed_in(admin).post(page).status_code == 404


def test_the_list_links_only_to_limits_that_may_be_changed(
    admin: User, ours: Tenant, key: ApiKey
) -> None:
    mine = changes.add(Limit(scope="key", scope_id=key.pk, metric="tokens", window="day", amount=9))
    above = changes.add(Limit(scope="platform", metric="tokens", window="day", amount=99))

    text = text_of(signed_in(admin).get(LIMITS))

    assert f'href="{LIMITS}{mine.pk}/"' in text
    assert f'href="{LIMITS}{above.pk}/"' not in text
    assert "99" in text


def test_a_key_links_to_a_form_with_the_key_selected(admin: User, key: ApiKey) -> None:
    client = signed_in(admin)
    link = f"{NEW}?of=key:{key.pk}"
    assert link in text_of(client.get("/console/keys/"))
    assert link not in text_of(signed_in(key.owner).get("/console/keys/"))

    assert f'<option value="key:{key.pk}" selected>' in text_of(client.get(link))
    assert "selected" not in text_of(client.get(f"{NEW}?of=<script>")).partition("metric")[0]


def test_a_key_beyond_the_first_choices_can_be_selected_by_its_link(
    root: User, key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vinery_accounts.console.limits._MAX_CHOICES", 1)
    newer = create_key(owner=key.owner, project=key.project, name="newer").key
    client = signed_in(root)

    assert f"key:{key.pk}" not in options(text_of(client.get(NEW)))
    assert f"key:{newer.pk}" in options(text_of(client.get(NEW)))
    assert f"key:{key.pk}" in options(text_of(client.get(f"{NEW}?of=key:{key.pk}")))


def test_the_number_of_queries_does_not_depend_on_the_number_of_limits(
    admin: User, ours: Tenant, key: ApiKey
) -> None:
    def num_queries() -> int:
        client = signed_in(admin)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            text_of(client.get(LIMITS))
        return len(queries)

    def limit(scope: str, scope_id: int, metric: str) -> None:
        changes.add(Limit(scope=scope, scope_id=scope_id, metric=metric, window="day", amount=9))

    kinds = [("key", key.pk), ("project", ours.one.pk), ("user", key.owner_id)]
    for scope, scope_id in kinds:
        limit(scope, scope_id, "tokens")
    few = num_queries()
    for scope, scope_id in [*kinds, ("project", ours.two.pk)]:
        for metric in ("requests", "input_tokens", "output_tokens"):
            limit(scope, scope_id, metric)

    assert num_queries() == few
