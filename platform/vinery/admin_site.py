"""The admin site: its name, and the order in which it shows things."""

from __future__ import annotations

from typing import Any, Final

from django.contrib.admin import AdminSite
from django.http import HttpRequest

# What is looked at daily comes first. What is not named here comes last, by name.
_ORDER: Final = (
    *("ServedModel", "UsageRecord", "RefusedRequest", "ApiKey", "Limit", "ModelWeight", "User"),
    *("Membership", "Organization", "Project", "AuditEntry", "Group"),
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


def _place(model: dict[str, Any]) -> int:
    name = model["object_name"]
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)
