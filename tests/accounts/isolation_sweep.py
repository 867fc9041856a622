"""The sweep of what one organisation learns of another: identities, requests, and differing
answers."""

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction
from django.db.models import Q
from django.test import Client, override_settings
from django.utils import timezone
from isolation_probes import (
    Probe,
    Route,
    answer,
    changes_of,
    forms,
    reads,
    references,
    routes,
    searches,
)
from isolation_tenants import FOREIGN_ID, OURS, OWN_ID, THEIRS, Tenant, fill, rolled_back, rows_of
from pytest_django import DjangoDbBlocker

from tests.accounts.conftest import PEPPERS
from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import NewKey, create_key
from vinery_accounts.models import ApiKey, Role, Scope, User
from vinery_accounts.models.keys import has_scope

API, CONSOLE, ADMIN, SIGN_IN = "api/", "console/", "admin/", "accounts/"
# Each page has a new secret.
SHOWS_NEW_SECRETS = {"/accounts/2fa/totp/activate/", "/api/schema/"}


@dataclass(frozen=True)
class Identity:
    """The sender of requests, and the prefixes of paths."""

    client: Client
    prefixes: tuple[str, ...]


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock: pages show times."""
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)


@pytest.fixture(scope="module")
def ours(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Tenant]:
    """Our organisation, stored once. Changes by a test are undone."""
    with django_db_blocker.unblock(), transaction.atomic():
        with override_settings(VINERY_KEY_PEPPERS=PEPPERS):
            filled = fill(OURS, OWN_ID)
        yield filled
        transaction.set_rollback(True)


def identity_of(name: str, ours: Tenant, admin_key: NewKey | None = None) -> Identity:
    client = Client(raise_request_exception=False)
    if name in ours.users:
        client.force_login(ours.users[name])
        return Identity(client, (API, CONSOLE, SIGN_IN) if name == "owner" else (API, CONSOLE))
    if name == "staff":
        client.force_login(_staff_of(ours))
        return Identity(client, (ADMIN,))
    if name == "root":
        client.force_login(User.objects.create_superuser("root"))
    if (key := ours.keys.get(name) or admin_key) is not None:
        client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {key.secret}"
    return Identity(client, (API, CONSOLE, ADMIN) if key is None else (API,))


def _staff_of(ours: Tenant) -> User:
    """A user of the admin with all permissions, and a role in our organisation alone."""
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.all())
    changes.set_role(staff, ours.organization, Role.ADMIN)
    return staff


def admin_key_of(ours: Tenant) -> NewKey:
    """An administrator's admin key in our project."""
    chief = User.objects.create_superuser("chief")
    project = ours.keys["manage"].key.project
    return create_key(owner=chief, project=project, name="platform", scopes=[Scope.ADMIN])


# -- Answers beside the other organisation, and without it


def probes_of(identity: Identity, num_ids: int = 1, max_choices: int = 0) -> list[Probe]:
    """Every page, list, filter by an id or a name, and row, and every change of a foreign row; with
    more ids than one also further rows, and with choices also the other filters."""
    found = routes(identity.prefixes)
    probes = [
        *reads(found, FOREIGN_ID, num_ids),
        *changes_of((route for route in found if route.has_id), FOREIGN_ID),
        *searches(found, FOREIGN_ID, THEIRS, max_choices),
        *(forms(OWN_ID, FOREIGN_ID, THEIRS) if CONSOLE in identity.prefixes else ()),
    ]
    return [each for each in probes if each.path not in SHOWS_NEW_SECRETS]


def lists_and_rows() -> list[Route]:
    """Lists and rows of the API."""
    return [each for each in routes((API,)) if {"list", "retrieve"} & set(each.actions.values())]


def reads_of_tenants(found: Iterable[Route]) -> list[Probe]:
    """A GET of each page whose rows belong to an organisation and are in the database."""
    others = "weight|currency|group|host|served|modelalias|speed|(api|console)/model|console/live"
    of_tenants = (each for each in found if not re.search(others, each.template))
    return [next(reads([each], FOREIGN_ID)) for each in of_tenants]


def differences(client: Client, probes: Sequence[Probe]) -> dict[str, Any]:
    """Return the requests whose answers differ beside the other organisation, with both answers.

    Rows of the other organisation stay as they are, and no request fails.
    """
    with _beside_them():
        beside = send(client, probes)
    with rolled_back():
        alone = send(client, probes)
    return different(probes, beside, alone)


def differences_of_references(client: Client) -> tuple[dict[str, Any], set[str]]:
    """The differences for new and changed rows that refer to foreign rows, each row alone: created
    rows would be duplicates of each other. Return also the paths where rows were created."""
    probes = list(references(routes((API,)), OWN_ID, FOREIGN_ID, THEIRS))
    with _beside_them():
        beside = [send_alone(client, probe) for probe in probes]
    alone = [send_alone(client, probe) for probe in probes]
    created = {probe.path for probe, each in zip(probes, alone, strict=True) if each[0] == 201}
    return different(probes, beside, alone), created


@contextmanager
def _beside_them() -> Iterator[None]:
    with rolled_back():
        fill(THEIRS, FOREIGN_ID)
        before = rows_of(FOREIGN_ID)
        yield
        assert rows_of(FOREIGN_ID) == before


def send(client: Client, probes: Sequence[Probe]) -> list[tuple[int, str]]:
    """Send the requests. Afterwards the client has the cookies that it had before."""
    cookies = copy.deepcopy(client.cookies)
    found = [answer(client, probe) for probe in probes]
    client.cookies = cookies
    return found


def send_alone(client: Client, probe: Probe) -> tuple[int, str]:
    with rolled_back():
        return send(client, [probe])[0]


def different(
    probes: Sequence[Probe], beside: Sequence[tuple[int, str]], alone: Sequence[tuple[int, str]]
) -> dict[str, Any]:
    """Return the requests with different answers, and both answers. No request has failed."""
    found = list(zip(probes, beside, alone, strict=True))
    assert [probe for probe, (status, _), _ in found if status >= 500] == []
    return {
        f"{probe.method} {probe.path} {probe.body or ''}": (one, other)
        for probe, one, other in found
        if one != other
    }


# -- Requests for more than belongs to their sender


def greedy_probes(
    ours: Tenant, new: NewKey, found: Sequence[Route], *, has_all: bool = False
) -> list[Probe]:
    """Every change of an admin key, of its owner and of our own rows, and every new row, with the
    scope `admin` or the mark of an administrator: of keys and users, or of all rows."""
    project = ours.keys["manage"].key.project
    key = {"name": "x", "project": project.pk, "scopes": ["admin"]}
    marks = {"is_superuser": True, "is_staff": True}
    # The admin's forms have the id of an owner, the console's the name; without an owner, the key
    # is ours.
    owner = User.objects.get(pk=new.key.owner_id)
    form: dict[str, Any] = {**key, **marks, "username": "x"}
    form |= {"grace": "3600", "action": "rotate", "_selected_action": new.key.pk}
    forms = [form, {**form, "owner": owner.pk}, {**form, "owner": owner.username}]
    # The API refuses a body with an unknown name, so each of these has few.
    bodies: list[dict[str, Any]] = [key, {"scopes": ["admin"]}, {**key, "owner": new.key.owner_id}]
    bodies += [{mark: True} for mark in marks] + [{}]
    of_people = [route for route in found if re.search("key|user", route.template)]
    targets = {"user": new.key.owner_id, "key": new.key.pk}
    of_all = changes_of(found, OWN_ID) if has_all else ()
    return [
        *(replace(probe, body=form) for probe in of_all for form in forms),
        *(
            replace(probe, body=body)
            for route in of_people
            for target in {OWN_ID, *(targets[kind] for kind in targets if kind in route.template)}
            for probe in changes_of([route], target)
            for body in (bodies if route.template.startswith(API) else forms)
        ),
    ]


def stolen_by(client: Client, probes: Sequence[Probe]) -> list[Probe]:
    """Return the requests that return or store an admin key, or store an administrator. Each
    request is rolled back."""
    keys = ApiKey.objects.filter(has_scope(Scope.ADMIN))
    administrators = User.objects.filter(Q(is_superuser=True) | Q(is_staff=True))
    num_before = keys.count(), administrators.count()
    stolen, cookies = [], copy.deepcopy(client.cookies)
    for probe in probes:
        with rolled_back():
            text = answer(client, probe, keeps_new=True)[1]
            has_more = keys.count() > num_before[0] or administrators.count() > num_before[1]
        if has_more or re.search("vny_admin_[0-9A-Za-z]{38}", text):
            stolen.append(probe)
        client.cookies = copy.deepcopy(cookies)
    return stolen
