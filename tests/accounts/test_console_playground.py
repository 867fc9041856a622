"""The playground of the console, and the key that its script uses."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pages import page, signed_in
from row_builders import logged

from vinery_accounts.access import changes
from vinery_accounts.access.changes import first_project
from vinery_accounts.base.errors import KeyRefused
from vinery_accounts.keys.lifecycle import create_key, find_key, pause_key, revoke_key
from vinery_accounts.models import ApiKey, Organization, Project, Role, User

pytestmark = pytest.mark.django_db

PAGE = "/console/playground/"


def asked(client: Client, project: Project | None = None) -> Any:
    number = (project or first_project()).pk
    return client.post(f"{PAGE}key/", {"project": number})


def secret_of(client: Client) -> str:
    response = asked(client)
    assert response.status_code == 200, response
    return str(response.json()["secret"])


def test_the_key_is_the_persons_expires_and_is_used_again(member: User) -> None:
    own = create_key(owner=member, name="Playground", project=first_project()).key
    client = signed_in(member)
    secret = secret_of(client)

    key = find_key(secret)
    assert (key.owner, key.project, key.scopes) == (member, first_project(), ["inference"])
    assert key != own
    assert key.expires_at is not None
    assert key.expires_at <= timezone.now() + timedelta(hours=12)
    assert secret_of(client) == secret
    assert logged(target_kind="key", actor="alice") == ["key.create"]


def test_another_browser_and_an_expired_key_renew_the_secret_of_the_same_key(member: User) -> None:
    first, second = signed_in(member), signed_in(member)
    old = secret_of(first)
    key = find_key(old)
    new = secret_of(second)

    assert find_key(new) == key
    with pytest.raises(KeyRefused):
        find_key(old)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now())
    newest = secret_of(second)
    assert newest != new
    assert find_key(newest) == key
    assert logged(target_kind="key", actor="alice") == ["key.create", "key.renew", "key.renew"]


def test_a_paused_key_stays_paused_and_a_revoked_one_is_replaced(member: User) -> None:
    client = signed_in(member)
    key = find_key(secret_of(client))
    pause_key(key)
    refused = asked(client)
    assert refused.status_code == 409
    assert "is paused" in refused.json()["error"]["message"]
    revoke_key(key)
    assert find_key(secret_of(client)) != key


def test_only_members_get_a_key_from_a_form_of_the_console(
    alice: User, member: User, search: Project
) -> None:
    assert asked(signed_in(member), search).status_code == 403
    assert signed_in(member).post(f"{PAGE}key/", {"project": "x"}).status_code == 403
    assert asked(signed_in(User.objects.create_user("stranger"))).status_code == 403
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(member)
    assert asked(careful).status_code == 403
    assert asked(Client()).status_code == 302
    assert signed_in(member).get(f"{PAGE}key/").status_code == 405
    assert not ApiKey.objects.exists()


def test_the_own_projects_come_before_those_of_other_organisations(root: User) -> None:
    own = first_project()
    other = changes.add(Organization(name="another"))
    changes.add(Project(organization=other, name="theirs"))
    assert other.name < own.organization.name
    changes.set_role(root, own.organization, Role.OWNER)

    options = page(signed_in(root), PAGE).partition('id="project"')[2].partition("</select>")[0]
    assert re.findall(r">([^<>]+)</option>", options) == [str(own), "another / theirs"]
