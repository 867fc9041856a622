"""Django's error handlers: JSON for API clients, HTML for the console, the admin and sign-in."""

import logging
import sys
from typing import Any

from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from vinery_accounts.base.errors import DATABASE_UNAVAILABLE
from vinery_accounts.console.menu import error_page
from vinery_accounts.signin.middleware import guarded
from vinery_serving.core.errors import (
    BodyTooLarge,
    InvalidRequest,
    NotFound,
    ServingError,
    Unavailable,
)
from vinery_serving.gateway.endpoints.edge import error_response, server_failed

log = logging.getLogger(__name__)

_PAGES = ("/admin/", "/accounts/", "/console/", "/docs/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400, or 413 for an API client whose body is too large."""
    if isinstance(exception, DisallowedHost):
        return _wrong_host(request)
    error: ServingError = InvalidRequest("The request cannot be understood.")
    if isinstance(exception, RequestDataTooBig):
        error = BodyTooLarge(settings.VINERY_MAX_FORM_BYTES)
    return _answer(request, 400, error)


def _wrong_host(request: HttpRequest) -> HttpResponse:
    host = request.META.get("HTTP_HOST")
    log.warning("host name refused, see VINERY_ALLOWED_HOSTS", extra={"fields": {"host": host}})
    if _is_page(request) or request.path == "/":
        # Without the request, because the template would read its host name.
        return guarded(HttpResponse(render_to_string("400_host.html"), status=400))
    return error_response(
        InvalidRequest(
            "This server does not accept the host name of this request. Add the name to "
            "VINERY_ALLOWED_HOSTS."
        ),
        request,
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 403, _Forbidden("You may not do this."))


def not_found(request: HttpRequest, exception: Any) -> HttpResponse:
    """404. The usual cause is a base URL without `/v1`."""
    error = NotFound(f"Not found: {request.path}. {_advice(request.path)}")
    return _answer(request, 404, error)


def _advice(path: str) -> str:
    pages = " /docs/ describes it." if settings.VINERY_DOCS else ""
    if path.startswith("/api/"):
        return f"/api/schema/ has the endpoints of the management API.{pages}"
    text = "The OpenAI-compatible API is under /v1 and /v3: set your client's base_url to end in"
    return f"{text} /v1.{pages}"


def server_error(request: HttpRequest) -> HttpResponse:
    """500, or 503 while the database is unavailable."""
    if isinstance(sys.exception(), DATABASE_UNAVAILABLE):
        return database_unavailable(request)
    return _answer(request, 500, server_failed())


def _answer(request: HttpRequest, status: int, error: ServingError) -> HttpResponse:
    return error_page(request, status) if _is_page(request) else error_response(error, request)


def database_unavailable(request: HttpRequest) -> HttpResponse:
    error = DatabaseUnavailable("The database does not answer. Try again soon.")
    return error_page(request, 503) if request.path == "/" else _answer(request, 503, error)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return error_page(request, 403, "old_form")


class DatabaseUnavailable(Unavailable, retry_after_s=5):
    """The database does not answer."""


class _Forbidden(ServingError, status=403, type="invalid_request_error", code="forbidden"):
    """The caller is authenticated, but lacks the permission."""


def _is_page(request: HttpRequest) -> bool:
    return request.path.startswith(_PAGES)
