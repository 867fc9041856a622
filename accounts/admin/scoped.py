"""Admin pages that show staff what `accounts.services.access` shows them anywhere.

Django's permissions say which pages somebody may use, roles which rows are on them.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django import forms
from django.contrib import admin
from django.db.models import ForeignKey, Model, QuerySet
from django.http import HttpRequest

from accounts.admin.audited import AuditedAdmin, CheckedForm
from accounts.models import ApiKey
from accounts.services.access import Access, Action

RowT = TypeVar("RowT", bound=Model)


def access_of(request: HttpRequest) -> Access:
    """Of who looks at the page: read once for a request."""
    known: Access | None = getattr(request, "vinery_access", None)
    if known is None:
        known = Access.of(request.user)
        request.vinery_access = known  # type: ignore[attr-defined]
    return known


class ScopedForm(CheckedForm[RowT]):
    """Refuses a row that the role of whoever sends it does not allow."""

    access: Access

    def _post_clean(self) -> None:
        """Before anything is stored."""
        super()._post_clean()
        if self.errors:
            return
        row = self.instance
        may = self.access.may(Action.MANAGE, row)
        if may and isinstance(row, ApiKey):
            may = self.access.may_act_as(row)
        if not may:
            self.add_error(None, forms.ValidationError("Your role does not allow this."))


class SeenFilter(admin.RelatedFieldListFilter):
    """By a related row. Choices are what may be seen."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> Any:
        """Django's own would name all rows of the table."""
        rows = access_of(request).rows(field.related_model).order_by()
        return field.get_choices(
            include_blank=False,
            ordering=self.field_admin_ordering(field, request, model_admin),
            limit_choices_to={"pk__in": rows.values("pk")},
        )


class ReadScoped(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows what may be seen."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows of whoever looks."""
        rows = access_of(request).rows(self.model)
        ordering = self.get_ordering(request)
        return rows.order_by(*ordering) if ordering else rows


class ReadOnly(ReadScoped):
    """Books: to be read, and never changed."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False


class ScopedAdmin(AuditedAdmin[RowT], ReadScoped):
    """And changes what may be managed."""

    form = ScopedForm  # type: ignore[assignment]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By permission and by role."""
        return super().has_change_permission(request, obj) and self._may(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By permission and by role."""
        return super().has_delete_permission(request, obj) and self._may(request, obj)

    def _may(self, request: HttpRequest, row: Any) -> bool:
        return row is None or access_of(request).may(Action.MANAGE, row)

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """A form that knows who sends it."""
        form: Any = super().get_form(request, *args, **kwargs)
        form.access = access_of(request)
        return form

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any], request: HttpRequest, **kwargs: Any
    ) -> Any:
        """Choices are what may be seen."""
        related = db_field.related_model
        return super().formfield_for_foreignkey(
            db_field, request, **{"queryset": access_of(request).rows(related), **kwargs}
        )
