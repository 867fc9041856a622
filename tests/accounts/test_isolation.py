"""One organisation learns nothing of another, and changes nothing there.

Each identity of an organisation sends every request twice: beside another organisation that has a
row in every table, and without it. All answers are the same, so no list, count, search, export,
page or error depends on a row of another organisation, and a foreign id is answered as an absent
one. The requests come from the URL configuration. `nightly_isolation.py` has more identities, rows
and filters.
"""

import re

import pytest
from django.apps import apps
from isolation_probes import changes_of, reads, routes
from isolation_sweep import (
    ADMIN,
    API,
    CONSOLE,
    SIGN_IN,
    admin_key_of,
    differences,
    differences_of_references,
    greedy_probes,
    identity_of,
    ours,
    probes_of,
    send,
    stolen_by,
    stopped_clock,
)
from isolation_tenants import FOREIGN_ID, THEIRS, Tenant, fill, rolled_back, rows_of

pytestmark = pytest.mark.django_db
__all__ = ("ours", "stopped_clock")

# Rows of the platform, which belong to no organisation, and tables that stay empty.
WITHOUT_TENANT = {
    *("auth.Permission", "auth.Group", "contenttypes.ContentType", "sessions.Session"),
    *("account.EmailConfirmation", "socialaccount.SocialApp", "socialaccount.SocialToken"),
    *("accounts.ModelWeight", "accounts.RetentionCutoff"),
    *("serving.ServedModel", "serving.EngineStatus", "serving.ModelAlias", "serving.ModelEvent"),
    *("serving.SpeedResult", "serving.ModelJob"),
}
OF_PLATFORM = re.compile("weight|group|served|modelalias|speed|(api|console)/model")


@pytest.mark.parametrize("name", ["owner", "manage", "staff"])
def test_no_answer_depends_on_another_organisation(ours: Tenant, name: str) -> None:
    identity = identity_of(name, ours)
    probes = probes_of(identity)

    assert differences(identity.client, probes) == {}
    assert 200 in {status for status, _ in send(identity.client, probes[:9])}


def test_a_visitor_without_credentials_is_answered_nothing(ours: Tenant) -> None:
    identity = identity_of("anonymous", ours)
    found = [each for each in routes(identity.prefixes) if each.path() != "/api/schema/"]
    probes = [*reads(found, ours.organization.pk), *changes_of(found, ours.organization.pk)]

    with rolled_back():
        answers = send(identity.client, probes)

    assert {status for status, _ in answers} == {302, 401}  # to the sign-in, or refused
    assert len(probes) > 200


def test_no_row_may_refer_to_another_organisation(ours: Tenant) -> None:
    found, created = differences_of_references(identity_of("owner", ours).client)

    assert found == {}
    assert created >= {"/api/keys", "/api/projects", "/api/users", "/api/webhooks"}


def test_the_sweep_notices_what_an_administrator_sees(ours: Tenant) -> None:
    """For each list and each row of the API, and for the pages of the console and the admin."""
    found = [
        *(each for each in routes((API,)) if {"list", "retrieve"} & set(each.actions.values())),
        *(each for each in routes((CONSOLE,)) if each.has_id),
        *(each for each in routes((ADMIN,)) if each.template.endswith("/change/")),
    ]
    of_tenants = [route for route in found if not OF_PLATFORM.search(route.template)]
    probes = [next(reads([route], FOREIGN_ID)) for route in of_tenants]

    assert len(differences(identity_of("root", ours).client, probes)) == len(probes) > 40


@pytest.mark.parametrize("name", ["owner", "staff"])
def test_no_request_obtains_an_admin_key_or_makes_an_administrator(ours: Tenant, name: str) -> None:
    new, identity = admin_key_of(ours), identity_of(name, ours)
    probes = greedy_probes(ours, new, routes(set(identity.prefixes) - {SIGN_IN}))

    assert stolen_by(identity.client, probes) == []
    assert len(probes) > 50


def test_the_sweep_notices_how_an_administrator_obtains_an_admin_key(ours: Tenant) -> None:
    new = admin_key_of(ours)
    client = identity_of("root", ours).client
    client.force_login(new.key.owner)
    found = [route for route in routes((API, CONSOLE)) if "key" in route.template]

    stolen = {probe.path for probe in stolen_by(client, greedy_probes(ours, new, found))}

    rotations = {f"/api/keys/{new.key.pk}/rotate", f"/console/keys/{new.key.pk}/rotate/"}
    assert stolen == {"/api/keys", "/console/keys/new/", *rotations}


@pytest.mark.stores
def test_every_table_has_a_row_of_the_other_organisation() -> None:
    fill(THEIRS, FOREIGN_ID)

    empty = {label for label, rows in rows_of(FOREIGN_ID).items() if not rows}
    tables = {model._meta.label for model in apps.get_models()}

    assert empty <= WITHOUT_TENANT
    assert tables >= WITHOUT_TENANT
