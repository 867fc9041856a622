"""Middleware of the whole site: static files, hosts, an unavailable database, and the admin."""

import gzip
import os
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Final

from asgiref.sync import iscoroutinefunction
from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponsePermanentRedirect,
    HttpResponseRedirect,
)
from django.middleware.common import CommonMiddleware
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

from vinery_platform.web.errors import DatabaseUnavailable, database_unavailable

_API_TREES: Final = ("/v1", "/v3")
_WITHOUT_NUL: Final = ("/admin/", "/accounts/")
_NEED_DATABASE: Final = ("/admin", "/accounts", "/console", "/docs", "/api/")


_files: Final[dict[str, StaticFile]] = {}


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise with small files in memory: Django under ASGI warns about file objects. All
    answers share one copy of a file, however many clients do not read theirs."""

    files: dict[str, StaticFile]

    def add_files_from_finders(self) -> None:
        """Look for files once in a process, which may have several handlers."""
        if not _files:
            super().add_files_from_finders()
            _files.update(self.files)
        self.files = _files | self.files

    def add_file_to_dictionary(self, url: str, path: str, stat_cache: Any = None) -> None:
        """Leave out maps, which are for developers of others' scripts, and larger than the rest."""
        if not path.endswith(".map"):
            super().add_file_to_dictionary(url, path, stat_cache)

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        """The response for one file: 200, 304 or 405. A range is the whole file, as RFC 9110
        allows: a copy of each range would cost memory."""
        found = static_file.get_response(request.method, request.META | {"HTTP_RANGE": ""})
        body = b""
        accepted = request.headers.get("accept-encoding", "")
        is_gzipped = found.status == HTTPStatus.OK and "gzip" in accepted
        if found.file is not None:
            with found.file as file:
                body = _content(file, is_gzipped=is_gzipped)
        response = HttpResponse(body, status=int(found.status))
        del response["content-type"]
        for name, value in found.headers:
            response[name] = value
        patch_vary_headers(response, ("Accept-Encoding",))
        if body and is_gzipped:
            response["Content-Encoding"], response["Content-Length"] = "gzip", str(len(body))
        return response


def _content(file: BinaryIO, *, is_gzipped: bool) -> bytes:
    status = os.fstat(file.fileno())
    return _content_of(file.name, status.st_mtime_ns, status.st_size, is_gzipped=is_gzipped)


@cache
def _content_of(path: str, _changed_ns: int, _size: int, *, is_gzipped: bool) -> bytes:
    """All files together have a few MB."""
    content = Path(path).read_bytes()
    return gzip.compress(content) if is_gzipped else content


class HostCheckMiddleware(CommonMiddleware):
    """Django's check of the Host header, which keeps web pages of other hosts from using the
    admin's cookies. API clients under /v1 and /v3 send none, and may use any name. Addresses of
    Django's own pages have no NUL, which PostgreSQL refuses; the console names the field.
    """

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        """None, or a redirect. Raises `SuspiciousOperation`."""
        if request.path.startswith(_WITHOUT_NUL) and "%00" in request.META["QUERY_STRING"]:
            raise SuspiciousOperation("The address of a page has a NUL.")
        is_api = request.path.startswith(_API_TREES) and request.path[3:4] in ("", "/")
        return None if is_api else super().process_request(request)


# Set by the process that watches the database. In other processes pages raise the error themselves.
_is_unavailable: list[Callable[[], bool]] = []


def ask_whether_unavailable(ask: Callable[[], bool] | None) -> None:
    """Use this function to find out whether the database is unavailable; None uses none."""
    _is_unavailable[:] = [] if ask is None else [ask]


# The admin's own scripts ask for choices of fields and for translations.
_ADMIN_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


@sync_and_async_middleware
def site_middleware(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """Respond 503 at once to pages that need the database while it is unavailable. Otherwise such a
    page would hold a thread until its connection times out. Models, static files and health do not
    need the database. Belongs before the middleware of sessions.

    Also adds the content policy of the admin, and when to try again."""

    def refuse(request: HttpRequest) -> HttpResponse | None:
        needs_database = request.path == "/" or request.path.startswith(_NEED_DATABASE)
        must_fail = needs_database and bool(_is_unavailable) and _is_unavailable[0]()
        return database_unavailable(request) if must_fail else None

    def finish(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if response.status_code == 503:
            response.headers.setdefault("Retry-After", str(DatabaseUnavailable.retry_after_s))
        if request.path.startswith("/admin/"):
            response.headers.setdefault("Content-Security-Policy", _ADMIN_POLICY)
        return response

    async def respond_async(request: HttpRequest) -> HttpResponse:
        return finish(request, refuse(request) or await get_response(request))

    def respond(request: HttpRequest) -> HttpResponse:
        return finish(request, refuse(request) or get_response(request))

    return respond_async if iscoroutinefunction(get_response) else respond


class VineryAdminSite(AdminSite):
    site_header = "Vinery"
    site_title = "Vinery"
    index_title = "Administration"
    # `/` only redirects back to the admin.
    site_url = None

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to our sign-in page: the admin's own page has no second factor."""
        if self.has_permission(request):
            return HttpResponseRedirect(reverse("admin:index"))
        if request.user.is_authenticated:
            raise PermissionDenied
        return redirect_to_login(request.GET.get("next") or reverse("admin:index"))

    def password_change(  # type: ignore[override]  # the stubs declare a TemplateResponse
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(reverse("account_change_password"))
