"""URLs of everything that is ordinary Django."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from vinery import errors

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/", permanent=False)),
    path("admin/", admin.site.urls),
    path("accounts/", include("accounts.signin.urls")),
    path("api/", include("accounts.api.urls")),
    path("", include("serving.urls")),
]

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.server_error
