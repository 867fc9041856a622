"""Organisations, projects and roles in Django's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from accounts.admin.scoped import ScopedAdmin, SeenFilter, access_of
from accounts.models import Membership, Organization, Project
from accounts.services.access import Action


@admin.register(Organization)
class OrganizationAdmin(ScopedAdmin[Organization]):
    """Deactivating one stops the keys in it."""

    empty_text = "No organisation yet. Add one: people and projects belong to it."
    list_display = ["name", "is_active", "created_at"]
    list_filter = ["is_active"]
    search_fields = ["name"]
    readonly_fields = ["created_at", "updated_at"]
    ordering = ["name"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers; and the database keeps one that has projects."""
        return bool(request.user.is_superuser) and super().has_delete_permission(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Owners rename theirs, superusers switch it."""
        may = obj is None or access_of(request).may(Action.SWITCH, obj)
        return [*self.readonly_fields, *([] if may else ["is_active"])]


@admin.register(Project)
class ProjectAdmin(ScopedAdmin[Project]):
    """Deactivating one stops the keys in it."""

    empty_text = "No project yet. Add one: keys are made for it."
    list_display = ["name", "organization", "is_active", "created_at"]
    list_filter = ["is_active", ("organization", SeenFilter)]
    list_select_related = ["organization"]
    search_fields = ["name", "organization__name"]
    autocomplete_fields = ["organization"]
    ordering = ["organization__name", "name"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """A project stays in its organisation; who leads that says what is kept of texts."""
        fixed = ["created_at", "updated_at"]
        if obj is None:
            return fixed
        return [*fixed, "organization", *([] if _may_capture(request, obj) else ["capture_hours"])]

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """What is blacked out tells something of what is said."""
        return [] if obj is None or _may_capture(request, obj) else ["capture_redactions"]


def _may_capture(request: HttpRequest, project: Project) -> bool:
    return access_of(request).may(Action.CAPTURE, project)


@admin.register(Membership)
class MembershipAdmin(ScopedAdmin[Membership]):
    """Who has which role where."""

    empty_text = "Nobody has a role yet. Add one for each person."
    list_display = ["user", "role", "organization", "project", "created_at"]
    list_filter = ["role", ("organization", SeenFilter)]
    list_select_related = ["user", "organization", "project__organization"]
    search_fields = ["user__username", "organization__name", "project__name"]
    autocomplete_fields = ["user", "organization", "project"]
    ordering = ["organization__name", "project__name", "user__username"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Only the role changes."""
        return [] if obj is None else ["user", "organization", "project", "created_at"]
