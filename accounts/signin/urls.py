"""Everything under `/accounts/`, by the names that allauth knows: only what is used here."""

from __future__ import annotations

from allauth.account import views as account
from allauth.socialaccount import views as social
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path, re_path
from django.views.generic import TemplateView

from accounts.signin.overview import Overview


def _to_issuer(request: HttpRequest) -> HttpResponse:
    # Imported when somebody comes: it brings an HTTP client.
    from accounts.signin.oidc import views

    return views.login(request)


def _from_issuer(request: HttpRequest) -> HttpResponse:
    from accounts.signin.oidc import views

    return views.callback(request)


def _reset(request: HttpRequest) -> HttpResponse:
    """By e-mail, where that is set up; else the page says whom to ask."""
    if settings.VINERY_PASSWORD_RESET:
        response: HttpResponse = account.password_reset(request)
        return response
    return TemplateView.as_view(template_name="account/password_reset_by_hand.html")(request)


def _connections(request: HttpRequest) -> HttpResponse:
    """With the issuer, while there is one. Raises `Http404`."""
    if settings.VINERY_OIDC is None:
        raise Http404
    response: HttpResponse = social.connections(request)
    return response


_taken = TemplateView.as_view(template_name="socialaccount/address_taken.html")
_no_password = login_required(TemplateView.as_view(template_name="account/no_password.html"))

urlpatterns = [
    path("", Overview.as_view(), name="account_overview"),
    path("login/", account.login, name="account_login"),
    path("logout/", account.logout, name="account_logout"),
    path("inactive/", account.account_inactive, name="account_inactive"),
    path("reauthenticate/", account.reauthenticate, name="account_reauthenticate"),
    path("password/change/", account.password_change, name="account_change_password"),
    path("password/set/", _no_password, name="account_set_password"),
    path("password/reset/", _reset, name="account_reset_password"),
    path("password/reset/done/", account.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path(
        "password/reset/key/done/",
        account.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    path("2fa/", include("allauth.mfa.urls")),
    path("sessions/", include("allauth.usersessions.urls")),
    path("oidc/login/", _to_issuer, name="openid_connect_login"),
    path("oidc/login/callback/", _from_issuer, name="openid_connect_callback"),
    path("oidc/cancelled/", social.login_cancelled, name="socialaccount_login_cancelled"),
    # Where allauth would let somebody choose another address: ours is the issuer's, or none.
    path("oidc/taken/", _taken, name="socialaccount_signup"),
    path("oidc/", _connections, name="socialaccount_connections"),
]
