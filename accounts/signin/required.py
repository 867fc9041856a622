"""Who must have a second factor. Without one, the only pages they get are those where they set it
up; whoever has it is not asked for it here, sign-in has done that."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils.decorators import sync_and_async_middleware

from accounts.models import User
from accounts.signin.factors import has_second_factor
from accounts.signin.pages import ROOT

_OPEN: Final = (ROOT, "/v1/", "/v3/")


class Required(StrEnum):
    """Of whom a second factor is demanded."""

    OFF = "off"
    STAFF = "staff"
    ALL = "all"


@sync_and_async_middleware
def second_factor_required(
    get_response: Callable[[HttpRequest], Any],
) -> Callable[[HttpRequest], Any]:
    """Middleware, after that of users. Requests without a session's cookie pass untouched, and
    so do those under /v1 and /v3, where keys alone open anything. Raises `MiddlewareNotUsed`
    when nobody needs a second factor."""
    if settings.VINERY_REQUIRE_2FA == Required.OFF:
        raise MiddlewareNotUsed

    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            refusal = await sync_to_async(_refusal)(request) if _may_concern(request) else None
            return refusal or await get_response(request)

    else:

        def middleware(request: HttpRequest) -> HttpResponse:  # type: ignore[misc]
            refusal = _refusal(request) if _may_concern(request) else None
            return refusal or get_response(request)

    return middleware


def _may_concern(request: HttpRequest) -> bool:
    return settings.SESSION_COOKIE_NAME in request.COOKIES and not request.path.startswith(_OPEN)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    user = request.user
    if not isinstance(user, User) or not _must_have_one(user) or has_second_factor(user):
        return None
    page = reverse("mfa_activate_totp")
    if request.path.startswith("/api/"):
        message = f"Your account needs a second factor first: set one up at {page}."
        error = {"message": message, "type": "invalid_request_error", "param": None}
        return JsonResponse({"error": error | {"code": "second_factor_required"}}, status=403)
    return HttpResponseRedirect(page)


def _must_have_one(user: User) -> bool:
    return settings.VINERY_REQUIRE_2FA == Required.ALL or user.is_staff or user.is_superuser
