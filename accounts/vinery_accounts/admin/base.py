"""What all admin pages share: they show, check and change rows as all front ends do.

Django's permissions decide which pages a user sees, roles decide which rows are on them. Every
change goes through `resources` or `services/changes`, and so into the audit log.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html

from vinery_accounts.resources.base import Conflict, Issued, Resource
from vinery_accounts.resources.fields import id_of
from vinery_accounts.services import audit, changes
from vinery_accounts.services.access import Access, Action


def access_of(request: HttpRequest) -> Access:
    """Return the access of the user, which is read once for a request."""
    known: Access | None = getattr(request, "vinery_access", None)
    if known is None:
        known = Access.of(request.user)
        request.vinery_access = known  # type: ignore[attr-defined]
    return known


class CheckedForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that also checks the rules between rows."""

    def _get_validation_exclusions(self) -> set[str]:
        """An unchanged name stays, even if it would be invalid as a new one."""
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]
        is_kept = self.instance.pk is not None and "name" not in self.changed_data
        return excluded | {"name"} if is_kept else excluded

    def _post_clean(self) -> None:
        """Check the row where Django validates it."""
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        row = self.instance
        manager: Any = type(row)._default_manager
        stored = None if row.pk is None else manager.filter(pk=row.pk).first()
        try:
            changes.check(row, stored)
            self.check_row(row, stored)
        except ValidationError as error:
            texts = error.message_dict if hasattr(error, "error_dict") else {}
            known = {name: text for name, text in texts.items() if name in self.fields}
            self.add_error(None, ValidationError(known or error.messages))

    def check_row(self, row: Any, stored: Any) -> None:
        """Raise ValidationError for a further rule. `stored` is None for a new row."""


class ResourceForm(CheckedForm):
    """A form that refuses a row that the rules of its resource do not allow."""

    access: Access
    resource: Resource[Any]

    def check_row(self, row: Any, stored: Any) -> None:
        """Raise ValidationError, also for a row that the user's role does not allow."""
        try:
            self.resource.check(self.access, row, stored)
        except PermissionDenied as error:
            raise ValidationError(str(error)) from None


class AuditedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages whose changes are entries of the audit log. They show why a row cannot be deleted."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        if change:
            columns = {field.name for field in obj._meta.concrete_fields}
            named = [name for name in form.changed_data if name in columns]
            changes.change(obj, **{name: getattr(obj, name) for name in named})
        else:
            changes.add(obj)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        changes.remove(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete all selected rows, or none."""
        with audit.writing():
            for row in queryset:
                changes.remove(row)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return _or_error(request, super().delete_view, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return _or_error(request, super().changelist_view, *args, **kwargs)


def _or_error(
    request: HttpRequest, view: Callable[..., HttpResponse], *args: Any, **kwargs: Any
) -> HttpResponse:
    try:
        return view(request, *args, **kwargs)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return HttpResponseRedirect(request.get_full_path())


class VisibleFilter(admin.RelatedFieldListFilter):
    """A filter by a related row, of which only visible ones are choices."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> Any:
        """Return the choices; Django's own would name all rows of the table."""
        rows = access_of(request).rows(field.related_model).order_by()
        return field.get_choices(
            include_blank=False,
            ordering=self.field_admin_ordering(field, request, model_admin),
            limit_choices_to={"pk__in": rows.values("pk")},
        )


class VisibleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages with the rows that the user may see."""

    resource: ClassVar[Any] = None

    @property
    def empty_text(self) -> str:
        return self.resource.empty_text if self.resource else ""

    def lookup_allowed(self, lookup: str, value: Any, request: Any) -> bool:
        """Refuse numbers in an address that no row can have as its id."""
        is_impossible = str(value).isdecimal() and id_of(str(value)) is None
        return not is_impossible and super().lookup_allowed(lookup, value, request)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the values of the address for a new row. What is no id is left out."""
        given: dict[str, Any] = super().get_changeform_initial_data(request)
        related = {field.name for field in self.opts.fields if field.is_relation}
        return {
            name: value
            for name, value in given.items()
            if name not in related or id_of(str(value)) is not None
        }

    def get_queryset(self, request: HttpRequest) -> Any:
        access, ordering = access_of(request), self.get_ordering(request)
        rows = self.resource.rows(access) if self.resource else access.rows(self.model)
        return rows.order_by(*ordering) if ordering else rows


class ReadOnly:
    """Rows that do not change, on pages of their own or inline."""

    def _never(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _never


class ReadOnlyAdmin(ReadOnly, VisibleAdmin):
    """Pages of records."""

    ordering: ClassVar[Any] = ["-created_at", "-id"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER


class ResourceAdmin(AuditedAdmin, VisibleAdmin):
    """Pages that change the rows of a resource, with its texts and rules."""

    form = ResourceForm
    stored_fields: ClassVar[list[str]] = []
    """Read-only fields that a new row does not have yet."""
    field_permissions: ClassVar[Mapping[str, Action]] = {}
    """Permissions without which a field of a stored row is read-only."""

    @cached_property
    def api_fields(self) -> dict[str, Any]:
        """The fields of the resource's serializer, by column."""
        return {str(field.source): field for field in self.resource.serializer().fields.values()}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return, of a stored row, also the fields that this user may not change."""
        if obj is None:
            return [*self.readonly_fields]
        may = access_of(request).may
        refused = [name for name, action in self.field_permissions.items() if not may(action, obj)]
        fixed = getattr(self.resource.serializer.Meta, "fixed", ())
        return [*fixed, *self.stored_fields, *self.readonly_fields, *refused]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self._may_manage(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_allowed = super().has_delete_permission(request, obj) and self._may_manage(request, obj)
        is_for_superusers = self.resource.removal is Action.REMOVE
        return is_allowed and (bool(request.user.is_superuser) or not is_for_superusers)

    def _may_manage(self, request: HttpRequest, row: Any) -> bool:
        return row is None or access_of(request).may(Action.MANAGE, row)

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.access, form.resource = access_of(request), self.resource
        return form

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        known = self.api_fields.get(db_field.name)
        if field is not None and known is not None and not db_field.is_relation:
            field.help_text = known.help_text or field.help_text
        return field

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        rows = access_of(request).rows(db_field.related_model)
        return super().formfield_for_foreignkey(db_field, request, **{"queryset": rows, **kwargs})

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Store the row, and show the secret of a new one once."""
        values = {name: getattr(obj, name) for name in form.cleaned_data}
        if change:
            self.resource.change(access_of(request), obj, values)
            return
        new = self.resource.create(access_of(request), values)
        # The admin continues with the object of its form.
        obj.pk = (new.row if isinstance(new, Issued) else new).pk
        obj.refresh_from_db()
        _show_secret(request, new)

    def act(
        self, request: HttpRequest, rows: QuerySet[Any], name: str, values: Mapping[str, Any]
    ) -> None:
        """Run an action of the resource on the selected rows, and show new secrets once."""
        access, action, num_done = access_of(request), self.resource.action(name), 0
        for row in rows.select_related(*self.resource.related):
            try:
                result = self.resource.act(access, action, row, **values)
            except (PermissionDenied, Conflict) as error:
                messages.error(request, f"{row}: {error}")
                continue
            _show_secret(request, result)
            num_done += 1
            self.log_change(request, row, f"{action.done.capitalize()}.")
        count = f"{num_done} of the selected {self.resource.many}"
        messages.success(request, f"{count} {action.done}.")


def row_action(
    action: str, description: str, *, only: Q | None = None, name: str = "", **values: Any
) -> Any:
    """Return an admin action that runs an action of the resource with these values. Selected rows
    that do not match `only` are left out."""

    @admin.action(description=description, permissions=["change"])
    def run(page: ResourceAdmin, request: HttpRequest, rows: QuerySet[Any]) -> None:
        page.act(request, rows.filter(only or Q()), action, values)

    run.__name__ = name or action  # the value in the menu of actions
    return run


def _show_secret(request: HttpRequest, result: Any) -> None:
    if isinstance(result, Issued):
        text = "Copy the secret of {} now, it cannot be shown again: <code>{}</code>"
        messages.warning(request, format_html(text, result.row, result.secret))
