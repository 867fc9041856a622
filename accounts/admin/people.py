"""People in Django's admin."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin

from accounts.models import User


@admin.register(User)
class UserAdmin(DjangoUserAdmin):  # type: ignore[type-arg]
    """Django's own; deactivating a user stops their keys."""

    list_display = ["username", "email", "is_active", "is_staff", "last_login", "date_joined"]
