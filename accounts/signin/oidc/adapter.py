"""Which account somebody gets whom the issuer vouches for: the connected one; that of their
verified address, where the settings allow it; a new one, where they allow that; or none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from accounts.models import User
from accounts.services import audit
from accounts.signin import journal
from accounts.signin.factors import forget_factors
from accounts.signin.oidc.issuer import Issuer
from accounts.signin.oidc.rights import grant
from accounts.signin.people import may_sign_in

_log = logging.getLogger(__name__)


class IssuerAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """What `SOCIALACCOUNT_ADAPTER` names."""

    def list_providers(self, request: HttpRequest) -> list[Any]:
        """The issuer, if the settings name one. Rows that somebody made in the database count
        for nothing."""
        issuer: Issuer | None = settings.VINERY_OIDC
        if issuer is None:
            return []
        # Imported here: it brings an HTTP client, which no process needs before.
        from accounts.signin.oidc.provider import OidcProvider

        return [OidcProvider(request, issuer)]

    def get_provider(
        self, request: HttpRequest, provider: str, client_id: str | None = None
    ) -> Any:
        """The same. Raises `SocialApp.DoesNotExist`."""
        for known in self.list_providers(request):
            return known
        raise SocialApp.DoesNotExist

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Whether a new person gets an account."""
        return _issuer().makes_accounts

    def populate_user(
        self, request: HttpRequest, sociallogin: SocialLogin, data: Mapping[str, Any]
    ) -> User:
        """A new account as the claims describe it. An address that the issuer has not verified
        is left out: mail for somebody else would go there."""
        sociallogin.email_addresses = [
            address for address in sociallogin.email_addresses if address.verified is True
        ]
        verified = [address.email for address in sociallogin.email_addresses]
        user: User = super().populate_user(
            request, sociallogin, {**data, "email": verified[0] if verified else ""}
        )
        return user

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Link by address where that is allowed. Raises `ImmediateHttpResponse` when the
        address belongs to an account that this person may not have."""
        is_connecting = sociallogin.state.get("process") == "connect"
        if sociallogin.is_existing:
            if not is_connecting:
                self._grant(sociallogin, is_new=False)
            return
        if is_connecting:
            return
        owners = self._owners(sociallogin)
        if not owners:
            return
        may_link = _issuer().links_by_email and len(owners) == 1
        if not (may_link and may_sign_in(owners[0])):
            journal.failed(request, None, "issuer")
            raise ImmediateHttpResponse(_taken(request))
        _hand_over(request, owners[0])
        sociallogin.connect(request, owners[0])
        self._grant(sociallogin, is_new=False)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """A new account, with its rights."""
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
        """Say why in the log; the page that the person gets does not."""
        journal.failed(request, None, "issuer")
        from accounts.signin.oidc.provider import IssuerFailed

        known = isinstance(exception, IssuerFailed)
        reason = str(exception) if known else type(exception).__name__ if exception else error
        _log.warning("A sign-in through the issuer failed: %s", reason)

    def _owners(self, sociallogin: SocialLogin) -> list[User]:
        addresses = [address.email for address in sociallogin.email_addresses]
        return [
            user for address in addresses for user in User.objects.filter(email__iexact=address)
        ]

    def _grant(self, sociallogin: SocialLogin, *, is_new: bool) -> None:
        user: User = sociallogin.user
        if may_sign_in(user):
            claims = sociallogin.account.extra_data
            grant(user, claims, _issuer(), is_new=is_new)


def _hand_over(request: HttpRequest, user: User) -> None:
    """Let nobody in by what there was before the issuer vouched for the person: who made the
    account may have chosen its password, and need not be whose address it has."""
    with audit.writing():
        found = {
            "password": user.has_usable_password(),
            "second_factor": forget_factors(user),
            "connections": SocialAccount.objects.filter(user=user).delete()[0],
        }
        user.set_unusable_password()  # a new one each time, which ends the sessions, too
        user.save(update_fields=["password"])
        journal.linked(request, user, [name for name, was_there in found.items() if was_there])


def _issuer() -> Issuer:
    """That through which somebody has just come."""
    assert settings.VINERY_OIDC is not None
    return settings.VINERY_OIDC


def _taken(request: HttpRequest) -> HttpResponse:
    return render(request, "socialaccount/address_taken.html", status=403)
