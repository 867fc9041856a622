"""Limits in the console: only admins of the scope above set, change and remove them. Each change is
audited."""

import re
from typing import Any

import pytest
from api.api_client import Tenant
from django.test import Client
from pages import num_queries, page, sent, signed_in, text_of
from row_builders import logged, stored_limit

from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import ApiKey, AuditEntry, Limit, Role, User

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
