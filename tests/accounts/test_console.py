"""What people see in the console: their own, with numbers that are those of the books."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from usage_builders import admission, settlement

from accounts.models import Role, User
from accounts.people import first_project, join
from accounts.usage.entries import Outcome, Settlement
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
    who = {
        "user_id": user.pk,
        "username": user.username,
        "started_at": timezone.now() - timedelta(minutes=minutes_ago),
    }
    names = {"model", "key_id", "key_name", "project_id", "project_name", "organization_id"}
    who |= {name: changes.pop(name) for name in names & changes.keys()}
    return settlement(request_id, admission=admission(request_id, **who), **changes)


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


# -- Who comes in


def test_whoever_is_not_signed_in_is_sent_to_the_sign_in() -> None:
    assert Client().get("/console/").url == "/accounts/login/?next=/console/"  # type: ignore[attr-defined]


def test_the_front_door_leads_administrators_to_the_admin_and_others_here(
    root: User, alice: User
) -> None:
    places = [signed_in(user).get("/").url for user in (root, alice)]  # type: ignore[attr-defined]

    assert places == ["/admin/", "/console/"]
    assert Client().get("/").url == "/accounts/login/"  # type: ignore[attr-defined]


def test_only_administrators_are_shown_the_way_to_the_admin(root: User, alice: User) -> None:
    assert "Administration" in page(signed_in(root), "/console/")
    assert "Administration" not in page(signed_in(alice), "/console/")


def test_no_page_lets_inline_or_foreign_code_run(root: User) -> None:
    response = signed_in(root).get("/console/")

    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! src=)|<style| style=| on[a-z]+=", response.content.decode())
    assert response.headers["Cache-Control"] == "no-store, private"


# -- Overview


def test_everything_is_zero_before_the_first_request_and_the_page_says_what_to_do(
    alice: User,
) -> None:
    text = page(signed_in(alice), "/console/")

    assert numbers(text) == ["0", "0", "0", "0"]
    assert "make a key" in text
    assert text.count("<svg") == 4


def test_the_overview_adds_up_the_period(alice: User) -> None:
    failed: dict[str, Any] = {"outcome": Outcome.FAILED, "http_status": 500}
    store(used(alice, "r1"), used(alice, "r2", **failed), used(alice, "old", minutes_ago=3000))

    client = signed_in(alice)
    assert numbers(page(client, "/console/")) == ["2", "1", "22", "60"]
    assert numbers(page(client, "/console/?period=7d")) == ["3", "1", "33", "90"]
    assert tile(page(client, "/console/"), "total").endswith(" ms")


def test_people_see_their_own_and_leaders_their_organisation(
    alice: User, bob: User, root: User
) -> None:
    organization = first_project().organization
    for user, role in ((alice, Role.ADMIN), (bob, Role.MEMBER)):
        join(user, organization, role)
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


def test_a_filter_holds_and_can_be_taken_away(alice: User) -> None:
    store(used(alice, "r1", model="a"), used(alice, "r2", model="b"))

    text = page(signed_in(alice), "/console/?period=1h&model=a")

    assert tile(text, "requests") == "1"
    assert '<a href="/console/?period=1h" title="Show all again">model: a' in text


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("period=own&since=2026-03-02T00:00&until=2026-03-01T00:00", "ends before it begins"),
        ("period=90d&granularity=minute", "makes more than 1500"),
        ("zone=Mars/Olympus", "There is no time zone Mars/Olympus"),
        ("period=century", "Select a valid choice"),
    ],
)
def test_a_period_that_cannot_be_shown_is_told_and_the_last_day_is_shown(
    alice: User, query: str, complaint: str
) -> None:
    store(used(alice, "r1"))

    text = page(signed_in(alice), f"/console/?{query}")

    assert complaint in text
    assert tile(text, "requests") == "1"
