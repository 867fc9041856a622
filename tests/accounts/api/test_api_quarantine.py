"""Requests in quarantine in the management API: the organisation sees them, superusers release
them."""

import pytest
from api_client import Api, Tenant
from row_builders import stored_quarantined

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

    assert sorted(root.column("quarantine/", "digest")) == [OURS, THEIRS]
    ids = {"organization_id": theirs.organization.pk, "project_id": theirs.one.pk}
    for name, value in {**ids, "digest": THEIRS, "request_id": "req_b"}.items():
        assert root.column("quarantine/", "digest", **{name: value}) == [THEIRS]
    assert root.column("quarantine/", "digest", model="other") == []

    keys = (ours.with_key(ours.one, scopes=[scope]) for scope in ("usage", "manage"))
    for client in (*keys, ours.as_role(Role.OWNER)):
        assert client.column("quarantine/", "digest") == [OURS]
        assert client.error("POST", f"quarantine/{OURS}/release/")[0] == 403

    released = root.post(f"quarantine/{OURS}/release/", status=200)
    assert released["digest"] == OURS
    assert {row.digest for row in QuarantinedRequest.stored.all()} == {THEIRS}
    assert AuditEntry.objects.get(action="quarantine.release").actor == "root"
    assert root.error("POST", f"quarantine/{OURS}/release/")[0] == 404
    for method in ("PATCH", "DELETE"):
        assert root.error(method, f"quarantine/{THEIRS}/", {})[0] == 405
