"""Middleware that sends users without a required second factor to its set-up page, and gives pages
under `/accounts/` allauth's request context and security headers."""

from collections.abc import Callable
from typing import Any, Final

from allauth.account.middleware import AccountMiddleware
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.decorators import sync_and_async_middleware

from vinery_accounts.models import User
from vinery_accounts.signin import attempts
from vinery_accounts.signin.attempts import has_second_factor

ROOT: Final = "/accounts/"

# Pages for users without a second factor, and the API, which accepts keys only.
_OPEN: Final = (ROOT, "/v1/", "/v3/")

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@sync_and_async_middleware
def sign_in(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    allauth = AccountMiddleware(get_response)

    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            refusal = await sync_to_async(_refusal)(request) if _needs_check(request) else None
            if refusal is None and request.path.startswith(ROOT):
                return attempts.remember(request, guarded(await allauth(request)))
            return refusal or await get_response(request)

    else:

        def middleware(request: HttpRequest) -> HttpResponse:  # type: ignore[misc]
            refusal = _refusal(request) if _needs_check(request) else None
            if refusal is None and request.path.startswith(ROOT):
                return attempts.remember(request, guarded(allauth(request)))
            return refusal or get_response(request)

    # Django calls this attribute: allauth handles some of its own exceptions there.
    middleware.process_exception = allauth.process_exception  # type: ignore[attr-defined]
    return middleware


def guarded(response: HttpResponse) -> HttpResponse:
    # Not with an issuer: its button is a form whose response redirects to the issuer's own host.
    forms = "" if settings.VINERY_OIDC else "; form-action 'self'"
    response.headers.setdefault("Content-Security-Policy", _POLICY + forms)
    response.headers["Cache-Control"] = "no-store, private"
    return response


def _needs_check(request: HttpRequest) -> bool:
    return (
        settings.VINERY_REQUIRE_2FA != "off"
        and settings.SESSION_COOKIE_NAME in request.COOKIES
        and not request.path.startswith(_OPEN)
    )


def _refusal(request: HttpRequest) -> HttpResponse | None:
    user = request.user
    if not isinstance(user, User):
        return None
    is_bound = settings.VINERY_REQUIRE_2FA == "all" or user.is_staff or user.is_superuser
    if not is_bound or has_second_factor(user):
        return None
    page = reverse("mfa_activate_totp")
    if request.path.startswith("/api/"):
        message = f"Your account needs a second factor first: set one up at {page}."
        error = {"message": message, "type": "invalid_request_error", "param": None}
        return JsonResponse({"error": error | {"code": "second_factor_required"}}, status=403)
    return HttpResponseRedirect(page)
