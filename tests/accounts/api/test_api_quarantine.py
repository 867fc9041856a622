"""Requests in quarantine in the management API: their organisation sees them, superusers release
them."""

import pytest
from api_client import Api, Tenant
from row_builders import stored_quarantined

from tests.tables import table
from vinery_accounts.models import AuditEntry, QuarantinedRequest, Role

OURS, THEIRS = "a" * 32, "b" * 32


@pytest.fixture(autouse=True)
def rows(ours: Tenant, theirs: Tenant) -> None:
    for digest, tenant in ((OURS, ours), (THEIRS, theirs)):
        ids = {"organization_id": tenant.organization.pk, "project_id": tenant.one.pk}
        stored_quarantined(digest, request_id=f"req_{digest[0]}", **ids)


def test_superusers_release_requests(viewer: Api, root: Api, ours: Tenant, theirs: Tenant) -> None:
    assert viewer.column("quarantine/", "digest") == [OURS]
    row = viewer.get(f"quarantine/{OURS}/")
    assert (row["digest"], row["request_id"], row["model"]) == (OURS, "req_a", "tiny-chat")
    assert row["project_id"] == ours.one.pk
    assert viewer.error("GET", f"quarantine/{THEIRS}/") == (404, "not_found", None)

    assert sorted(root.column("quarantine/", "digest")) == [OURS, THEIRS]
    ids = {"organization_id": theirs.organization.pk, "project_id": theirs.one.pk}
    for name, value in {**ids, "digest": THEIRS, "request_id": "req_b"}.items():
        assert root.column("quarantine/", "digest", **{name: value}) == [THEIRS]
    assert root.column("quarantine/", "digest", model="other") == []

    stored_quarantined("c" * 32, organization_id=ours.organization.pk, project_id=ours.two.pk)

    for scopes in (["usage"], ["manage"]):
        client = ours.with_key(ours.one, scopes=scopes)
        assert client.column("quarantine/", "digest") == [OURS]
        assert client.error("POST", f"quarantine/{OURS}/release/")[0] == 403
    only_inference = ours.with_key(ours.one, scopes=["inference"])
    assert only_inference.error("GET", "quarantine/")[0] == 403

    released = root.post(f"quarantine/{OURS}/release/", status=200)
    assert released["digest"] == OURS
    assert {row.digest for row in QuarantinedRequest.stored.all()} == {THEIRS, "c" * 32}
    assert AuditEntry.objects.get(action="quarantine.release").actor == "root"
    assert root.error("POST", f"quarantine/{OURS}/release/")[0] == 404
    for method in ("PATCH", "DELETE"):
        assert root.error(method, f"quarantine/{THEIRS}/", {})[0] == 405


@table("role", [Role.OWNER, Role.ADMIN, Role.MEMBER, Role.VIEWER])
def test_no_role_in_an_organisation_releases_a_request(ours: Tenant, role: str) -> None:
    client = ours.as_role(role)

    assert client.error("POST", f"quarantine/{OURS}/release/")[:2] == (403, "forbidden")
    assert client.error("POST", f"quarantine/{THEIRS}/release/")[0] == 404
    assert QuarantinedRequest.stored.count() == 2
