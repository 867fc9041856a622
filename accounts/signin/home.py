"""Where people go who came for no page: administrators to the admin, others to the console."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse


def home_of(user: Any) -> str:
    """The path of the first page of somebody who is signed in."""
    return reverse("admin:index") if user.is_staff else reverse("console:overview")


def front_door(request: HttpRequest) -> HttpResponseRedirect:
    """`/`. Who is not signed in is sent home after that."""
    user = request.user
    return HttpResponseRedirect(
        home_of(user) if user.is_authenticated else reverse("account_login")
    )
