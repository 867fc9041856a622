"""The account and the rights of a user of the issuer.

The user gets the connected account; or, if the settings allow this, the account with the user's
verified address, or a new account. At each sign-in the issuer's groups give and take superuser
status and a role."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from allauth.account.models import EmailAddress
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.shortcuts import render

from vinery_accounts.access import audit, changes
from vinery_accounts.access.changes import first_project, set_role
from vinery_accounts.models import Organization, Role, User
from vinery_accounts.signin import log as sign_in_log
from vinery_accounts.signin.factors import forget_factors
from vinery_accounts.signin.issuer import Issuer
from vinery_accounts.signin.people import may_sign_in

log = logging.getLogger(__name__)


class IssuerAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """The adapter that `SOCIALACCOUNT_ADAPTER` names."""

    def list_providers(self, request: HttpRequest) -> list[Any]:
        """The issuer of the settings, if there is one. Providers in the database are ignored."""
        issuer: Issuer | None = settings.VINERY_OIDC
        if issuer is None:
            return []
        # Imported here: it brings an HTTP client, which few processes need.
        from vinery_accounts.signin.oidc_provider import OidcProvider

        return [OidcProvider(request, issuer)]

    def get_provider(
        self, request: HttpRequest, provider: str, client_id: str | None = None
    ) -> Any:
        """The issuer. Raises `SocialApp.DoesNotExist` if none is configured."""
        for known in self.list_providers(request):
            return known
        raise SocialApp.DoesNotExist

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return _issuer().makes_accounts

    def populate_user(
        self, request: HttpRequest, sociallogin: SocialLogin, data: Mapping[str, Any]
    ) -> User:
        sociallogin.email_addresses = [
            address for address in sociallogin.email_addresses if address.verified is True
        ]
        verified = [address.email for address in sociallogin.email_addresses]
        user: User = super().populate_user(
            request, sociallogin, {**data, "email": verified[0] if verified else ""}
        )
        return user

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Link the account with the user's address, if the settings allow it. Raises
        `ImmediateHttpResponse` if the address belongs to an account that may not be linked.
        Unconfirmed addresses do not count: owners of organisations may give any address."""
        if sociallogin.state.get("process") == "connect":
            return
        if sociallogin.is_existing:
            self._grant(sociallogin, is_new=False)
            return
        owners = [
            user
            for address in sociallogin.email_addresses
            for user in User.objects.filter(email__iexact=address.email, is_email_confirmed=True)
        ]
        if not owners:
            _ignore_unconfirmed(sociallogin)
            return
        may_link = _issuer().links_by_email and len(owners) == 1
        if not (may_link and may_sign_in(owners[0])):
            sign_in_log.failed(request, None, "issuer")
            taken = render(request, "socialaccount/address_taken.html", status=403)
            raise ImmediateHttpResponse(taken)
        _hand_over(request, owners[0])
        sociallogin.connect(request, owners[0])
        self._grant(sociallogin, is_new=False)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        user: User = super().save_user(request, sociallogin, form)
        self._grant(sociallogin, is_new=True)
        return user

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        extra_context: Any = None,
    ) -> None:
        sign_in_log.failed(request, None, "issuer")
        from vinery_accounts.signin.oidc_provider import IssuerFailed

        known = isinstance(exception, IssuerFailed)
        reason = str(exception) if known else type(exception).__name__ if exception else error
        log.warning("A sign-in through the issuer failed: %s", reason)

    def _grant(self, sociallogin: SocialLogin, *, is_new: bool) -> None:
        user: User = sociallogin.user
        if may_sign_in(user):
            grant(user, sociallogin.account.extra_data, _issuer(), is_new=is_new)


def _ignore_unconfirmed(sociallogin: SocialLogin) -> None:
    """Let a new user sign up with an address that other accounts have, but have not confirmed: for
    these allauth would refuse it. The new account has the address in its own column."""
    emails = [address.email.lower() for address in sociallogin.email_addresses]
    if emails and not EmailAddress.objects.filter(email__in=emails).exists():
        sociallogin.email_addresses = []


def _hand_over(request: HttpRequest, user: User) -> None:
    """Remove the password, second factor and connections of an account before it is linked. The
    creator of the account may have chosen them without owning the address."""
    with audit.writing():
        found = {
            "password": user.has_usable_password(),
            "second_factor": forget_factors(user),
            "connections": SocialAccount.objects.filter(user=user).delete()[0],
        }
        user.set_unusable_password()  # random, so it also ends all sessions
        user.save(update_fields=["password"])
        sign_in_log.linked(request, user, [name for name, was_there in found.items() if was_there])


def _issuer() -> Issuer:
    assert settings.VINERY_OIDC is not None
    return settings.VINERY_OIDC


# -- Rights by the issuer's groups


def groups_of(claims: Mapping[str, Any], issuer: Issuer) -> frozenset[str]:
    groups = claims.get(issuer.groups_claim, ()) if issuer.groups_claim else ()
    return frozenset([groups] if isinstance(groups, str) else [str(each) for each in groups])


@transaction.atomic
def grant(user: User, claims: Mapping[str, Any], issuer: Issuer, *, is_new: bool) -> None:
    """Apply the groups of a user's claims: superuser status, and the role in the organisation.
    Without configured roles, only a new user gets a role: member."""
    groups = groups_of(claims, issuer)
    # Rights are given first and taken last: losing the right to keys pauses a user's keys.
    is_admin = issuer.admin_group in groups
    if issuer.admin_group and is_admin:
        _set_superuser(user, yes=True)
    if issuer.roles:
        given = {Role(issuer.roles[group]) for group in groups if group in issuer.roles}
        # Roles are listed from the highest to the lowest.
        highest = min(given, key=list(Role).index, default=None)
        _apply_role(user, highest, _organization(issuer))
    elif is_new:
        set_role(user, _organization(issuer), Role.MEMBER)
    if issuer.admin_group and not is_admin:
        _set_superuser(user, yes=False)


def _set_superuser(user: User, *, yes: bool) -> None:
    # The last superuser keeps the right: a misspelt group must not lock all users out.
    if user.is_superuser == yes or (not yes and changes.is_last_superuser(user)):
        return
    changes.switch(user, "follow_groups", is_superuser=yes, is_staff=yes)


def _apply_role(user: User, role: Role | None, organization: Organization) -> None:
    # The last owner keeps the role: a misspelt group must not lock all users out.
    with suppress(ValidationError):
        if role is not None:
            set_role(user, organization, role)
            return
        if (lost := changes.known_membership(user, organization)) is not None:
            changes.remove(lost)


def _organization(issuer: Issuer) -> Organization:
    if not issuer.organization:
        return first_project().organization
    organization, _ = Organization.objects.get_or_create(name=issuer.organization)
    return organization
