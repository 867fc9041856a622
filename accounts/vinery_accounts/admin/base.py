"""The one page of the admin for all resources. The page shows, checks and changes rows as all front
ends do, with the fields, filters, actions and texts of the resource; and the page of users.

Django's permissions decide about pages, roles about the rows on a page. Every change goes through
`resources` or `access/changes`, and so into the audit log."""

from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any, ClassVar, Final

from django import forms
from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import ForeignKey, JSONField, Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.text import Truncator
from rest_framework import serializers

from vinery_accounts.access import audit, changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.models import User
from vinery_accounts.resources.base import EVERYTHING, Conflict, Issued, Resource, RowAction
from vinery_accounts.resources.fields import DatedFilters, id_of
from vinery_accounts.resources.forms import form_field, offer, text_of
from vinery_accounts.signin import attempts

_GRACE_S: Final = 86_400  # how long an old secret stays valid that is rotated here


def access_of(request: HttpRequest) -> Access:
    known: Access | None = getattr(request, "vinery_access", None)
    if known is None:
        known = Access.of(request.user)
        request.vinery_access = known  # type: ignore[attr-defined]
    return known


class CheckedForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that also checks the rules between rows, and those of its resource if it has one."""

    access: Access
    resource: Resource[Any] | None = None

    def _get_validation_exclusions(self) -> set[str]:
        """An unchanged value stays, even if it would be invalid as a new value."""
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]
        is_stored = self.instance.pk is not None
        return excluded | (set(self.fields) - set(self.changed_data) if is_stored else set())

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        row = self.instance
        manager: Any = type(row)._default_manager
        stored = None if row.pk is None else manager.filter(pk=row.pk).first()
        try:
            changes.check(row, stored)
            if self.resource is not None:
                self.resource.check(self.access, row, stored)
                self.resource.check_values(self.cleaned_data, stored)
        except PermissionDenied as error:
            self.add_error(None, str(error))
        except ValidationError as error:
            texts = error.message_dict if hasattr(error, "error_dict") else {}
            known = {name: text for name, text in texts.items() if name in self.fields}
            self.add_error(None, ValidationError(known or error.messages))


class JsonField(forms.JSONField):
    """An empty field is an empty object."""

    def clean(self, value: Any) -> Any:
        cleaned = super().clean(value)
        return {} if cleaned is None else cleaned


class VisibleFilter(admin.RelatedFieldListFilter):
    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> Any:
        """Return the choices; Django's own would name all rows of the table."""
        rows = access_of(request).rows(field.related_model).order_by()
        return field.get_choices(
            include_blank=False,
            ordering=self.field_admin_ordering(field, request, model_admin),
            limit_choices_to={"pk__in": rows.values("pk")},
        )


class VisibleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    empty_text: str = ""

    def lookup_allowed(self, lookup: str, value: Any, request: Any) -> bool:
        """Refuse numbers in an address that no row can have as its id."""
        is_impossible = str(value).isdecimal() and id_of(str(value)) is None
        return not is_impossible and super().lookup_allowed(lookup, value, request)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        given: dict[str, Any] = super().get_changeform_initial_data(request)
        related = {field.name for field in self.opts.fields if field.is_relation}
        return {
            name: value
            for name, value in given.items()
            if name not in related or id_of(str(value)) is not None
        }

    def get_queryset(self, request: HttpRequest) -> Any:
        ordering = self.get_ordering(request)
        rows = access_of(request).rows(self.model)
        return rows.order_by(*ordering) if ordering else rows

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with audit.writing():
            for row in queryset:
                self.delete_model(request, row)

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


class ResourceAdmin(VisibleAdmin):
    form = CheckedForm
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    resource: ClassVar[Resource[Any]]
    is_of_platform: ClassVar[bool] = False
    """Whether Django's permissions are enough for all rows: they are of no organisation."""

    @property
    def empty_text(self) -> str:  # type: ignore[override]
        return self.resource.empty_text

    def access(self, request: HttpRequest) -> Access:
        return EVERYTHING if self.is_of_platform else access_of(request)

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = self.resource.listed(self.access(request))
        return rows.order_by(*(self.get_ordering(request) or self.resource.ordering), "-pk")

    @cached_property
    def _cells(self) -> list[Any]:
        columns = self.resource.columns.items()
        return [_cell(self.model, *each) for each in columns if each[0] != "id"]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        hidden = self.resource.hidden(self.access(request), None)
        return [each for each in self._cells if each.__name__ not in hidden]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist: Any = super().get_changelist_instance(request)
        rows = list(changelist.result_list)
        for row, extras in zip(rows, self.resource.extra_columns(rows), strict=True):
            row.extra_columns = extras
        changelist.result_list = rows
        return changelist

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        found = [_filter(self.resource, each) for each in self.resource.filters().fields.values()]
        dated = ["created_at"] if issubclass(self.resource.filters, DatedFilters) else []
        return [*(each for each in found if each is not None), *dated]

    def get_search_fields(self, request: HttpRequest) -> Any:
        return self.resource.search

    def _fields(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        context = {"access": self.access(request), "is_change": row is not None}
        fields = self.resource.serializer(context=context).fields
        hidden = self.resource.hidden(self.access(request), row)
        is_new = row is None
        return {
            name: each
            for name, each in fields.items()
            if name not in hidden and not (is_new and each.read_only)
        }

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        row = super().get_object(request, *args, **kwargs)
        if row is not None:
            serializer = self.resource.serializer(context={"access": self.access(request)})
            row.shown = serializer.to_representation(row)
        return row

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields, details = self._fields(request, obj), self.get_readonly_fields(request, obj)
        shown = {each.__name__ for each in details}
        return [*(str(each.source) for name, each in fields.items() if name not in shown), *details]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        fields = self._fields(request, obj)
        is_record = "change" not in self.resource.verbs
        names = [name for name, each in fields.items() if each.read_only or is_record]
        return [] if obj is None else [_detail(name) for name in names]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        proposed = self.resource.initial(self.access(request))
        return {**proposed, **super().get_changeform_initial_data(request)}

    def get_autocomplete_fields(self, request: HttpRequest) -> list[str]:
        related = [each for each in self.opts.fields if isinstance(each, ForeignKey)]
        return [each.name for each in related if each.related_model in self.admin_site._registry]

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.access, form.resource = self.access(request), self.resource
        return form

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        fields = self.resource.serializer(context={"access": self.access(request)}).fields
        known = {str(each.source): each for each in fields.values()}.get(db_field.name)
        if isinstance(known, serializers.ListField):
            field: Any = form_field(known)
        elif isinstance(db_field, JSONField):
            field = JsonField(required=not db_field.has_default(), initial=db_field.get_default)
        else:
            field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field is None or known is None or db_field.is_relation:
            return field
        if not isinstance(known, serializers.ListField):
            field.help_text = known.help_text or field.help_text
        if choices := self.resource.choices(self.access(request)).get(db_field.name):
            offer(field, choices)
        return field

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        rows = self.access(request).rows(db_field.related_model)
        return super().formfield_for_foreignkey(db_field, request, **{"queryset": rows, **kwargs})

    def has_add_permission(self, request: HttpRequest) -> bool:
        return "create" in self.resource.verbs and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_allowed = "change" in self.resource.verbs and super().has_change_permission(request, obj)
        return is_allowed and self._may(request, Action.MANAGE, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Records stay, also those that the API removes."""
        is_kept = not {"create", "remove"} <= self.resource.verbs
        is_allowed = not is_kept and super().has_delete_permission(request, obj)
        return is_allowed and self._may(request, self.resource.removal, obj)

    def _may(self, request: HttpRequest, action: Action, row: Any) -> bool:
        return row is None or self.access(request).may(action, row)

    def changeform_view(self, *arguments: Any) -> Any:
        """Without a transaction around the form's checks, in which others would wait."""
        page: Any = self
        return page._changeform_view(*arguments)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        access = self.access(request)
        if change:
            values = {name: getattr(obj, name) for name in form.changed_data}
            stored = self.resource.rows(access).get(pk=obj.pk)
            changed = self.resource.change(access, stored, values)
            for warning in getattr(changed, "warnings", ()):
                messages.warning(request, warning)
            return
        new = self.resource.create(access, {name: getattr(obj, name) for name in form.cleaned_data})
        # The admin continues with the object of its form.
        obj.pk = (new.row if isinstance(new, Issued) else new).pk
        obj.refresh_from_db()
        _show_secret(request, new)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        self.resource.remove(self.access(request), obj)

    def get_actions(self, request: HttpRequest) -> Any:
        known: Any = super().get_actions(request)
        may_act = super().has_change_permission(request) or bool(request.user.is_superuser)
        for each in self.resource.actions if may_act else ():
            if not each.is_of_list:
                text = f"{each.name.capitalize()}: {each.help.partition('. ')[0].rstrip('.')}"
                known[each.name] = (partial(_act, each), each.name, text)
        return known


def _act(action: RowAction, page: Any, request: HttpRequest, rows: QuerySet[Any]) -> None:
    access, num_done = page.access(request), 0
    values = {name: each.default for name, each in action.serializer().fields.items()}
    values |= {"grace_s": _GRACE_S} if "grace_s" in values else {}
    for row in rows:
        try:
            result = page.resource.act(access, action, row, **values)
        except (PermissionDenied, Conflict, ValidationError) as error:
            text = " ".join(getattr(error, "messages", [str(error)]))
            messages.error(request, f"{row}: {text}")
            continue
        _show_secret(request, result)
        num_done += 1
        page.log_change(request, row, f"{action.name.capitalize()}.")
    count = f"{num_done} of the selected {page.resource.many}"
    messages.success(request, f"{count} {action.done or 'done'}.")


def register(resource: Resource[Any], *, is_of_platform: bool = False) -> None:
    members = {
        "resource": resource,
        "is_of_platform": is_of_platform,
        "__doc__": resource.__doc__,
        "__module__": __name__,
    }
    name = f"{resource.model.__name__}Admin"
    admin.site.register(resource.model, type(name, (ResourceAdmin,), members))


def _show_secret(request: HttpRequest, result: Any) -> None:
    if isinstance(result, Issued):
        text = "Copy the secret of {} now, it cannot be shown again: <code>{}</code>"
        messages.warning(request, format_html(text, result.row, result.secret))


@cache
def _detail(name: str) -> Any:
    """Return the function that shows a field of the API. Each field has the same function always,
    because Django looks for the function in lists."""

    @admin.display(description=name.replace("_", " "))
    def detail(row: Any) -> Any:
        return text_of(row.shown.get(name))

    detail.__name__ = name
    return detail


def _cell(model: type[Model], name: str, column: Callable[[Any], Any]) -> Any:
    path = str(getattr(column, "path", ""))
    is_stored = path.partition(".")[0] in {each.name for each in model._meta.fields}

    @admin.display(
        description=name.replace("_", " "), ordering=path.replace(".", "__") if is_stored else None
    )
    def cell(row: Any) -> Any:
        extras = vars(row).get("extra_columns", {})
        value = extras[name] if name in extras else column(row)
        text = text_of(value)
        return Truncator(text).chars(80) if isinstance(text, str) else text

    cell.__name__ = name
    return cell


def _filter(resource: Resource[Any], field: Any) -> Any:
    """Return Django's filter by the column of a filter of the API; None: there is none, or it has
    no small set of values."""
    columns = {each.name: each for each in resource.model._meta.fields}
    name = str(field.source)
    if isinstance(field, serializers.ChoiceField | serializers.BooleanField):
        return name if name in columns else None
    relation = name.removesuffix("_id")
    is_owner = field.field_name in ("organization", "project")
    has_relation = relation in columns and columns[relation].is_relation
    return (relation, VisibleFilter) if is_owner and has_relation else None


# -- Users, whose groups and permissions are Django's

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


# Users manage the tables of allauth on its own pages, administrators at the user.
for _app in ("account", "mfa", "socialaccount", "usersessions"):
    for _model in apps.get_app_config(_app).get_models():
        if admin.site.is_registered(_model):
            admin.site.unregister(_model)
