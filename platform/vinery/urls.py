"""URLs of everything that is ordinary Django."""

from django.contrib import admin
from django.urls import include, path

from accounts.signin.home import front_door
from vinery import errors

urlpatterns = [
    path("", front_door),
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
