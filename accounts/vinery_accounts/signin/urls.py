"""Our own pages of sign-in, and the URLs under `/accounts/`, with the names that allauth uses."""

from typing import Any

from allauth.account import views as account
from allauth.socialaccount import views as social
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import include, path, re_path, reverse
from django.views.generic import TemplateView

from vinery_accounts.models import User
from vinery_accounts.signin.attempts import has_second_factor


def root(request: HttpRequest) -> HttpResponseRedirect:
    is_known = request.user.is_authenticated
    return HttpResponseRedirect(reverse("console:overview" if is_known else "account_login"))


class Overview(LoginRequiredMixin, TemplateView):
    """`/accounts/`: the user's own account, and what protects it."""

    template_name = "account/overview.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        user = self.request.user
        assert isinstance(user, User)
        context = super().get_context_data(**kwargs)
        return context | {
            "has_second_factor": has_second_factor(user),
            "issuer": settings.VINERY_OIDC,
        }


def password_reset(request: HttpRequest) -> HttpResponse:
    if settings.VINERY_PASSWORD_RESET:
        response: HttpResponse = account.password_reset(request)
        return response
    return TemplateView.as_view(template_name="account/password_reset_by_hand.html")(request)


def connections(request: HttpRequest) -> HttpResponse:
    if settings.VINERY_OIDC is None:
        raise Http404
    response: HttpResponse = social.connections(request)
    return response


def oidc(request: HttpRequest, *, is_callback: bool) -> HttpResponse:
    # Imported here: it brings an HTTP client, which few processes need.
    from vinery_accounts.signin.oidc_provider import respond

    return respond(request, is_callback=is_callback)


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
    path("password/reset/", password_reset, name="account_reset_password"),
    path("password/reset/done/", account.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path("2fa/", include("allauth.mfa.urls")),
    path("sessions/", include("allauth.usersessions.urls")),
    path("oidc/login/", oidc, {"is_callback": False}, name="openid_connect_login"),
    path("oidc/login/callback/", oidc, {"is_callback": True}, name="openid_connect_callback"),
    path("oidc/cancelled/", social.login_cancelled, name="socialaccount_login_cancelled"),
    # Allauth would let a new user choose another address here; we use the issuer's, or none.
    path("oidc/taken/", _taken, name="socialaccount_signup"),
    path("oidc/", connections, name="socialaccount_connections"),
]
