"""What somebody may do who came through the issuer: their groups there decide, at each sign-in,
both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from accounts.models import Membership, Organization, Role, User
from accounts.services import changes
from accounts.services.people import first_project, join
from accounts.signin.oidc.issuer import Issuer

_BY_POWER = list(Role)


def groups_of(claims: Mapping[str, Any], issuer: Issuer) -> frozenset[str]:
    """The groups that a person's claims name; one may stand there without a list."""
    told = claims.get(issuer.groups_claim, ()) if issuer.groups_claim else ()
    return frozenset([told] if isinstance(told, str) else [str(each) for each in told])


def role_for(groups: Iterable[str], issuer: Issuer) -> Role | None:
    """The mightiest role that the groups give."""
    given = {Role(issuer.roles[group]) for group in groups if group in issuer.roles}
    return min(given, key=_BY_POWER.index, default=None)


@transaction.atomic
def grant(user: User, claims: Mapping[str, Any], issuer: Issuer, *, is_new: bool) -> None:
    """Give and take what the groups say. Without a mapping only a new person gets something:
    the role of a member."""
    groups = groups_of(claims, issuer)
    # What is more comes first, and what is less last: keys are paused as soon as their owner may
    # have none.
    is_admin = issuer.admin_group in groups
    if issuer.admin_group and is_admin:
        _be_superuser(user, yes=True)
    if issuer.roles:
        _have_role(user, role_for(groups, issuer), _organization(issuer))
    elif is_new:
        join(user, _organization(issuer), Role.MEMBER)
    if issuer.admin_group and not is_admin:
        _be_superuser(user, yes=False)


def _be_superuser(user: User, *, yes: bool) -> None:
    if user.is_superuser == yes or (not yes and _is_last_superuser(user)):
        return
    changes.switch(user, "follow_groups", is_superuser=yes, is_staff=yes)


def _is_last_superuser(user: User) -> bool:
    """A group that is misspelt should not lock everybody out."""
    others = User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    return not others.exists()


def _have_role(user: User, role: Role | None, organization: Organization) -> None:
    # The last owner stays one: a group that is misspelt should not lock everybody out.
    with suppress(ValidationError):
        if role is not None:
            join(user, organization, role)
            return
        for lost in Membership.objects.filter(user=user, organization=organization, project=None):
            changes.remove(lost)


def _organization(issuer: Issuer) -> Organization:
    if not issuer.organization:
        return first_project().organization
    organization, _ = Organization.objects.get_or_create(name=issuer.organization)
    return organization
