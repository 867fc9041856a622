"""The URLs under `/accounts/`, with the names that allauth uses."""

from allauth.account import views as account
from allauth.socialaccount import views as social
from django.contrib.auth.decorators import login_required
from django.urls import include, path, re_path
from django.views.generic import TemplateView

from vinery_accounts.signin import views

_taken = TemplateView.as_view(template_name="socialaccount/address_taken.html")
_no_password = login_required(TemplateView.as_view(template_name="account/no_password.html"))

urlpatterns = [
    path("", views.Overview.as_view(), name="account_overview"),
    path("login/", account.login, name="account_login"),
    path("logout/", account.logout, name="account_logout"),
    path("inactive/", account.account_inactive, name="account_inactive"),
    path("reauthenticate/", account.reauthenticate, name="account_reauthenticate"),
    path("password/change/", account.password_change, name="account_change_password"),
    path("password/set/", _no_password, name="account_set_password"),
    path("password/reset/", views.password_reset, name="account_reset_password"),
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
    path("oidc/login/", views.oidc, {"is_callback": False}, name="openid_connect_login"),
    path("oidc/login/callback/", views.oidc, {"is_callback": True}, name="openid_connect_callback"),
    path("oidc/cancelled/", social.login_cancelled, name="socialaccount_login_cancelled"),
    # Allauth would let a new user choose another address here; we use the issuer's, or none.
    path("oidc/taken/", _taken, name="socialaccount_signup"),
    path("oidc/", views.connections, name="socialaccount_connections"),
]
