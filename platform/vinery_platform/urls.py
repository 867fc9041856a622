"""The URLs that Django handles: the admin, sign-in, the console, the management API and
the pages about both APIs."""

from importlib import import_module

from django.contrib import admin
from django.urls import include, path

from vinery_accounts.signin.urls import root
from vinery_platform.web import errors

admin.autodiscover()  # the classes of accounts
for name in ("model_admin", "media_admin"):
    import_module(f"vinery_serving.pages.{name}")

# `accounts` knows neither models nor media, so their pages join the others here.
_CONSOLE = [
    pattern
    for name in (
        "vinery_accounts.console.urls",
        "vinery_serving.pages.console",
        "vinery_serving.pages.media_console",
    )
    for pattern in import_module(name).urlpatterns
]

urlpatterns = [
    path("", root),
    path("admin/", admin.site.urls),
    path("accounts/", include("vinery_accounts.signin.urls")),
    path("console/", include((_CONSOLE, "console"))),
    path("api/", include("vinery_accounts.api.urls")),
    path("api/", include("vinery_platform.web.serving_api")),
    path("docs/", include("vinery_platform.web.api_docs")),
    path("", include("vinery_serving.gateway.endpoints.views")),
]

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.server_error
