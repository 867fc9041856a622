"""Invitations and links for new users over the management API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from api_client import Api, Tenant, with_key
from django.utils import timezone
from row_builders import stored_alert

from vinery_accounts.alerts.webhooks import make as make_webhook
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import (
    Delivery,
    DeliveryState,
    Invitation,
    Membership,
    Project,
    Role,
    Scope,
    User,
)
from vinery_accounts.services import changes

MakeUser = Callable[..., User]
AsUser = Callable[[User], Api]


def offer(ours: Tenant, username: str = "carol", **more: Any) -> dict[str, Any]:
    return {"username": username, "organization": ours.organization.pk, "role": "member"} | more


def test_an_owner_invites_and_the_user_accepts(
    owner: Api, ours: Tenant, make_user: MakeUser, as_user: AsUser
) -> None:
    carol = as_user(make_user("carol"))
    created = owner.post("invitations/", offer(ours))
    assert created["invited_by"] == "owner"
    assert owner.column("invitations/", "username") == ["carol"]
    assert carol.column("invitations/", "organization_name") == ["ours"]

    role = carol.post(f"invitations/{created['id']}/accept/", status=200)

    assert (role["username"], role["role"]) == ("carol", "member")
    assert Membership.objects.get(user__username="carol").organization == ours.organization
    assert owner.column("invitations/") == []


def test_the_response_is_the_same_for_a_name_that_no_user_has(
    owner: Api, ours: Tenant, make_user: MakeUser
) -> None:
    make_user("carol")

    known, unknown = (owner.post("invitations/", offer(ours, name)) for name in ("carol", "nemo"))

    same = known.keys() - {"id", "username", "created_at", "expires_at"}
    assert {name: known[name] for name in same} == {name: unknown[name] for name in same}


@pytest.mark.parametrize("role", [Role.ADMIN, Role.MEMBER, Role.VIEWER])
def test_only_owners_invite_and_see_invitations(
    ours: Tenant, owner: Api, as_role: Callable[..., Api], role: str
) -> None:
    created, other = owner.post("invitations/", offer(ours)), as_role(role)

    assert other.error("POST", "invitations/", offer(ours))[0] == 403
    assert other.column("invitations/") == []
    assert other.error("DELETE", f"invitations/{created['id']}/")[0] == 404


def test_an_owner_of_a_project_invites_to_that_project_alone(
    ours: Tenant, as_role: Callable[..., Api]
) -> None:
    leader = as_role(Role.OWNER, ours.one)
    to_one = {"username": "carol", "project": ours.one.pk}

    assert leader.post("invitations/", to_one)["project_name"] == ours.one.name
    assert leader.error("POST", "invitations/", offer(ours))[0] == 403
    assert leader.error("POST", "invitations/", {"username": "x", "project": ours.two.pk})[0] == 400


def test_a_new_invitation_replaces_the_one_of_the_same_name(owner: Api, ours: Tenant) -> None:
    owner.post("invitations/", offer(ours))
    owner.post("invitations/", offer(ours, role="viewer"))
    owner.post("invitations/", {"username": "carol", "project": ours.one.pk})

    assert owner.column("invitations/", "role") == ["viewer", "member"]


def test_an_organisation_has_a_limited_number_of_open_invitations(
    owner: Api, ours: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_INVITATIONS", 2)
    for name in ("one", "two"):
        owner.post("invitations/", offer(ours, name))
    assert owner.error("POST", "invitations/", offer(ours, "three"))[2] == "username"

    Invitation.objects.filter(username="one").update(expires_at=timezone.now())

    owner.post("invitations/", offer(ours, "three"))


def test_an_invitation_names_one_scope(owner: Api, ours: Tenant) -> None:
    both = offer(ours, project=ours.one.pk)

    for body in (both, {"username": "carol"}):
        assert owner.error("POST", "invitations/", body) == (400, "invalid_value", "project")


def test_the_user_declines_and_no_other_user_accepts(
    owner: Api, root: Api, ours: Tenant, make_user: MakeUser, as_user: AsUser
) -> None:
    path = f"invitations/{owner.post('invitations/', offer(ours))['id']}/"
    for other in (owner, root):
        assert other.error("POST", f"{path}accept/")[0] == 403

    as_user(make_user("carol")).delete(path)

    assert not Invitation.objects.exists()
    assert not Membership.objects.filter(user__username="carol").exists()


def test_a_key_accepts_no_invitation_and_invites_to_its_project_alone(
    ours: Tenant, make_user: MakeUser
) -> None:
    carol = make_user("carol", Role.OWNER)
    key = with_key(create_key(owner=carol, project=ours.one, scopes=[Scope.MANAGE], name="robot"))
    changes.invite("carol", ours.one, Role.MEMBER)

    to_own = key.get("invitations/")["data"]
    assert [each["username"] for each in to_own] == ["carol"]
    assert key.error("POST", f"invitations/{to_own[0]['id']}/accept/")[0] == 403
    key.post("invitations/", {"username": "dave", "project": ours.one.pk})
    assert key.error("POST", "invitations/", {"username": "dave", "project": ours.two.pk})[0] == 400


def test_a_removed_project_takes_its_invitations_with_it(owner: Api, ours: Tenant) -> None:
    owner.post("invitations/", {"username": "carol", "project": ours.one.pk})

    owner.delete(f"projects/{ours.one.pk}/")

    assert not Project.objects.filter(pk=ours.one.pk).exists()
    assert not Invitation.objects.exists()


# -- Links for new users


def test_a_link_is_for_new_people_and_needs_a_session(
    owner: Api, admin: Api, ours: Tenant, make_user: MakeUser
) -> None:
    new = owner.post("users/", {"username": "carol", "organization": ours.organization.pk})
    path = f"users/{new['id']}/link/"

    link = owner.post(path, status=200)
    assert link["path"].startswith("/accounts/password/reset/key/")
    assert admin.error("POST", path)[0] == 403
    key = create_key(
        owner=make_user("other", Role.OWNER), project=ours.one, scopes=[Scope.MANAGE], name="robot"
    )
    assert with_key(key).error("POST", path)[0] in (403, 404)

    User.objects.filter(pk=new["id"]).update(last_login=timezone.now())
    assert owner.error("POST", path)[0] == 409


def test_a_service_account_gets_no_link(owner: Api, ours: Tenant) -> None:
    body = {"username": "robot", "is_service": True, "project": ours.one.pk}
    new = owner.post("users/", body)

    assert owner.error("POST", f"users/{new['id']}/link/")[0] == 409


# -- What owners see of roles and webhooks


def test_second_factors_are_shown_to_those_who_lead(
    owner: Api, admin: Api, member: Api, viewer: Api, ours: Tenant, make_user: MakeUser
) -> None:
    carol = make_user("carol", Role.MEMBER)
    Authenticator.objects.create(user=carol, type=Authenticator.Type.TOTP, data={})

    def factor(api: Api) -> list[Any]:
        return api.column("memberships/", "has_second_factor", search="car")

    assert [factor(api) for api in (owner, admin, member, viewer)] == [
        [True],
        [True],
        [None],
        [None],
    ]


def test_failed_messages_of_a_webhook_are_sent_again(owner: Api, ours: Tenant) -> None:
    webhook, _ = make_webhook("pager", "https://hooks.ours.example/", ours.organization)
    changes.add(webhook)
    for number, state in enumerate(DeliveryState):
        alert = stored_alert(limit_id=number, organization_id=ours.organization.pk)
        Delivery.objects.create(alert=alert, webhook=webhook, state=state, due_at=timezone.now())

    assert owner.post(f"webhooks/{webhook.pk}/retry/", status=200) == {"num_messages": 1}
    assert owner.post(f"webhooks/{webhook.pk}/retry/", status=200) == {"num_messages": 0}
    states = Delivery.objects.order_by("alert__limit_id").values_list("state", flat=True)
    assert list(states) == ["pending", "sent", "pending"]
