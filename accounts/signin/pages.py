"""What every page under `/accounts/` gets, and no other request: allauth's request context, and
headers that keep secrets out of caches and foreign scripts out of the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from allauth.account.middleware import AccountMiddleware
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

ROOT: Final = "/accounts/"

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " base-uri 'none'; frame-ancestors 'none'"
)
# With an issuer, the button that leads to it is a form whose answer is a redirect, to wherever
# its discovery document says.
_FORMS: Final = "; form-action 'self'"


@sync_and_async_middleware
def sign_in_pages(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Middleware, after that of sessions and users."""
    allauth = AccountMiddleware(get_response)

    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            if not request.path.startswith(ROOT):
                response: Awaitable[HttpResponse] = get_response(request)
                return await response
            return guarded(await allauth(request))

    else:

        def middleware(request: HttpRequest) -> HttpResponse:  # type: ignore[misc]
            if not request.path.startswith(ROOT):
                response: HttpResponse = get_response(request)
                return response
            return guarded(allauth(request))

    # Django asks for this attribute: allauth answers some of its own exceptions there.
    middleware.process_exception = allauth.process_exception  # type: ignore[attr-defined]
    return middleware


def guarded(response: HttpResponse) -> HttpResponse:
    """With the headers of every such page."""
    forms = "" if settings.VINERY_OIDC else _FORMS
    response.headers.setdefault("Content-Security-Policy", _POLICY + forms)
    response.headers["Cache-Control"] = "no-store, private"
    return response
