"""Everything under `/console/`."""

from __future__ import annotations

from django.urls import path

from accounts.console.overview import Overview

app_name = "console"
urlpatterns = [
    path("", Overview.as_view(), name="overview"),
]
