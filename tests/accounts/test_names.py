"""Unreadable names are refused at every entry point. Stored ones are escaped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from vinery.cli import main
from vinery_accounts.alerts import webhooks
from vinery_accounts.keys.lifecycle import NewKey, create_key, rotate_key
from vinery_accounts.models import ApiKey, Organization, Project, Role, User
from vinery_accounts.services import changes

HIDDEN = ["\x1b[31mred", "x\ny", "\u202eevil", "\x9b2J", "\u2028", "\u2066", "\x00"]
BLANK = ["  ", "\u3000", "\u200d"]
WRONG = [*HIDDEN, *BLANK]
GOOD = ["Größe 10", "\u0645\u06cc\u200c\u062e\u0648\u0627", "क्\u200dष", "👩\u200d💻"]


@dataclass
class Kind:
    """A kind of rows with a name, and an existing row."""

    word: str
    make: Callable[[str], Model]

    def __post_init__(self) -> None:
        self.existing = self.make("existing")

    def acts(self, name: str) -> Iterator[Callable[[], Model]]:
        """Yield functions that create and rename a row with this name."""
        yield lambda: self.make(name)
        yield lambda: changes.change(self.existing, name=f"{name}{name}")


@pytest.fixture(params=["key", "webhook", "organization", "project"])
def kind(request: pytest.FixtureRequest, search: Project, root: User) -> Kind:
    url = "https://hooks.example.com"
    kinds: dict[str, Callable[[str], Model]] = {
        "key": lambda name: create_key(owner=root, project=search, name=name).key,
        "webhook": lambda name: changes.add(webhooks.make(name, url)[0]),
        "organization": lambda name: changes.add(Organization(name=name)),
        "project": lambda name: changes.add(Project(name=name, organization=search.organization)),
    }
    return Kind(request.param, kinds[request.param])


def refuse(kind: Kind, name: str) -> None:
    for act in kind.acts(name):
        with pytest.raises(ValidationError) as error:
            act()
        assert set(error.value.message_dict) == {"name"}


@pytest.mark.parametrize("name", WRONG)
def test_unreadable_names_are_refused(kind: Kind, name: str) -> None:
    refuse(kind, name)


@pytest.mark.parametrize("name", GOOD)
def test_names_in_any_script_are_accepted(kind: Kind, name: str) -> None:
    for act in kind.acts(name):
        assert act().pk


def test_names_of_organisations_and_projects_have_no_slash(kind: Kind) -> None:
    if kind.word in ("organization", "project"):
        refuse(kind, "a/b")
    else:
        assert kind.make("a/b").pk


@pytest.mark.parametrize("field", ["first_name", "last_name", "username"])
@pytest.mark.parametrize("name", HIDDEN)
def test_unreadable_names_of_users_are_refused(alice: User, field: str, name: str) -> None:
    with pytest.raises(ValidationError):
        changes.change(alice, **{field: name})


@pytest.mark.parametrize("name", HIDDEN[:3])
def test_an_unreadable_name_is_reported_by_api_console_admin_and_command(
    client: Client,
    root: User,
    search: Project,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = "has an invisible character"
    key: dict[str, Any] = {"name": name, "project": search.pk, "scopes": ["usage"]}

    answer = client.post("/api/keys/", key, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "name")
    assert result in answer.json()["error"]["message"]
    for page, form in (
        ("/console/keys/new/", key | {"once": "x" * 16}),
        (reverse("admin:accounts_apikey_add"), key | {"owner": root.pk}),
    ):
        answer = client.post(page, form)
        assert answer.status_code == 200
        assert result in answer.content.decode()
    assert main(["key", "create", "--name", name, "--project", "search"]) == 1
    shown = capsys.readouterr()
    assert result in shown.err
    assert name not in shown.err
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("command", ["organization", "project"])
@pytest.mark.parametrize("name", ["  ", "a/b"])
def test_a_command_creates_no_scope_with_an_invalid_name(
    db: None, command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "create", name]) == 1

    assert capsys.readouterr().err.count("\n") == 1
    assert not Project.objects.filter(name=name).exists()
    assert not Organization.objects.filter(name=name).exists()


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


# -- Names stored by earlier releases


def named(row: Model, name: str) -> None:
    type(row)._default_manager.filter(pk=row.pk).update(name=name)
    row.refresh_from_db()


def test_a_stored_unreadable_name_is_escaped_in_the_terminal(
    search: Project, new_key: Callable[..., NewKey], capsys: pytest.CaptureFixture[str]
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


@pytest.mark.parametrize(("before", "after"), [("x\ny", "xy"), ("  ", "unnamed"), (" a ", " a ")])
def test_a_key_with_a_stored_unreadable_name_can_be_rotated(
    search: Project, new_key: Callable[..., NewKey], before: str, after: str
) -> None:
    key = new_key(project=search).key
    named(key, before)

    assert rotate_key(key, grace=timedelta(0)).key.name == after


def test_a_scope_with_a_stored_unreadable_name_can_be_changed(
    client: Client, root: User, search: Project
) -> None:
    named(search, "a/b")
    page = reverse("admin:accounts_project_change", args=[search.pk])
    form = {"name": "a/b", "capture_hours": "2", "capture_redactions": "[]", "is_active": "on"}

    assert client.post(page, form).status_code == 302
    search.refresh_from_db()
    assert search.capture_hours == 2
    assert client.post(page, form | {"name": "b/a"}).status_code == 200
    answer = client.patch(
        f"/api/projects/{search.pk}/", {"capture_hours": 3}, content_type="application/json"
    )
    assert answer.status_code == 200
