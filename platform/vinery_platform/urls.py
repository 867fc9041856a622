"""The URLs that Django handles: the admin, sign-in, the console, the management API, and `/docs/`,
which shows the OpenAPI documents of both APIs, without a key and with files of this server.
"""

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Final

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, URLResolver, include, path
from django.views.decorators.http import require_safe

from vinery_accounts.console import page as console
from vinery_accounts.signin.urls import root
from vinery_platform.web import errors


@dataclass(frozen=True, slots=True)
class Api:
    """An API with an OpenAPI document."""

    slug: str
    title: str
    about: str
    document: str


APIS: Final = (
    Api(
        "openai",
        "OpenAI-compatible API",
        "Chat completions, completions, responses, models and tokenizers, for clients.",
        "/openapi.json",
    ),
    Api(
        "management",
        "Management API",
        "Organisations, users, keys, limits, usage, models and the audit log, for programs that "
        "administrate. It needs a key with the scope manage or admin, or a session.",
        "/api/schema/?format=json",
    ),
)
VIEWERS: Final = ("swagger", "redoc")
# Both write style elements into the page, and Swagger UI has its icons in data URLs.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


@require_safe
def _page(request: HttpRequest, template: str, **context: object) -> HttpResponse:
    response = render(request, f"docs/{template}.html", {"apis": APIS, **context})
    response.headers["Content-Security-Policy"] = _POLICY
    return response


def pages(*, is_on: bool) -> list[URLPattern | URLResolver]:
    """Return the URLs of the pages; none if pages are turned off, so that nothing links to them."""
    if not is_on:
        return []
    return [
        path("", partial(_page, template="index"), name="docs"),
        *(
            path(f"{api.slug}/{viewer}/", partial(_page, template=viewer, api=api))
            for api in APIS
            for viewer in VIEWERS
        ),
    ]


admin.autodiscover()  # the classes of accounts

# `accounts` knows neither models nor media, so their pages, also those of the admin, join here.
for _name in (
    "vinery_accounts.console.urls",
    "vinery_serving.pages.console",
    "vinery_serving.pages.console_add",
    "vinery_serving.pages.media_console",
    "vinery_serving.pages.running_console",
):
    import_module(_name)

urlpatterns = [
    path("", root),
    path("admin/", admin.site.urls),
    path("accounts/", include("vinery_accounts.signin.urls")),
    path("console/", include((console.urlpatterns, "console"))),
    path("api/", include("vinery_accounts.api.views")),
    path("api/", include("vinery_platform.web.serving_api")),
    path("docs/", include(pages(is_on=settings.VINERY_DOCS))),
]

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.server_error
