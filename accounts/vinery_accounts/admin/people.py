"""Users and usage records in Django's admin, and no tables of allauth."""

from typing import Any, ClassVar

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest

from vinery_accounts.access import audit, changes
from vinery_accounts.admin.base import CheckedForm, VisibleAdmin
from vinery_accounts.models import UsageRecord, User
from vinery_accounts.signin import attempts

_FLAGS = ("is_active", "is_service", "is_staff", "is_superuser", "groups", "user_permissions")


class UserForm(CheckedForm, UserChangeForm):  # type: ignore[type-arg]
    """Django's form, which keeps the last administrator."""


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

    def _is_superuser(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)

    has_add_permission = has_change_permission = has_delete_permission = _is_superuser

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


class NewestPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than people turn pages: to count all rows of a large table is slow."""

    object_list: QuerySet[Any]

    @property
    def count(self) -> int:
        return self.object_list[:10_000].count()


@admin.register(UsageRecord)
class UsageRecordAdmin(VisibleAdmin):
    """Records do not change. The console has their sums, and more filters."""

    ordering: ClassVar[Any] = ["-created_at", "-id"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    empty_text = "No requests yet. A request is listed a moment after its end."
    paginator = NewestPaginator
    list_display = [
        *("created_at", "username", "key_name", "model", "endpoint", "outcome", "http_status"),
        *("num_prompt_tokens", "num_cached_tokens", "num_output_tokens", "num_media", "total_ms"),
    ]
    list_filter = ["created_at", "outcome", "is_streamed"]
    search_fields = [
        *("request_id__exact", "username", "key_name", "end_user", "model"),
        *("error_code", "error_message"),
    ]
    list_per_page = 50

    def _never(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _never


# Users manage the tables of allauth on its own pages, administrators at the user.
for _app in ("account", "mfa", "socialaccount", "usersessions"):
    for _model in apps.get_app_config(_app).get_models():
        if admin.site.is_registered(_model):
            admin.site.unregister(_model)
