"""Admin pages built from `accounts.resources`.

Django's permissions decide which pages a user sees, roles decide which rows are on them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, TypeVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import ForeignKey, Model, QuerySet
from django.http import HttpRequest

from accounts.admin.audited import AuditedAdmin, CheckedForm
from accounts.resources.base import Resource
from accounts.services.access import Access, Action

RowT = TypeVar("RowT", bound=Model)


def access_of(request: HttpRequest) -> Access:
    """Return the access of the user, which is read once for a request."""
    known: Access | None = getattr(request, "vinery_access", None)
    if known is None:
        known = Access.of(request.user)
        request.vinery_access = known  # type: ignore[attr-defined]
    return known


class ResourceForm(CheckedForm[RowT]):
    """A form that refuses a row that the user's role does not allow."""

    access: Access
    resource: Resource[Any]

    def check_row(self, row: RowT, stored: RowT | None) -> None:
        """Check the row by the rules of its resource."""
        try:
            self.resource.check(self.access, row, stored)
        except PermissionDenied as error:
            raise ValidationError(str(error)) from None


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
        """The text of an empty list."""
        return self.resource.empty_text if self.resource else ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows in the order of the page."""
        access, ordering = access_of(request), self.get_ordering(request)
        rows = self.resource.rows(access) if self.resource else access.rows(self.model)
        visible: QuerySet[Any] = rows.order_by(*ordering) if ordering else rows
        return visible


class ReadOnlyAdmin(VisibleAdmin):
    """Pages of records, which do not change."""

    ordering: ClassVar[Any] = ["-created_at", "-id"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False


class ResourceAdmin(AuditedAdmin[RowT], VisibleAdmin):
    """Pages that change the rows of a resource, with its texts and rules."""

    form = ResourceForm  # type: ignore[assignment]

    @cached_property
    def api_fields(self) -> dict[str, Any]:
        """The fields of the resource's serializer, by column."""
        return {str(field.source): field for field in self.resource.serializer().fields.values()}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return the dates, and of a stored row the fixed fields."""
        dates = [*self.readonly_fields]
        return (
            dates if obj is None else [*getattr(self.resource.serializer.Meta, "fixed", ()), *dates]
        )

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether Django's permission and the role allow a change."""
        return super().has_change_permission(request, obj) and self.may_manage(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether Django's permission and the role allow a deletion."""
        is_allowed = super().has_delete_permission(request, obj) and self.may_manage(request, obj)
        is_for_superusers = self.resource.removal is Action.REMOVE
        return is_allowed and (bool(request.user.is_superuser) or not is_for_superusers)

    def may_manage(self, request: HttpRequest, row: Any) -> bool:
        """Return whether the user's role allows a change of the row, or of any row."""
        return row is None or access_of(request).may(Action.MANAGE, row)

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return a form that knows the user's access."""
        form: Any = super().get_form(request, *args, **kwargs)
        form.access, form.resource = access_of(request), self.resource
        return form

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Return a field with the label and the help of the resource."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        known = self.api_fields.get(db_field.name)
        if field is not None and known is not None and not db_field.is_relation:
            field.help_text = known.help_text or field.help_text
        return field

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any], request: HttpRequest, **kwargs: Any
    ) -> Any:
        """Return a field whose choices are the visible rows."""
        rows = access_of(request).rows(db_field.related_model)
        return super().formfield_for_foreignkey(db_field, request, **{"queryset": rows, **kwargs})
