"""Invitations and links for new users over the management API."""

from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from api_client import Api, Tenant, as_user, with_key
from django.core.exceptions import ValidationError
from django.utils import timezone

from vinery_accounts.access import changes
from vinery_accounts.keys.lifecycle import create_key
from vinery_accounts.models import Invitation, Membership, Role, User


def offer(ours: Tenant, username: str = "carol", **more: Any) -> dict[str, Any]:
    return {"username": username, "organization": ours.organization.pk, "role": "member"} | more


def managing(ours: Tenant, owner: User) -> Api:
    """A client with a managing key of the first project."""
    return with_key(create_key(owner=owner, project=ours.one, scopes=["manage"], name="robot"))


def test_an_owner_or_a_managing_key_of_a_project_invites_to_it_alone(ours: Tenant) -> None:
    leader, carol = ours.as_role(Role.OWNER, ours.one), ours.user("carol", Role.OWNER)
    to_one, to_two = ({"username": "dave", "project": each.pk} for each in (ours.one, ours.two))
    key = managing(ours, carol)
    changes.invite("carol", ours.one, Role.MEMBER)

    for api in (leader, key):
        assert api.post("invitations/", to_one)["project_name"] == ours.one.name
        assert api.error("POST", "invitations/", to_two)[0] == 400
    assert leader.error("POST", "invitations/", offer(ours))[0] == 403
    seen = {each["username"]: each["id"] for each in key.get("invitations/")["data"]}
    assert seen.keys() == {"carol", "dave"}
    assert key.error("POST", f"invitations/{seen['carol']}/accept/")[0] == 403


def test_an_organisation_has_a_limited_number_of_open_invitations(
    owner: Api, ours: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_INVITATIONS", 2)
    for name in ("one", "two"):
        owner.post("invitations/", offer(ours, name))
    assert owner.error("POST", "invitations/", offer(ours, "three"))[2] == "username"

    Invitation.objects.filter(username="one").update(expires_at=timezone.now())

    owner.post("invitations/", offer(ours, "three"))
    # An invitation names one scope.
    for body in (offer(ours, project=ours.one.pk), {"username": "carol"}):
        assert owner.error("POST", "invitations/", body) == (400, "invalid_value", "project")


def test_invitations_are_declined_replaced_accepted(owner: Api, root: Api, ours: Tenant) -> None:
    path = f"invitations/{owner.post('invitations/', offer(ours))['id']}/"
    for other in (owner, root):
        assert other.error("POST", f"{path}accept/")[0] == 403

    carol = as_user(ours.user("carol"))
    carol.delete(path)
    assert not Invitation.objects.exists()
    assert not Membership.objects.filter(user__username="carol").exists()

    withdrawn = changes.invite("carol", ours.organization, Role.OWNER)
    changes.remove(Invitation.objects.get(pk=withdrawn.pk))
    with pytest.raises(ValidationError, match="was withdrawn"):
        changes.accept(withdrawn)
    expired = f"invitations/{owner.post('invitations/', offer(ours))['id']}/accept/"
    Invitation.objects.update(expires_at=timezone.now())
    assert carol.error("POST", expired)[0] == 404
    assert not Membership.objects.filter(user__username="carol").exists()

    owner.post("invitations/", offer(ours))
    owner.post("invitations/", offer(ours, role="viewer"))
    owner.post("invitations/", {"username": "carol", "project": ours.one.pk})

    assert owner.column("invitations/", "role") == ["viewer", "member"]

    owner.delete(f"projects/{ours.one.pk}/")
    assert owner.column("projects/") == ["ours two"]
    assert [each.role for each in Invitation.objects.all()] == ["viewer"]

    created = owner.post("invitations/", offer(ours))
    assert created["invited_by"] == "owner"
    assert owner.column("invitations/", "username") == ["carol"]
    assert carol.column("invitations/", "organization_name") == ["ours"]
    # The answer is the same for a name that no user has.
    unknown = owner.post("invitations/", offer(ours, "nemo"))
    same = created.keys() - {"id", "username", "created_at", "expires_at"}
    assert {name: created[name] for name in same} == {name: unknown[name] for name in same}

    role = carol.post(f"invitations/{created['id']}/accept/", status=200)
    assert (role["username"], role["role"]) == ("carol", "member")
    assert Membership.objects.get(user__username="carol").organization == ours.organization
    assert owner.column("invitations/", "username") == ["nemo"]


def test_a_link_is_for_new_people_and_needs_a_session(owner: Api, admin: Api, ours: Tenant) -> None:
    new = owner.post("users/", {"username": "carol", "organization": ours.organization.pk})
    path = f"users/{new['id']}/link/"

    link = owner.post(path, status=200)
    assert link["path"].startswith("/accounts/password/reset/key/")
    assert admin.error("POST", path)[0] == 403
    assert managing(ours, ours.user("other", Role.OWNER)).error("POST", path)[0] in (403, 404)

    User.objects.filter(pk=new["id"]).update(last_login=timezone.now())
    assert owner.error("POST", path)[0] == 409
    robot = {"username": "robot", "is_service": True, "project": ours.one.pk}
    assert owner.error("POST", f"users/{owner.post('users/', robot)['id']}/link/")[0] == 409


def test_second_factors_are_shown_to_those_who_lead(
    ours: Tenant, owner: Api, admin: Api, member: Api, viewer: Api
) -> None:
    carol = ours.user("carol", Role.MEMBER)
    Authenticator.objects.create(user=carol, type=Authenticator.Type.TOTP, data={})

    for api, shown in ((owner, True), (admin, True), (member, None), (viewer, None)):
        assert api.column("memberships/", "has_second_factor", search="car") == [shown]
