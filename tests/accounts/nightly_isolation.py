"""The sweep of `test_isolation.py` for all identities, rows, filters and greedy requests."""

import isolation_sweep as sweep
import pytest
from isolation_probes import routes, searches_of_admin
from isolation_sweep import ours, stopped_clock
from isolation_tenants import FOREIGN_ID, NUM_IDS, THEIRS, Tenant

pytestmark = pytest.mark.django_db
__all__ = ("ours", "stopped_clock")

# How many values of a filter each identity tries. Other identities only try filters with ids and
# names: each sees a part of what these see.
NUM_CHOICES = {"owner": 8, "project admin": 1, "usage": 1}


@pytest.mark.parametrize(
    "name", ["owner", "project admin", "member", "manage", "usage", "staff", "anonymous"]
)
def test_no_answer_depends_on_another_organisation(ours: Tenant, name: str) -> None:
    identity = sweep.identity_of(name, ours)
    probes = sweep.probes_of(identity, NUM_IDS, NUM_CHOICES.get(name, 0))
    if sweep.ADMIN in identity.prefixes:
        probes += searches_of_admin(FOREIGN_ID, THEIRS, lookups=("", "__id__exact"))

    assert sweep.differences(identity.client, probes) == {}


@pytest.mark.parametrize("name", ["owner", "project admin", "manage"])
def test_no_row_may_refer_to_another_organisation(ours: Tenant, name: str) -> None:
    found, created = sweep.differences_of_references(sweep.identity_of(name, ours).client)

    assert found == {}
    assert created >= {"/api/keys"}


def test_an_admin_key_sees_every_list_and_row_of_each_organisation(ours: Tenant) -> None:
    client = sweep.identity_of("admin key", ours, sweep.admin_key_of(ours)).client
    probes = sweep.reads_of_tenants(sweep.lists_and_rows())

    assert len(sweep.differences(client, probes)) == len(probes) > 20


@pytest.mark.parametrize("name", ["owner", "member", "manage", "staff", "admin key"])
def test_no_request_obtains_an_admin_key_or_makes_an_administrator(ours: Tenant, name: str) -> None:
    new = sweep.admin_key_of(ours)
    identity = sweep.identity_of(name, ours, new if name == "admin key" else None)
    found = routes(set(identity.prefixes) - {sweep.SIGN_IN})
    probes = sweep.greedy_probes(ours, new, found, has_all=True)

    assert sweep.stolen_by(identity.client, probes) == []
    assert len(probes) > 100
