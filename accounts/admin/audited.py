"""Admin pages that change rows as every other door does: through `accounts.services.changes`."""

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
    """A form that knows the rules between rows, too."""

    def _get_validation_exclusions(self) -> set[str]:
        """A name from before stays, even where no row could be given it now."""
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]
        is_kept = self.instance.pk is not None and "name" not in self.changed_data
        return excluded | {"name"} if is_kept else excluded

    def _post_clean(self) -> None:
        """Where Django validates the row itself."""
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        row = self.instance
        manager: Any = type(row)._default_manager
        stored = None if row.pk is None else manager.filter(pk=row.pk).first()
        try:
            changes.check(row, stored)
        except ValidationError as error:
            known = {name: told for name, told in error.message_dict.items() if name in self.fields}
            self.add_error(None, ValidationError(known or error.messages))


class AuditedAdmin(_Admin[RowT]):
    """Stores, changes and removes rows with an entry in the log."""

    def save_model(
        self,
        request: HttpRequest,
        obj: RowT,
        form: Any,
        change: bool,  # noqa: FBT001
    ) -> None:
        """What the form has validated."""
        if change:
            columns = {field.name for field in obj._meta.concrete_fields}
            named = [name for name in form.changed_data if name in columns]
            changes.change(obj, **{name: getattr(obj, name) for name in named})
        else:
            changes.add(obj)

    def delete_model(self, request: HttpRequest, obj: RowT) -> None:
        """One row."""
        changes.remove(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[RowT]) -> None:
        """The selected rows, all or none of them."""
        with audit.writing():
            for row in queryset:
                changes.remove(row)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """As Django's; a row that has to stay is told of."""
        return _or_told(
            request, lambda: super(AuditedAdmin, self).delete_view(request, *args, **kwargs)
        )

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """The same for actions."""
        return _or_told(
            request, lambda: super(AuditedAdmin, self).changelist_view(request, *args, **kwargs)
        )


def _or_told(request: HttpRequest, answer: Callable[[], HttpResponse]) -> HttpResponse:
    try:
        return answer()
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return HttpResponseRedirect(request.get_full_path())
