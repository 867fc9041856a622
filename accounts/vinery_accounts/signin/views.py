"""Our own pages of sign-in; allauth has the others."""

from typing import Any

from allauth.account import views as account
from allauth.socialaccount import views as social
from django.conf import settings
from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.generic import TemplateView

from vinery_accounts.models import User
from vinery_accounts.signin.attempts import has_second_factor


def root(request: HttpRequest) -> HttpResponseRedirect:
    """`/`: redirect to the console, or to sign-in."""
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
    """Reset by e-mail, if e-mail is configured; else a page that refers to an administrator."""
    if settings.VINERY_PASSWORD_RESET:
        response: HttpResponse = account.password_reset(request)
        return response
    return TemplateView.as_view(template_name="account/password_reset_by_hand.html")(request)


def connections(request: HttpRequest) -> HttpResponse:
    """The user's connection to the issuer. Raises `Http404` if no issuer is configured."""
    if settings.VINERY_OIDC is None:
        raise Http404
    response: HttpResponse = social.connections(request)
    return response


def oidc(request: HttpRequest, *, is_callback: bool) -> HttpResponse:
    """Redirect to the issuer, or sign in a user who comes back from there."""
    # Imported here: it brings an HTTP client, which few processes need.
    from vinery_accounts.signin.oidc_provider import respond

    return respond(request, is_callback=is_callback)
