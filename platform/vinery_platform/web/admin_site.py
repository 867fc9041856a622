"""The admin site: titles, sign-in and content policy."""

from collections.abc import Callable
from typing import Any, Final

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import sync_and_async_middleware

from vinery_platform.web.middleware import around


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


# -- The content security policy

# The admin's own scripts ask for choices of fields and for translations.
_ADMIN_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


@sync_and_async_middleware
def admin_policy_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[..., Any]:
    """The content security policy of the admin, also of its errors."""

    def with_policy(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if request.path.startswith("/admin/"):
            response.headers.setdefault("Content-Security-Policy", _ADMIN_POLICY)
        return response

    return around(get_response, lambda _: None, with_policy)
