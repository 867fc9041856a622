"""Unreadable names are refused at every entry point. Stored names are escaped."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from tests.accounts.api.api_client import Keys
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.alerts import webhooks
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import Organization, Project, Role, User
from vinery_platform.cli import main

HIDDEN = ["\x1b[31mred", "x\ny", "\u202eevil", "\x9b2J", "\u2028", "\u2066", "\x00"]
BLANK = ["  ", "\u3000", "\u200d"]
WRONG = [*HIDDEN, *BLANK]
GOOD = ["Größe 10", "\u0645\u06cc\u200c\u062e\u0648\u0627", "क्\u200dष", "👩\u200d💻"]


@pytest.fixture
def kinds(search: Project, root: User) -> dict[str, Callable[[str], Model]]:
    """Functions that create a row with a name, by the kind of the rows."""
    url = "https://hooks.example.com"
    return {
        "key": lambda name: create_key(owner=root, project=search, name=name).key,
        "webhook": lambda name: changes.add(webhooks.make(name, url)[0]),
        "organization": lambda name: changes.add(Organization(name=name)),
        "project": lambda name: changes.add(Project(name=name, organization=search.organization)),
    }


def refuse(act: Callable[[], Any]) -> None:
    with pytest.raises(ValidationError) as error:
        act()
    assert set(error.value.message_dict) == {"name"}


@pytest.mark.stores
def test_rows_have_readable_names_in_any_script(kinds: dict[str, Callable[[str], Model]]) -> None:
    for kind, make in kinds.items():
        stored = make("existing")
        for name in WRONG if kind in ("key", "webhook") else [*WRONG, "a/b"]:
            refuse(partial(make, name))
            refuse(partial(changes.change, stored, name=f"{name}{name}"))
        for name in [*GOOD, "a/b"] if kind in ("key", "webhook") else GOOD:
            assert make(name).pk
            assert changes.change(stored, name=f"{name}{name}").pk


@table("field", ["first_name", "last_name", "username"])
@table("name", HIDDEN)
def test_unreadable_names_of_users_are_refused(alice: User, field: str, name: str) -> None:
    with pytest.raises(ValidationError):
        changes.change(alice, **{field: name})


@pytest.mark.stores
def test_user_names_are_unique_in_any_case(alice: User) -> None:
    for act in (
        lambda: changes.add_user("Alice"),
        lambda: changes.change(changes.add_user("bob"), username="ALICE"),
    ):
        with pytest.raises(ValidationError, match="There is a user alice already"):
            act()
    assert changes.change(alice, username="Alice").username == "Alice"
    twin = User.objects.create_user("aLICE")
    assert changes.change(twin, email="twin@example.com").email == "twin@example.com"


def named(row: Model, name: str) -> None:
    type(row)._default_manager.filter(pk=row.pk).update(name=name)
    row.refresh_from_db()


def test_a_stored_unreadable_name_is_escaped_in_the_terminal(
    search: Project, new_key: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    changes.set_role(User.objects.get(username="alice"), search.organization, Role.MEMBER)
    key = new_key(project=search).key
    named(key, "x\n9 vny_live_forged\x1b[31m\u202e\x9b2J \U000e0041")

    assert main(["key", "list"]) == 0
    table = capsys.readouterr().out
    assert "x\\n9 vny_live_forged\\x1b[31m\\u202e\\x9b2J \\U000e0041" in table
    assert table.count("\n") == 2
    assert main(["key", "list", "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed)[0]["name"] == key.name
    assert main(["key", "pause", str(key.pk)]) == 0
    assert capsys.readouterr().out.rstrip("\n").isprintable()


def test_a_scope_of_an_old_name_can_be_changed(client: Client, root: User, search: Project) -> None:
    named(search, "a/b")
    page = reverse("admin:accounts_project_change", args=[search.pk])
    form = {"name": "a/b", "capture_hours": "2", "capture_redactions": "[]", "is_active": "on"}
    form["max_stored_mb"] = "9"

    assert client.post(page, form).status_code == 302
    search.refresh_from_db()
    assert search.capture_hours == 2
    assert client.post(page, form | {"name": "b/a"}).status_code == 200
    answer = client.patch(
        f"/api/projects/{search.pk}/", {"capture_hours": 3}, content_type="application/json"
    )
    assert answer.status_code == 200
