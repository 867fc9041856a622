"""The two URLs of the issuer: to it, and back from it."""

from __future__ import annotations

from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse

from accounts.signin.oidc.issuer import PROVIDER_ID
from accounts.signin.oidc.provider import OidcClient


def login(request: HttpRequest) -> HttpResponse:
    """To the issuer, with a state, a nonce and a PKCE challenge of this session."""
    return _answer(OAuth2LoginView, request)


def callback(request: HttpRequest) -> HttpResponse:
    """Back from it, with a code."""
    return _answer(OAuth2CallbackView, request)


def _answer(view: Any, request: HttpRequest) -> HttpResponse:
    if settings.VINERY_OIDC is None:
        raise Http404
    client = OidcClient(request, settings.VINERY_OIDC)
    try:
        response: HttpResponse = view.adapter_view(client)(request)
    except OAuth2Error as error:  # the issuer is away before anything has begun
        provider = get_adapter().get_provider(request, PROVIDER_ID)
        response = render_authentication_error(request, provider, exception=error)
    except ImmediateHttpResponse as answer:
        response = answer.response
    return response
