"""One organisation learns nothing of another, and changes nothing there.

Each identity of an organisation sends every request twice: beside another organisation that has a
row in every table, and without it. All answers are the same, so no list, count, search, export,
page or error depends on a row of another organisation, and a foreign id is answered as an absent
one. The requests come from the URL configuration.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.db.models import Q
from django.test import Client
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
    searches_of_admin,
    writes,
)
from isolation_tenants import Tenant, fill, rolled_back, rows_of

from vinery_accounts.keys.lifecycle import NewKey, create_key
from vinery_accounts.models import ApiKey, Role, Scope, User
from vinery_accounts.models.keys import has_scope
from vinery_accounts.services import changes

pytestmark = pytest.mark.django_db

OURS, THEIRS = "evil", "acme"
OWN_ID, FOREIGN_ID = 5_000_001, 7_000_001
API, CONSOLE, ADMIN, SIGN_IN = "api/", "console/", "admin/", "accounts/"
# Rows of the platform, which belong to no organisation, and tables that stay empty.
WITHOUT_TENANT = {
    *("auth.Permission", "auth.Group", "contenttypes.ContentType", "sessions.Session"),
    *("account.EmailConfirmation", "socialaccount.SocialApp", "socialaccount.SocialToken"),
    *("accounts.ModelWeight", "accounts.RetentionCutoff"),
    *("serving.ServedModel", "serving.EngineStatus", "serving.ModelAlias", "serving.ModelEvent"),
    *("serving.SpeedResult", "serving.ModelJob"),
}
# Each page has a new secret.
SHOWS_NEW_SECRETS = {"/accounts/2fa/totp/activate/", "/api/schema/"}


@dataclass(frozen=True)
class Identity:
    """Who sends the requests, and below which paths."""

    client: Client
    prefixes: tuple[str, ...]


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show times."""
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)


@pytest.fixture
def ours() -> Tenant:
    return fill(OURS, OWN_ID)


def identity_of(name: str, ours: Tenant) -> Identity:
    client = Client(raise_request_exception=False)
    if name in ours.users:
        client.force_login(ours.users[name])
        return Identity(client, (API, CONSOLE, SIGN_IN) if name == "owner" else (API, CONSOLE))
    if name == "staff":
        client.force_login(staff_of(ours))
        return Identity(client, (ADMIN,))
    if name in ours.keys:
        client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {ours.keys[name].secret}"
    return Identity(client, (API,) if name in ours.keys else (API, CONSOLE, ADMIN))


def staff_of(ours: Tenant) -> User:
    """A user of the admin with all permissions, and a role in our organisation alone."""
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.all())
    changes.set_role(staff, ours.organization, Role.ADMIN)
    return staff


def answers(client: Client, probes: Sequence[Probe]) -> list[tuple[int, str]]:
    """Return the answers. What the requests stored is rolled back."""
    with rolled_back():
        return send(client, probes)


def beside_them(client: Client, probes: Sequence[Probe]) -> list[tuple[int, str]]:
    """Return the answers while the other organisation exists. Its rows stay as they are."""
    with rolled_back():
        fill(THEIRS, FOREIGN_ID)
        before = rows_of(FOREIGN_ID)
        found = send(client, probes)
        assert rows_of(FOREIGN_ID) == before
    return found


def send(client: Client, probes: Sequence[Probe]) -> list[tuple[int, str]]:
    """Send the requests. Afterwards the client has the cookies that it had before."""
    cookies = copy.deepcopy(client.cookies)
    found = [answer(client, probe) for probe in probes]
    client.cookies = cookies
    return found


# How many values of a filter each identity tries. Other identities only read and write by ids:
# each sees a part of what one of these sees.
NUM_CHOICES = {"owner": 8, "project admin": 1, "usage": 1}


def probes_of(name: str, identity: Identity) -> Iterator[Probe]:
    found = routes(identity.prefixes)
    yield from reads(found, FOREIGN_ID)
    yield from writes(found, FOREIGN_ID)
    if name in NUM_CHOICES:
        yield from searches(found, FOREIGN_ID, THEIRS, NUM_CHOICES[name])
    if ADMIN in identity.prefixes:
        yield from searches_of_admin(FOREIGN_ID, THEIRS)
    if CONSOLE in identity.prefixes:
        yield from forms(OWN_ID, FOREIGN_ID, THEIRS)


@pytest.mark.parametrize(
    "name", ["owner", "project admin", "member", "manage", "usage", "staff", "anonymous"]
)
def test_no_answer_depends_on_another_organisation(ours: Tenant, name: str) -> None:
    identity = identity_of(name, ours)
    probes = [each for each in probes_of(name, identity) if each.path not in SHOWS_NEW_SECRETS]

    beside, alone = beside_them(identity.client, probes), answers(identity.client, probes)

    assert different(probes, beside, alone) == {}
    assert [probe for probe, (status, _) in zip(probes, beside, strict=True) if status >= 500] == []


@pytest.mark.parametrize("name", ["owner", "project admin", "manage"])
def test_no_row_may_refer_to_another_organisation(ours: Tenant, name: str) -> None:
    identity = identity_of(name, ours)
    probes = list(references(routes((API,)), OWN_ID, FOREIGN_ID, THEIRS))

    # Each alone: rows that are created would be duplicates of each other.
    with rolled_back():
        fill(THEIRS, FOREIGN_ID)
        beside = [answers(identity.client, [probe])[0] for probe in probes]
    alone = [answers(identity.client, [probe])[0] for probe in probes]

    assert different(probes, beside, alone) == {}
    created = {
        probe.path for probe, (status, _) in zip(probes, alone, strict=True) if status == 201
    }
    assert created >= {"/api/keys"}
    if name == "owner":
        assert created >= {"/api/projects", "/api/users", "/api/webhooks"}
    assert max(status for status, _ in beside) < 500


def _is_of_platform(route: Route) -> bool:
    """Whether its rows belong to no organisation."""
    return bool(
        re.search("weight|group|served|modelalias|speed|(api|console)/model", route.template)
    )


def test_the_sweep_notices_what_an_administrator_sees(ours: Tenant) -> None:
    """For each list and each row of the API, and for the pages of the console and the admin."""
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root"))
    found = [
        *_lists_and_rows(),
        *(route for route in routes((CONSOLE,)) if route.has_id),
        *(route for route in routes((ADMIN,)) if route.template.endswith("/change/")),
    ]
    of_tenants = [route for route in found if not _is_of_platform(route)]
    probes = [next(reads([route], FOREIGN_ID)) for route in of_tenants]

    beside, alone = beside_them(client, probes), answers(client, probes)

    assert len(different(probes, beside, alone)) == len(probes) > 40


def test_an_admin_key_sees_every_list_and_row_of_each_organisation(ours: Tenant) -> None:
    client = Client(raise_request_exception=False)
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {admin_key_of(ours).secret}"
    of_tenants = [route for route in _lists_and_rows() if not _is_of_platform(route)]
    probes = [next(reads([route], FOREIGN_ID)) for route in of_tenants]

    beside, alone = beside_them(client, probes), answers(client, probes)

    assert len(different(probes, beside, alone)) == len(probes) > 20


def _lists_and_rows() -> list[Route]:
    found = routes((API,))
    return [route for route in found if {"list", "retrieve"} & set(route.actions.values())]


def admin_key_of(ours: Tenant) -> NewKey:
    """A superuser's admin key in our project."""
    root = User.objects.create_superuser("root")
    project = ours.keys["manage"].key.project
    return create_key(owner=root, project=project, name="platform", scopes=[Scope.ADMIN])


@pytest.mark.parametrize("name", ["owner", "member", "manage", "staff", "admin key"])
def test_no_request_obtains_an_admin_key_or_makes_an_administrator(ours: Tenant, name: str) -> None:
    new = admin_key_of(ours)
    if name == "admin key":
        ours.keys[name] = new
    identity = identity_of(name, ours)
    probes = greedy_probes(ours, new, routes(set(identity.prefixes) - {SIGN_IN}))

    assert stolen_by(identity.client, probes) == []
    assert len(probes) > 100


def test_the_sweep_notices_how_an_administrator_obtains_an_admin_key(ours: Tenant) -> None:
    new = admin_key_of(ours)
    client = Client(raise_request_exception=False)
    client.force_login(new.key.owner)
    found = [route for route in routes((API, CONSOLE)) if "key" in route.template]

    stolen = {probe.path for probe in stolen_by(client, greedy_probes(ours, new, found))}

    rotations = {f"/api/keys/{new.key.pk}/rotate", f"/console/keys/{new.key.pk}/rotate/"}
    assert stolen == {"/api/keys", "/console/keys/new/", *rotations}


def greedy_probes(ours: Tenant, new: NewKey, found: Sequence[Route]) -> list[Probe]:
    """Every change of an admin key, of its owner and of our own rows, and every new row, with the
    scope `admin` or the mark of an administrator."""
    project = ours.keys["manage"].key.project
    key = {"name": "x", "project": project.pk, "scopes": ["admin"]}
    marks = {"is_superuser": True, "is_staff": True}
    # The admin's forms have the id of an owner, the console's the name; without one, it is ours.
    owner = User.objects.get(pk=new.key.owner_id)
    form: dict[str, Any] = {**key, **marks, "username": "x"}
    form |= {"once": "1", "grace": "3600", "action": "rotate", "_selected_action": new.key.pk}
    forms = [form, {**form, "owner": owner.pk}, {**form, "owner": owner.username}]
    # The API refuses a body with an unknown name, so each of these has few.
    bodies: list[dict[str, Any]] = [key, {"scopes": ["admin"]}, {**key, "owner": new.key.owner_id}]
    bodies += [{mark: True} for mark in marks] + [{}]
    of_people = [route for route in found if re.search("key|user", route.template)]
    targets = {"user": new.key.owner_id, "key": new.key.pk}
    return [
        *(replace(probe, body=form) for probe in changes_of(found, OWN_ID) for form in forms),
        *(
            replace(probe, body=body)
            for route in of_people
            for target in {OWN_ID, *(targets[kind] for kind in targets if kind in route.template)}
            for probe in changes_of([route], target)
            for body in (bodies if route.template.startswith(API) else forms)
        ),
    ]


def stolen_by(client: Client, probes: Sequence[Probe]) -> list[Probe]:
    """Return the requests that return an admin key, or store one or an administrator. Each is
    rolled back."""
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


def test_every_table_has_a_row_of_the_other_organisation() -> None:
    fill(THEIRS, FOREIGN_ID)

    empty = {label for label, rows in rows_of(FOREIGN_ID).items() if not rows}
    tables = {model._meta.label for model in apps.get_models()}

    assert empty <= WITHOUT_TENANT
    assert tables >= WITHOUT_TENANT


def different(
    probes: Sequence[Probe], beside: Sequence[Any], alone: Sequence[Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the requests whose answers differ, with both."""
    return {
        f"{probe.method} {probe.path} {probe.body or ''}": (one, other)
        for probe, one, other in zip(probes, beside, alone, strict=True)
        if one != other
    }
