"""The admin site: titles, the order of models, sign-in and content policy."""

from collections.abc import Callable
from typing import Any, Final

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import sync_and_async_middleware

from vinery_platform.web.middleware import around

# Models of daily use come first. Models that are not listed come last, by name.
_ORDER: Final = (
    *("ServedModel", "UsageRecord", "RefusedRequest", "QuarantinedRequest", "ApiKey", "Limit"),
    *("ModelWeight", "Currency", "User", "Membership", "Organization", "Project", "Alert"),
    "Webhook",
    *("AuditEntry", "MediaRule", "MediaFolder", "MediaLimit", "MediaDenial", "Group"),
)


class VineryAdminSite(AdminSite):
    site_header = "Vinery"
    site_title = "Vinery"
    index_title = "Administration"
    # `/` only redirects back to the admin.
    site_url = None

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        apps = super().get_app_list(request, app_label)
        for app in apps:
            app["models"].sort(key=_position)
        return sorted(apps, key=lambda app: min(map(_position, app["models"])))

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


def _position(model: dict[str, Any]) -> int:
    name = model["object_name"]
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


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
