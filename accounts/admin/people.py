"""People in Django's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.admin.audited import AuditedAdmin, CheckedForm
from accounts.admin.scoped import ReadScoped, access_of
from accounts.models import Membership, User
from accounts.services import audit
from accounts.signin import attempts
from accounts.signin.recovery import reset_second_factor

_FLAGS = ("is_active", "is_service", "is_staff", "is_superuser", "groups", "user_permissions")


class UserForm(CheckedForm[User], UserChangeForm):  # type: ignore[type-arg]
    """Django's own, which keeps the last administrator."""


class Roles(admin.TabularInline):  # type: ignore[type-arg]
    """What the user may do where. Changed on their own page, which knows who may."""

    model = Membership
    extra = 0
    can_delete = False
    fields = readonly_fields = ("organization", "project", "role")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Membership]:
        """Those that may be seen."""
        seen = access_of(request).rows(Membership).order_by()
        return super().get_queryset(request).filter(pk__in=seen.values("pk"))

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Not here."""
        return False


@admin.register(User)
class UserAdmin(AuditedAdmin[User], ReadScoped, DjangoUserAdmin):  # type: ignore[type-arg]
    """Django's own; deactivating a user stops their keys. Only superusers change people here:
    whoever can, could make themselves one."""

    form = UserForm
    list_display = [
        *("username", "email", "is_active", "is_service", "is_staff", "last_login"),
        "date_joined",
    ]
    list_filter = ["is_active", "is_service", "is_staff", "is_superuser"]
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Personal info", {"fields": ("first_name", "last_name", "email")}),
        ("Permissions", {"fields": _FLAGS}),
        ("Important dates", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")
    actions = ["reset_second_factors"]

    @admin.action(description="Reset the second factor", permissions=["change"])
    def reset_second_factors(self, request: HttpRequest, people: QuerySet[User]) -> None:
        """For whoever lost phone and recovery codes: the password alone lets them in again.

        As with passwords in Django's own admin, whoever may change users may do this.
        """
        names = [user.get_username() for user in people if reset_second_factor(user)]
        if names:
            self.message_user(request, f"Reset for {', '.join(names)}.", messages.SUCCESS)
        else:
            self.message_user(request, "There was nothing to reset.", messages.INFO)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Superusers."""
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers."""
        return bool(request.user.is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Superusers."""
        return bool(request.user.is_superuser)

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        """A new user has no role yet."""
        return () if obj is None else (Roles,)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """Groups and permissions, which are no columns of the user."""
        many = [name for name in ("groups", "user_permissions") if name in form.changed_data]
        with audit.writing():
            before = {name: _ids(form.instance, name) for name in many}
            super().save_related(request, form, formsets, change)
            if many:
                after = {name: _ids(form.instance, name) for name in many}
                audit.record("permit", form.instance, before=before, after=after)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        """Django's page, with an entry in the log when it has done its work."""
        with audit.writing():
            user = User.objects.filter(pk=id).first()
            response = super().user_change_password(request, id, form_url)
            if user is not None and User.objects.get(pk=id).password != user.password:
                audit.record("password", user)
                attempts.forget(user)
        return response


def _ids(user: User, name: str) -> list[int]:
    return sorted(getattr(user, name).values_list("pk", flat=True))
