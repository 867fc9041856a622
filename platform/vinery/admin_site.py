"""The admin site: its name, and the order in which it shows things."""

from __future__ import annotations

from typing import Any, Final

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

# What is looked at daily comes first. What is not named here comes last, by name.
_ORDER: Final = (
    *("ServedModel", "UsageRecord", "RefusedRequest", "ApiKey", "Limit", "ModelWeight", "User"),
    *("Membership", "Organization", "Project", "Alert", "KeyReminder", "Webhook"),
    *("AuditEntry", "Group"),
)


class VineryAdminSite(AdminSite):
    """Django's own, with our words."""

    site_header = "Vinery"
    site_title = "Vinery"
    index_title = "Administration"
    # `/` only leads back to here.
    site_url = None

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """As Django's, in our order."""
        apps = super().get_app_list(request, app_label)
        for app in apps:
            app["models"].sort(key=_place)
        return sorted(apps, key=lambda app: min(map(_place, app["models"])))

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """To the one page where people sign in: the admin's own knows no second factor."""
        if self.has_permission(request):
            return HttpResponseRedirect(reverse("admin:index"))
        if request.user.is_authenticated:
            raise PermissionDenied
        return redirect_to_login(request.GET.get("next") or reverse("admin:index"))

    def password_change(  # type: ignore[override]  # the stubs promise a template
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """To the page that everybody has."""
        return HttpResponseRedirect(reverse("account_change_password"))


def _place(model: dict[str, Any]) -> int:
    name = model["object_name"]
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
