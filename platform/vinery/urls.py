"""The URLs that Django handles: the admin, sign-in, the console and the management API."""

from django.contrib import admin
from django.urls import include, path

from accounts.signin.views import root
from vinery.web import errors

admin.autodiscover()

urlpatterns = [
    path("", root),
    path("admin/", admin.site.urls),
    path("accounts/", include("accounts.signin.urls")),
    path("console/", include("accounts.console.urls")),
    path("api/", include("accounts.api.urls")),
    path("", include("serving.http.urls")),
]

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.server_error
