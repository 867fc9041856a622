"""Admin pages that change rows as all front ends do: through `accounts.services.changes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from accounts.services import audit, changes

RowT = TypeVar("RowT", bound=Model)

# Only the type checker knows that Django's admin classes are generic.
if TYPE_CHECKING:
    _Admin = admin.ModelAdmin
    _Form = forms.ModelForm
else:

    class _Admin(admin.ModelAdmin):
        def __class_getitem__(cls, _: Any) -> Any:
            return cls

    class _Form(forms.ModelForm):
        def __class_getitem__(cls, _: Any) -> Any:
            return cls


class CheckedForm(_Form[RowT]):
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

    def check_row(self, row: RowT, stored: RowT | None) -> None:
        """Raise ValidationError for a further rule. `stored` is None for a new row."""


class AuditedAdmin(_Admin[RowT]):
    """Admin pages whose changes are entries of the audit log."""

    def save_model(
        self,
        request: HttpRequest,
        obj: RowT,
        form: Any,
        change: bool,  # noqa: FBT001
    ) -> None:
        """Store the validated row."""
        if change:
            columns = {field.name for field in obj._meta.concrete_fields}
            named = [name for name in form.changed_data if name in columns]
            changes.change(obj, **{name: getattr(obj, name) for name in named})
        else:
            changes.add(obj)

    def delete_model(self, request: HttpRequest, obj: RowT) -> None:
        """Delete one row."""
        changes.remove(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[RowT]) -> None:
        """Delete all selected rows, or none."""
        with audit.writing():
            for row in queryset:
                changes.remove(row)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show an error for a row that cannot be deleted."""
        return _or_error(
            request, lambda: super(AuditedAdmin, self).delete_view(request, *args, **kwargs)
        )

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show an error for selected rows that cannot be deleted."""
        return _or_error(
            request, lambda: super(AuditedAdmin, self).changelist_view(request, *args, **kwargs)
        )


def _or_error(request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
    try:
        return view()
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return HttpResponseRedirect(request.get_full_path())
