"""Users in Django's admin, and without the tables of allauth."""

from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.db.models import QuerySet
from django.http import HttpRequest

from vinery_accounts.access import audit, changes
from vinery_accounts.admin.base import CheckedForm, ReadOnly, VisibleAdmin, access_of
from vinery_accounts.models import Membership, User
from vinery_accounts.signin import attempts
from vinery_accounts.signin.factors import reset_second_factor

_FLAGS = ("is_active", "is_service", "is_staff", "is_superuser", "groups", "user_permissions")


class UserForm(CheckedForm, UserChangeForm):  # type: ignore[type-arg]
    """Django's form, which keeps the last administrator."""


class RoleInline(ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    """The roles of the user; the page of roles adds and changes them."""

    model = Membership
    extra = 0
    fields = ("organization", "project", "role")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Membership]:
        seen = access_of(request).rows(Membership).order_by()
        return super().get_queryset(request).filter(pk__in=seen.values("pk"))


@admin.register(User)
class UserAdmin(VisibleAdmin, DjangoUserAdmin):  # type: ignore[type-arg]
    """Django's page; deactivating a user stops their keys. Only superusers change users here:
    another user with this right could become a superuser."""

    form = UserForm
    list_display = [
        *("username", "email", "is_active", "is_service", "is_staff", "last_login"),
        "date_joined",
    ]
    list_filter = ["is_active", "is_service", "is_staff", "is_superuser"]
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Personal info", {"fields": ("first_name", "last_name", "email", "is_email_confirmed")}),
        ("Permissions", {"fields": _FLAGS}),
        ("Important dates", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")
    actions = ["reset_second_factors"]

    @admin.action(description="Reset the second factor", permissions=["change"])
    def reset_second_factors(self, request: HttpRequest, people: QuerySet[User]) -> None:
        names = [user.get_username() for user in people if reset_second_factor(user)]
        none = "None of the selected users has a second factor."
        text = f"Reset for {', '.join(names)}." if names else none
        self.message_user(request, text, messages.SUCCESS if names else messages.INFO)

    def _is_superuser(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)

    has_add_permission = has_change_permission = has_delete_permission = _is_superuser

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        return () if obj is None else (RoleInline,)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: Any) -> None:
        if not change:
            changes.add(obj)
            return
        columns = {field.name for field in obj._meta.concrete_fields}
        named = [name for name in form.changed_data if name in columns]
        changes.change(obj, **{name: getattr(obj, name) for name in named})

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        changes.remove(obj)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """Audit the groups and permissions, which are no columns of the user."""
        many = [name for name in ("groups", "user_permissions") if name in form.changed_data]
        with audit.writing():
            before = {name: _ids(form.instance, name) for name in many}
            super().save_related(request, form, formsets, change)
            if many:
                after = {name: _ids(form.instance, name) for name in many}
                audit.record("permit", form.instance, before=before, after=after)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        with audit.writing():
            user = self.get_object(request, unquote(id))
            response = super().user_change_password(request, id, form_url)
            if user is not None and User.objects.get(pk=user.pk).password != user.password:
                audit.record("password", user)
                attempts.forget(user)
        return response


def _ids(user: User, name: str) -> list[int]:
    return sorted(getattr(user, name).values_list("pk", flat=True))


# Users manage the tables of allauth on its own pages, administrators at the user.
for _app in ("account", "mfa", "socialaccount", "usersessions"):
    for _model in apps.get_app_config(_app).get_models():
        if admin.site.is_registered(_model):
            admin.site.unregister(_model)
