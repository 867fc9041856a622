"""Users, keys and usage in Django's admin."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from pages import text_of
from usage_builders import admission, settlement

from vinery_accounts.keys.lifecycle import NewKey
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.models import ApiKey, Limit, Project, UsageRecord, User
from vinery_accounts.services import changes
from vinery_accounts.services.changes import first_project, home_project
from vinery_accounts.usage.entries import Outcome
from vinery_accounts.usage.store import store_settlements

KEYS = "admin:accounts_apikey_changelist"
ADD_KEY = "admin:accounts_apikey_add"
CHANGE_KEY = "admin:accounts_apikey_change"
USAGE = "admin:accounts_usagerecord_changelist"


def test_a_quota_shows_its_usage(client: Client, root: User) -> None:
    limits = [
        changes.add(Limit(scope="platform", metric="tokens", window=window, amount=1000))
        for window in ("day", "minute")
    ]
    store_settlements([settlement(admission=admission(started_at=timezone.now()))])
    quota, rate = (reverse("admin:accounts_limit_change", args=[each.pk]) for each in limits)

    assert "41 used, 959 left. Resets at" in text_of(client.get(quota))
    assert "left." not in text_of(client.get(rate))


def test_usage_of_a_platform_quota_is_hidden_from_staff(client: Client, staff: User) -> None:
    limit = changes.add(Limit(scope="platform", metric="tokens", window="day", amount=1000))
    page = text_of(client.get(reverse("admin:accounts_limit_change", args=[limit.pk])))

    assert "1000" in page
    assert "left." not in page


def shown_names(client: Client, **query: str) -> set[str]:
    response = client.get(reverse(KEYS), query)
    return {key.name for key in response.context["cl"].result_list}


# -- Keys


def test_a_new_key_is_shown_once(client: Client, root: User, alice: User) -> None:
    response = client.post(
        reverse(ADD_KEY),
        {
            "name": "laptop",
            "owner": alice.pk,
            "project": home_project(alice).pk,
            "scopes": ["inference", "manage"],
            "allowed_models": "tiny-chat\r\n  small \n\n",
            "allowed_networks": "127.0.0.0/8",
            "expires_at_0": "",
            "expires_at_1": "",
        },
        follow=True,
    )

    (secret,) = re.findall(r"<code>(vny_live_\w+)</code>", text_of(response))
    assert "cannot be shown again" in text_of(response)
    table = KeyTable()
    table.refresh()
    assert table.authenticate(f"Bearer {secret}").username == "alice"
    key = ApiKey.objects.get()
    assert key.scopes == ["inference", "manage"]
    assert key.allowed_models == ["tiny-chat", "small"]
    assert key.allowed_networks == ["127.0.0.0/8"]
    for page in (reverse(KEYS), reverse(CHANGE_KEY, args=[key.pk])):
        assert secret not in text_of(client.get(page))
        assert key.hint in text_of(client.get(page))


def test_a_note_of_a_key_is_shown_and_changed(
    client: Client, root: User, new_key: Callable[..., NewKey]
) -> None:
    client.force_login(root)
    key = new_key(note="ask Ann").key
    url = reverse("admin:accounts_apikey_change", args=[key.pk])

    text = client.get(url).content.decode()
    client.post(url, {"name": key.name, "scopes": key.scopes, "note": "ask Bob"})

    assert "ask Ann" in text
    assert ApiKey.objects.get().note == "ask Bob"


def test_the_owner_of_a_new_key_is_the_user_by_default(client: Client, root: User) -> None:
    response = client.get(reverse(ADD_KEY))

    assert response.context["adminform"].form.initial["owner"] == root.pk


def test_a_new_key_cannot_be_expired(client: Client, root: User) -> None:
    response = client.post(
        reverse(ADD_KEY),
        {
            "name": "laptop",
            "owner": root.pk,
            "project": first_project().pk,
            "scopes": ["inference"],
            "expires_at_0": "2020-01-01",
            "expires_at_1": "00:00:00",
        },
    )

    assert "Choose a time in the future" in text_of(response)
    assert not ApiKey.objects.exists()


def test_the_expiry_of_a_key_follows_its_rotation_days(
    client: Client, root: User, new_key: Callable[..., NewKey]
) -> None:
    key = new_key(rotate_every_days=90, rotation_grace_days=7).key
    page = reverse(CHANGE_KEY, args=[key.pk])
    form = {"name": "spider", "scopes": ["inference"], "rotate_every_days": "30"}
    end = {
        "expires_at_0": f"{key.expires_at:%Y-%m-%d}",
        "expires_at_1": f"{key.expires_at:%H:%M:%S}",
    }
    other = {"expires_at_0": "2999-01-01", "expires_at_1": "00:00:00"}

    refused = client.post(page, form | {"rotation_grace_days": "7"} | other)
    assert "leave out its expiry, or its days of grace" in text_of(refused)
    refused = client.post(page, form | {"rotate_every_days": "", "rotation_grace_days": "7"})
    assert "Also set after how many days the key must be rotated" in text_of(refused)

    assert client.post(page, form | {"rotation_grace_days": "3"} | end).status_code == 302
    key.refresh_from_db()
    assert key.expires_at == (key.created_at + timedelta(days=33)).replace(microsecond=0)
    assert f"{key.rotation_due_at:%Y-%m-%d %H:%M} UTC" in text_of(client.get(reverse(KEYS)))

    ApiKey.objects.update(created_at=timezone.now() - timedelta(days=31))
    assert "UTC, overdue" in text_of(client.get(page))


def test_secret_owner_and_project_of_a_key_cannot_be_changed(
    client: Client, root: User, new_key: Callable[..., NewKey]
) -> None:
    key = new_key().key
    other = changes.add(Project(organization=key.project.organization, name="other"))
    before = ApiKey.objects.filter(pk=key.pk).values().get()

    client.post(
        reverse(CHANGE_KEY, args=[key.pk]),
        {
            "name": "renamed",
            "owner": root.pk,
            "project": other.pk,
            "scopes": ["usage"],
            "allowed_endpoints": "completions",
            "hint": "forged",
            "digest": "forged",
            "revoked_at_0": "2020-01-01",
            "expires_at_0": "2020-01-02",
            "expires_at_1": "03:04:05",
        },
    )

    after = ApiKey.objects.filter(pk=key.pk).values().get()
    changed = {column for column in before if before[column] != after[column]}
    assert changed == {"name", "scopes", "allowed_endpoints", "expires_at", "updated_at"}
    assert after["name"] == "renamed"


def test_the_list_shows_the_state_of_each_key(
    client: Client, root: User, new_key: Callable[..., NewKey], bob: User
) -> None:
    past, future = (timezone.now() + timedelta(hours=h) for h in (-1, 1))
    new_key("fresh")
    new_key("lasting", expires_at=future)
    new_key("over", expires_at=past)
    new_key("stopped", expires_at=past)
    new_key("orphaned", owner=bob)
    ApiKey.objects.filter(name="stopped").update(revoked_at=timezone.now())
    User.objects.filter(pk=bob.pk).update(is_active=False)

    found = {
        state: shown_names(client, state=state)
        for state in ("active", "expired", "revoked", "owner inactive")
    }

    assert found == {
        "active": {"fresh", "lasting"},
        "expired": {"over"},
        "revoked": {"stopped"},
        "owner inactive": {"orphaned"},
    }
    now = timezone.now()
    for state, names in found.items():
        assert {ApiKey.objects.get(name=name).state_at(now).value for name in names} == {state}


def test_keys_are_found_by_name_owner_and_hint(
    client: Client, root: User, new_key: Callable[..., NewKey], bob: User
) -> None:
    laptop = new_key("laptop").key
    new_key("server", owner=bob)

    assert shown_names(client, q="lapt") == {"laptop"}
    assert shown_names(client, q="bob") == {"server"}
    assert shown_names(client, q=laptop.hint) == {"laptop"}


def test_a_long_list_needs_no_query_for_each_key(
    client: Client, root: User, new_key: Callable[..., NewKey]
) -> None:
    new_key("one")
    with CaptureQueriesContext(connection) as for_one:
        client.get(reverse(KEYS))
    for number in range(20):
        new_key(f"more {number}", owner=User.objects.create_user(f"user{number}"))

    with CaptureQueriesContext(connection) as for_many:
        client.get(reverse(KEYS))

    assert len(for_many) == len(for_one)


def test_selected_keys_are_revoked(
    client: Client, staff: User, new_key: Callable[..., NewKey]
) -> None:
    chosen, other = new_key("chosen").key, new_key("other").key
    before = timezone.now()

    response = client.post(
        reverse(KEYS),
        {"action": "revoke", "_selected_action": [chosen.pk]},
        follow=True,
    )

    chosen.refresh_from_db()
    other.refresh_from_db()
    assert before <= (chosen.revoked_at or before) <= timezone.now()
    assert other.revoked_at is None
    assert "1 of the selected keys revoked" in text_of(response)


def test_only_superusers_delete_keys(
    client: Client, staff: User, new_key: Callable[..., NewKey]
) -> None:
    key = new_key().key
    page = reverse("admin:accounts_apikey_delete", args=[key.pk])

    assert client.post(page, {"post": "yes"}).status_code == 403
    # Deleting the owner does not delete them either.
    client.post(reverse("admin:accounts_user_delete", args=[key.owner_id]), {"post": "yes"})
    assert ApiKey.objects.exists()

    User.objects.filter(pk=staff.pk).update(is_superuser=True)
    client.post(page, {"post": "yes"})
    assert not ApiKey.objects.exists()


# -- Users


def test_a_user_can_be_created_and_deactivated(client: Client, root: User, alice: User) -> None:
    page = reverse("admin:accounts_user_change", args=[alice.pk])
    assert "alice" in text_of(client.get(page))
    assert "alice" in text_of(client.get(reverse("admin:accounts_user_changelist")))

    client.post(
        reverse("admin:accounts_user_add"),
        {
            "username": "charlie",
            "usable_password": "true",
            "password1": "correct-horse-7",
            "password2": "correct-horse-7",
        },
    )

    assert User.objects.get(username="charlie").check_password("correct-horse-7")


# -- Usage


@pytest.fixture
def usage(db: None) -> None:
    """Store three records of today, one of last week and one of last year."""
    now = timezone.now()
    ages = {"r1": 0, "r2": 1, "r3": 2, "week": 24 * 3, "year": 24 * 300}
    store_settlements(
        [
            settlement(
                admission=admission(
                    request_id,
                    started_at=now - timedelta(hours=hours, minutes=5),
                    model="other" if request_id == "r3" else "reference-chat",
                ),
                outcome=Outcome.FAILED if request_id == "r2" else Outcome.OK,
                **({"num_media": 2, "num_image_tokens": 1234} if request_id == "r2" else {}),
            )
            for request_id, hours in ages.items()
        ]
    )


def shown_usage(client: Client, **query: str) -> tuple[set[str], dict[str, int]]:
    changelist = client.get(reverse(USAGE), query).context["cl"]
    return {row.request_id for row in changelist.result_list}, changelist.paginator.totals


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, {"r1", "r2", "r3"}),
        ({"period": "hour"}, {"r1"}),
        ({"period": "week"}, {"r1", "r2", "r3", "week"}),
        ({"period": "all"}, {"r1", "r2", "r3", "week", "year"}),
        ({"model": "other"}, {"r3"}),
        ({"outcome__exact": "failed"}, {"r2"}),
        ({"period": "all", "endpoint": "chat/completions", "q": "year"}, {"year"}),
        ({"period": "all", "model": "gone"}, set()),
        ({"media": "with"}, {"r2"}),
        ({"period": "all", "media": "without"}, {"r1", "r3", "week", "year"}),
        ({"media": "with", "outcome__exact": "ok"}, set()),
    ],
)
def test_the_totals_are_the_sums_of_the_filtered_records(
    client: Client, root: User, usage: None, query: dict[str, str], found: set[str]
) -> None:
    shown, totals = shown_usage(client, **query)

    assert shown == found
    assert totals == {
        "num_requests": len(found),
        "num_prompt_tokens": 11 * len(found),
        "num_cached_tokens": 8 * len(found),
        "num_output_tokens": 30 * len(found),
        "num_reasoning_tokens": 20 * len(found),
        "num_media": 2 * ("r2" in found),
        "num_image_tokens": 1234 * ("r2" in found),
    }


def test_the_totals_are_on_the_page(client: Client, root: User, usage: None) -> None:
    page = text_of(client.get(reverse(USAGE)))

    assert "<strong>33</strong> prompt tokens" in page
    assert "<strong>90</strong> output tokens" in page
    assert "last 24 hours" in page
    assert "<strong>2</strong> media with <strong>1234</strong> of the prompt tokens" in page
    assert re.findall(r'class="field-media_used">(.*?)<', page) == ["-", "2 (1,234)", "-"]
    assert "media with" not in text_of(client.get(reverse(USAGE), {"model": "other"}))


def test_the_page_counts_records_once(client: Client, root: User, usage: None) -> None:
    with CaptureQueriesContext(connection) as queries:
        client.get(reverse(USAGE), {"outcome__exact": "ok"})

    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"]]
    assert len(counts) == 1
    assert "SUM(" in counts[0]
    assert "created_at" in counts[0]


def test_usage_records_cannot_be_edited(client: Client, root: User, usage: None) -> None:
    row = UsageRecord.objects.get(request_id="r1")
    change = reverse("admin:accounts_usagerecord_change", args=[row.pk])

    assert "r1" in text_of(client.get(change))
    assert client.post(change, {"num_output_tokens": 0}).status_code == 403
    assert client.get(reverse("admin:accounts_usagerecord_add")).status_code == 403
    delete = reverse("admin:accounts_usagerecord_delete", args=[row.pk])
    assert client.post(delete, {"post": "yes"}).status_code == 403
    client.post(reverse(USAGE), {"action": "delete_selected", "_selected_action": [row.pk]})
    assert UsageRecord.objects.filter(pk=row.pk, num_output_tokens=30).exists()
