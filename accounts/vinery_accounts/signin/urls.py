"""Our own pages of sign-in, and the URLs under `/accounts/`, with the names that allauth uses."""

from typing import Any

from allauth.account import views as account
from allauth.account.decorators import reauthentication_required
from allauth.socialaccount import views as social
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect
from django.urls import include, path, re_path, reverse
from django.views.decorators.http import require_POST
from django.views.generic import TemplateView, UpdateView

from vinery_accounts.access import changes
from vinery_accounts.models import User


def root(request: HttpRequest) -> HttpResponseRedirect:
    is_known = request.user.is_authenticated
    return HttpResponseRedirect(reverse("console:overview" if is_known else "account_login"))


class Profile(UpdateView):  # type: ignore[type-arg]
    """`/accounts/`: the user's own name and e-mail address."""

    template_name = "account/overview.html"
    fields = ("first_name", "last_name", "email")

    def get_object(self, queryset: Any = None) -> User:
        return User.objects.get(username=self.request.user.get_username())

    def form_valid(self, form: "ModelForm[User]") -> HttpResponse:
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        user: User = self.request.user  # type: ignore[assignment]  # the page needs a sign-in
        if "email" in values:
            # Sign-in through the issuer ignores an address that nobody else has checked.
            values["is_email_confirmed"] = user.is_superuser or not values["email"]
        changes.change(self.get_object(), **values)
        messages.success(self.request, "Your profile is changed.")
        return redirect("account_overview")


@require_POST
@login_required
def end_session(request: HttpRequest, pk: int) -> HttpResponse:
    """End one session of the user; the current one ends like a log-out."""
    get_object_or_404(UserSession, pk=pk, user=request.user).end()
    messages.success(request, "The session is ended.")
    return redirect("usersessions_list")


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

# A stranger at an open session must not give the account another address for new passwords.
_profile = login_required(reauthentication_required(allow_get=True)(Profile.as_view()))

urlpatterns = [
    path("", _profile, name="account_overview"),
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
    path("sessions/<int:pk>/end/", end_session, name="session_end"),
    path("sessions/", include("allauth.usersessions.urls")),
    path("oidc/login/", oidc, {"is_callback": False}, name="openid_connect_login"),
    path("oidc/login/callback/", oidc, {"is_callback": True}, name="openid_connect_callback"),
    path("oidc/cancelled/", social.login_cancelled, name="socialaccount_login_cancelled"),
    # Allauth would let a new user choose another address here; we use the issuer's, or none.
    path("oidc/taken/", _taken, name="socialaccount_signup"),
    path("oidc/", connections, name="socialaccount_connections"),
]
