"""What there is under `/api/`."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import SimpleRouter

from accounts.api import alerts, books, captures, keys, limits, organizations, people, usage

# With or without the last slash: a redirect would turn a POST into a GET.
_router = SimpleRouter()
_router.trailing_slash = "/?"
for _name, _views in (
    ("organizations", organizations.Organizations),
    ("projects", organizations.Projects),
    ("users", people.Users),
    ("memberships", people.Memberships),
    ("keys", keys.Keys),
    ("limits", limits.Limits),
    ("model-weights", limits.ModelWeights),
    ("quotas", alerts.Quotas),
    ("alerts", alerts.Alerts),
    ("key-reminders", alerts.KeyReminders),
    ("webhooks", alerts.Webhooks),
    ("refusals", books.Refusals),
    ("captures", captures.Captures),
    ("audit", books.Audit),
):
    _router.register(_name, _views, basename=f"api-{_name}")

urlpatterns: list[URLPattern | URLResolver] = [
    *_router.urls,
    re_path("^usage/?$", usage.Usage.as_view(), name="api-usage"),
    re_path("^usage/export/?$", usage.UsageExport.as_view(), name="api-usage-export"),
    path("schema/", SpectacularAPIView.as_view(), name="api-schema"),
]
