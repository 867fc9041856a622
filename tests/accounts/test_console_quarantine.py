"""The console names the requests that ended two engines, and lets administrators release them."""

from typing import Any

import pytest
from pages import page, signed_in, statuses, text_of
from row_builders import stored_quarantined

from vinery_accounts.access import changes
from vinery_accounts.access.changes import first_project
from vinery_accounts.models import AuditEntry, QuarantinedRequest, Role, User

pytestmark = pytest.mark.django_db

QUARANTINE = "/console/quarantine/"
DIGEST = "a" * 32


def test_an_empty_quarantine_is_explained(root: User, settings: Any) -> None:
    client = signed_in(root)

    text = page(client, QUARANTINE)
    assert "Nothing is in quarantine:" in text
    assert "turned off" not in text
    assert "in quarantine" not in page(client, "/console/")

    settings.VINERY_QUARANTINE_S = 0
    assert "The quarantine is turned off" in page(client, QUARANTINE)


def test_an_administrator_sees_a_request_on_the_overview_and_releases_it(root: User) -> None:
    values = {"username": "bob", "key_id": 7, "key_name": "laptop", "project_name": "search"}
    row = stored_quarantined(DIGEST, **values)
    client = signed_in(root)

    assert "1 request in quarantine" in page(client, "/console/")
    text = page(client, QUARANTINE)
    for word in ("bob", "laptop", "search", "tiny-chat", "req_1", DIGEST):
        assert word in text
    opened, path = f"{QUARANTINE}{row.pk}/", f"{QUARANTINE}{row.pk}/release/"
    assert opened in text
    assert path in page(client, opened)
    assert DIGEST in page(client, path)
    assert QuarantinedRequest.objects.exists()

    assert f"{DIGEST} is released." in text_of(client.post(path, follow=True))

    assert not QuarantinedRequest.stored.exists()
    assert AuditEntry.objects.get(action="quarantine.release").actor == "root"
    assert client.post(path).status_code == 404


def test_an_owner_sees_a_request_and_releases_none(alice: User) -> None:
    own = first_project().organization
    changes.set_role(alice, own, Role.OWNER)
    address = f"{QUARANTINE}{stored_quarantined(DIGEST, organization_id=own.pk).pk}/"
    client = signed_in(alice)

    assert "/release/" not in page(client, address)
    assert "1 request in quarantine" in page(client, "/console/")
    assert statuses(client, f"{address}release/") == {403}
    assert QuarantinedRequest.stored.count() == 1


def test_members_learn_of_their_own_request_and_have_no_page(member: User) -> None:
    stored_quarantined(DIGEST, user_id=member.pk)
    client = signed_in(member)

    text = page(client, "/console/")
    assert "1 request in quarantine" in text
    assert QUARANTINE not in text
    assert statuses(client, QUARANTINE) == {403}
