"""One organisation learns nothing of another, and changes nothing there.

Each identity of an organisation sends every request twice: beside another organisation with a row
in every table, and without. All answers are the same, so no list, count, search, export, page or
error depends on a row of another organisation, and a foreign id is answered as an absent one. The
requests come from the URL configuration. `nightly_isolation.py` has more identities, rows and
filters.
"""

from dataclasses import replace

import isolation_sweep as sweep
import pytest
from django.apps import apps
from isolation_probes import changes_of, reads, routes
from isolation_sweep import ours, stopped_clock
from isolation_tenants import FOREIGN_ID, THEIRS, Tenant, fill, rolled_back, rows_of

pytestmark = pytest.mark.django_db
__all__ = ("ours", "stopped_clock")

# Rows of the platform, which belong to no organisation, and tables that stay empty.
WITHOUT_TENANT = {
    *("auth.Permission", "auth.Group", "contenttypes.ContentType", "sessions.Session"),
    *("account.EmailConfirmation", "socialaccount.SocialApp", "socialaccount.SocialToken"),
    *("accounts.Currency", "accounts.ModelWeight", "accounts.RetentionCutoff"),
    *("serving.ServedModel", "serving.EngineStatus", "serving.ModelAlias", "serving.ModelEvent"),
    *("serving.SpeedResult", "serving.ModelJob", "serving.Placement"),
}


@pytest.mark.parametrize("name", ["owner", "manage", "staff"])
def test_no_answer_depends_on_another_organisation(ours: Tenant, name: str) -> None:
    identity = sweep.identity_of(name, ours)
    probes = sweep.probes_of(identity)

    assert sweep.differences(identity.client, probes) == {}
    assert 200 in {status for status, _ in sweep.send(identity.client, probes[:9])}


def test_an_admin_of_a_project_reads_nothing_of_another_organisation(ours: Tenant) -> None:
    identity = replace(sweep.identity_of("project admin", ours), prefixes=(sweep.API,))
    probes = [each for each in sweep.probes_of(identity) if each.method == "GET"]

    assert sweep.differences(identity.client, probes) == {}
    assert len(probes) > 100


def test_a_visitor_without_credentials_is_answered_nothing(ours: Tenant) -> None:
    identity = sweep.identity_of("anonymous", ours)
    found = [each for each in routes(identity.prefixes) if each.path() != "/api/schema/"]
    probes = [*reads(found, ours.organization.pk), *changes_of(found, ours.organization.pk)]

    with rolled_back():
        answers = sweep.send(identity.client, probes)

    assert {status for status, _ in answers} == {302, 401}  # to the sign-in, or refused
    assert len(probes) > 200


def test_no_row_may_refer_to_another_organisation(ours: Tenant) -> None:
    found, created = sweep.differences_of_references(sweep.identity_of("owner", ours).client)

    assert found == {}
    assert created >= {"/api/keys", "/api/projects", "/api/users", "/api/webhooks"}


def test_the_sweep_notices_what_an_administrator_sees(ours: Tenant) -> None:
    """For each list and each row of the API, and for the pages of the console and the admin."""
    found = [
        *sweep.lists_and_rows(),
        *(each for each in routes((sweep.CONSOLE,)) if each.has_id),
        *(each for each in routes((sweep.ADMIN,)) if each.template.endswith("/change/")),
    ]
    probes, root = sweep.reads_of_tenants(found), sweep.identity_of("root", ours)

    assert len(sweep.differences(root.client, probes)) == len(probes) > 40


@pytest.mark.parametrize("name", ["owner", "staff"])
def test_no_request_obtains_an_admin_key_or_makes_an_administrator(ours: Tenant, name: str) -> None:
    new, identity = sweep.admin_key_of(ours), sweep.identity_of(name, ours)
    probes = sweep.greedy_probes(ours, new, routes(set(identity.prefixes) - {sweep.SIGN_IN}))

    assert sweep.stolen_by(identity.client, probes) == []
    assert len(probes) > 50


@pytest.mark.stores
def test_every_table_has_a_row_of_the_other_organisation() -> None:
    fill(THEIRS, FOREIGN_ID)

    empty = {label for label, rows in rows_of(FOREIGN_ID).items() if not rows}
    tables = {model._meta.label for model in apps.get_models()}

    assert empty <= WITHOUT_TENANT
    assert tables >= WITHOUT_TENANT
