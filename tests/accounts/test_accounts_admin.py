"""Keys and usage in Django's admin."""

import re
from datetime import timedelta
from typing import Any

import pytest
from api.api_client import Keys
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from pages import num_queries, page, sent, text_of
from usage_builders import store

from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.access.changes import home_project
from vinery_accounts.keys.table import KeyTable
from vinery_accounts.models import ApiKey, Project, UsageRecord, User
from vinery_accounts.usage.entries import Outcome

pytestmark = pytest.mark.usefixtures("root")

KEYS = "/admin/accounts/apikey/"
ADD_KEY = f"{KEYS}add/"
USAGE = "/admin/accounts/usagerecord/"


def change_key(key: ApiKey) -> str:
    return f"{KEYS}{key.pk}/change/"


def test_a_new_key_is_shown_once(client: Client, root: User, alice: User) -> None:
    assert client.get(ADD_KEY).context["adminform"].form.initial["owner"] == root.pk
    models = {"allowed_models": "tiny-chat,  small, ", "allowed_networks": "127.0.0.0/8"}
    form = {"name": "laptop", "owner": alice.pk, "project": home_project(alice).pk, **models}
    scopes = ["inference", "manage"]
    past = {"expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}
    assert "Choose a time in the future" in sent(client, ADD_KEY, {**form, "scopes": scopes} | past)
    assert not ApiKey.objects.exists()

    text = sent(client, ADD_KEY, {**form, "scopes": scopes, "note": "ask Ann"})

    (secret,) = re.findall(r"<code>(vny_live_\w+)</code>", text)
    assert "cannot be shown again" in text
    keys = KeyTable()
    keys.refresh()
    assert keys.authenticate(f"Bearer {secret}").username == "alice"
    key = ApiKey.objects.get()
    assert (key.scopes, key.allowed_models) == (scopes, ["tiny-chat", "small"])
    assert key.allowed_networks == ["127.0.0.0/8"]
    for where in (KEYS, change_key(key)):
        assert secret not in page(client, where)
        assert key.hint in page(client, where)
    assert "ask Ann" in page(client, change_key(key))


def test_secret_owner_and_project_of_a_key_stay(client: Client, root: User, new_key: Keys) -> None:
    key = new_key().key
    other = changes.add(Project(organization=key.project.organization, name="other"))
    before = ApiKey.objects.filter(pk=key.pk).values().get()
    forged = {"owner": root.pk, "project": other.pk, "hint": "forged", "digest": "forged"}
    allowed = {"name": "renamed", "scopes": ["usage"], "allowed_endpoints": "completions"}
    dates = {"revoked_at_0": "2020-01-01", "expires_at_0": "2020-01-02", "expires_at_1": "03:04:05"}

    client.post(change_key(key), {**forged, **allowed, **dates, "note": "ask Bob"})

    after = ApiKey.objects.filter(pk=key.pk).values().get()
    changed = {column for column in before if before[column] != after[column]}
    assert changed == {*allowed, "note", "expires_at", "updated_at"}
    assert (after["name"], after["note"]) == ("renamed", "ask Bob")


def test_a_long_list_needs_no_query_for_each_key(client: Client, new_key: Keys) -> None:
    new_key("one")
    for_one = num_queries(client, KEYS)
    for number in range(20):
        new_key(f"more {number}", owner=User.objects.create_user(f"user{number}"))

    assert num_queries(client, KEYS) == for_one


def test_staff_revoke_superusers_delete_keys(client: Client, staff: User, new_key: Keys) -> None:
    key, other = new_key("chosen").key, new_key("other").key
    before = timezone.now()

    text = sent(client, KEYS, {"action": "revoke", "_selected_action": [key.pk]})

    key.refresh_from_db()
    other.refresh_from_db()
    assert before <= (key.revoked_at or before) <= timezone.now()
    assert other.revoked_at is None
    assert "1 of the selected keys revoked" in text

    delete, sure = f"{KEYS}{key.pk}/delete/", {"post": "yes"}
    assert client.post(delete, sure).status_code == 403
    # Deleting the owner does not delete them either.
    client.post(f"/admin/accounts/user/{key.owner_id}/delete/", sure)
    assert ApiKey.objects.count() == 2

    User.objects.filter(pk=staff.pk).update(is_superuser=True)
    client.post(delete, sure)
    assert list(ApiKey.objects.all()) == [other]


@pytest.fixture
def usage(db: None) -> None:
    """Store three records of today, one of last week and one of last year."""
    media: dict[str, Any] = {"num_media": 2, "num_image_tokens": 1000, "num_video_tokens": 234}
    more = {"r2": {"outcome": Outcome.FAILED, **media}, "r3": {"model": "other"}}
    hours = {"r1": 0, "r2": 1, "r3": 2, "week": 24 * 3, "year": 24 * 300}
    for name, age in hours.items():
        started_at = timezone.now() - timedelta(hours=age, minutes=5)
        store(name, started_at=started_at, **more.get(name, {}))


@pytest.mark.stores
@table(
    "query, found",
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
    client: Client, usage: None, query: dict[str, str], found: set[str]
) -> None:
    changelist = client.get(USAGE, query).context["cl"]

    assert {row.request_id for row in changelist.result_list} == found
    assert changelist.paginator.totals == {
        "num_requests": len(found),
        "num_prompt_tokens": 11 * len(found),
        "num_cached_tokens": 8 * len(found),
        "num_output_tokens": 30 * len(found),
        "num_reasoning_tokens": 20 * len(found),
        "num_media": 2 * ("r2" in found),
        "num_image_tokens": 1000 * ("r2" in found),
        "num_video_tokens": 234 * ("r2" in found),
    }


def test_the_page_has_the_totals_and_edits_no_record(client: Client, usage: None) -> None:
    text = page(client, USAGE)

    for shown in (
        "<strong>33</strong> prompt tokens",
        "<strong>90</strong> output tokens",
        "last 24 hours",
        "?model=other",  # a choice of the filter
        "<strong>2</strong> media with <strong>1000</strong> image and ",
    ):
        assert shown in text
    assert re.findall(r'class="field-media_used">(.*?)<', text) == ["-", "2 (1,234)", "-"]
    assert "media with" not in text_of(client.get(USAGE, {"model": "other"}))

    with CaptureQueriesContext(connection) as queries:
        client.get(USAGE, {"outcome__exact": "ok"})

    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"]]
    assert len(counts) == 1
    assert "SUM(" in counts[0]
    assert "created_at" in counts[0]

    row = UsageRecord.objects.get(request_id="r1")
    change = reverse("admin:accounts_usagerecord_change", args=[row.pk])
    assert "r1" in page(client, change)
    assert client.post(change, {"num_output_tokens": 0}).status_code == 403
    assert client.get(f"{USAGE}add/").status_code == 403
    assert client.post(f"{USAGE}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    client.post(USAGE, {"action": "delete_selected", "_selected_action": [row.pk]})
    assert UsageRecord.objects.filter(pk=row.pk, num_output_tokens=30).exists()
