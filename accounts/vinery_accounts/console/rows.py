"""Pages about rows of a resource: the list, a new row, one row, its form, and what is done to it.
Those of a resource with a `title` are generated. A page that differs is a subclass with the same
URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from rest_framework.serializers import DateTimeField

from vinery_accounts.access.access import Access, Action
from vinery_accounts.access.changes import check_removable
from vinery_accounts.console.menu import moment, state
from vinery_accounts.console.page import FormPage, Page, at, urlpatterns
from vinery_accounts.models import OWNERS
from vinery_accounts.resources.base import (
    Conflict,
    Issued,
    Resource,
    RowAction,
    registered,
    require,
)
from vinery_accounts.resources.fields import VisibleRelatedField
from vinery_accounts.resources.forms import ResourceForm, form_field, text_of
from vinery_accounts.resources.limits import owner_choices

Columns = Mapping[str, Callable[[Any], Any]]
Cell = tuple[str, Any, bool]  # a name, a value in words, and whether the value is a figure
_LABELS: Final = {"at": "Time", "ip": "IP", "organization": "Organisation", "url": "URL"}
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
ROWS_ON_A_PAGE: Final = 50
# When an old secret ends after a rotation, in seconds and in words.
GRACES: Final = {"0": "at once", "3600": "in an hour", "86400": "in a day", "604800": "in a week"}


class ResourcePage(Page):
    """A page about rows of a resource, with the URL `NAME`, `NAME-new`, `NAME-row` or, for what is
    done to a row, `NAME-VERB`."""

    resource: ClassVar[Resource[Any]]

    def row_address(self, row: Any) -> str:
        """Return the address of the page of the row, or of the one that follows a form."""
        return reverse(f"console:{self.name}-row", args=[row.pk])

    def sections(self) -> Sequence[Table]:
        """Return tables below the row or the rows."""
        return ()


class RowPage(ResourcePage):
    @cached_property
    def row(self) -> Any:
        return get_object_or_404(self.resource.rows(self.access), pk=self.kwargs["row_id"])

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"row": self.row}


class RowForm(FormPage, ResourcePage):
    """A form with `names` of the resource's fields, by default all, which stores the row."""

    form_class: ClassVar[type[ResourceForm]] = ResourceForm
    names: ClassVar[tuple[str, ...]] = ()
    done: ClassVar[str]  # the message, in which `{row}` is the row

    def make_form(self, data: QueryDict | None, row: Any = None, **more: Any) -> ResourceForm:
        return self.form_class(self.resource, self.access, data, self.names, row, **more)

    def stored(self, row: Any) -> HttpResponse:
        messages.success(self.request, self.done.format(row=row))
        return redirect(self.row_address(row))


class NewRow(RowForm):
    button = "Create"
    done = "{row} is created."

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        if not self.resource.may_create(self.access):
            raise PermissionDenied
        return self.make_form(data, initial=self.resource.initial(self.access))

    def save(self, form: ResourceForm) -> HttpResponse:
        new = self.resource.create(self.access, form.columns)
        if isinstance(new, Issued):
            return show_issued(self, new, self.row_address(new.row))
        return self.stored(new)


class ChangeRow(RowPage, RowForm):
    done = "{row} is changed."

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        return self.make_form(data, self.row)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        may_change = self.access.may(Action.MANAGE, self.row)
        return super().get_context_data(**kwargs) | {"may_change": may_change}

    def save(self, form: ResourceForm) -> HttpResponse:
        return self.stored(self.resource.change(self.access, self.row, form.changed_columns))


def show_issued(page: ResourcePage, new: Issued, back: str) -> HttpResponse:
    help_text = page.resource.answer_of("create")().fields["secret"].help_text
    return show_secret(page, str(new.row), f"{help_text} It is shown once.", new.secret, back)


def show_secret(
    page: Page, heading: str, text: str, secret: str, back: str, **more: Any
) -> HttpResponse:
    """Return the page with a secret, which is never shown again."""
    shown = {"heading": heading, "text": text, "secret": secret, "back": back, **more}
    return render(page.request, "console/issued.html", Page.get_context_data(page, **shown))


class ConfirmPage(RowPage):
    """Asks, does something to the row, and returns to another page with a message about it. Buttons
    of other pages send the form without the question."""

    template_name = "console/confirm.html"
    does: str = ""  # `remove`, or the name of an action of the resource

    @property
    def action(self) -> RowAction | None:
        return None if self.does == "remove" else self.resource.action(self.does)

    def text(self) -> str:
        """Return what the page says. The sentence about other rows that go with the row follows."""
        return self.action.help if self.action else self.resource.help["remove"]

    def done_text(self) -> str:
        done = self.action.done or "changed" if self.action else "removed"
        return f"{self.row} is {done}."

    def back_address(self) -> str:
        return reverse(f"console:{self.name}")

    def check(self) -> None:
        """Raise `PermissionDenied` for a user who would get it as the answer."""
        permission = self.action.permission if self.action else self.resource.removal
        require(self.access, permission, self.row)

    def act(self) -> Any:
        """Do it. Raises `PermissionDenied`, ValidationError and `Conflict`."""
        if self.action is None:
            return self.resource.remove(self.access, self.row)
        takes_grace = "grace_s" in self.action.serializer().fields
        asked = self.request.POST.get("grace", "")
        values = {"grace_s": int(asked) if asked in GRACES else 0} if takes_grace else {}
        return self.resource.act(self.access, self.action, self.row, **values)

    def issued(self, new: Issued) -> HttpResponse:
        return show_issued(self, new, self.back_address())

    def report(self, result: Any, done: str) -> HttpResponse | None:
        """Add a message, or return a page. `done` is `done_text` as it was before."""
        if isinstance(result, Mapping):
            facts = "; ".join(f"{words_of(k)}: {text_of(v)}" for k, v in result.items() if v != "")
            done = f"{verb(self.does)}: {facts}"
        messages.success(self.request, done)
        return None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Ask, unless the answer would be an error."""
        self.check()
        try:
            if self.does == "remove":
                check_removable(self.row)
        except ValidationError as error:
            return self.refused(error)
        return super().get(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        done, back = self.done_text(), self.back_address()
        try:
            result = self.act()
        except (ValidationError, Conflict) as error:
            return self.refused(error)
        if isinstance(result, Issued):
            return self.issued(result)
        return self.report(result, done) or redirect(back)

    def refused(self, error: ValidationError | Conflict) -> HttpResponse:
        messages.error(self.request, " ".join(getattr(error, "messages", [str(error)])))
        return redirect(self.back_address())

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {
            "graces": GRACES.items() if self.does == "rotate" else (),
            "heading": f"{verb(self.does)}: {self.row}",
            "text": f"{self.text()} {self.resource.affected(self.does, self.row)}",
            "button": verb(self.does),
            "is_danger": self.does in ("remove", "deactivate", "revoke"),
            "back": self.back_address(),
        }


def words_of(name: str) -> str:
    return name.removeprefix("is_").removeprefix("num_").removesuffix("_at").replace("_", " ")


def verb(does: str) -> str:
    return does.replace("_", " ").capitalize()


def page_of(rows: QuerySet[Any], request: HttpRequest) -> dict[str, Any]:
    """Return a page of perhaps millions of rows. A page after the last one is the first."""
    asked = request.GET.get("page", "")
    number = max(1, int(asked)) if re.fullmatch("[0-9]{1,6}", asked) else 1
    begin = (number - 1) * ROWS_ON_A_PAGE
    found = list(rows[begin : begin + ROWS_ON_A_PAGE + 1])
    if not found and number > 1:
        number, found = 1, list(rows[: ROWS_ON_A_PAGE + 1])
    return {
        "rows": found[:ROWS_ON_A_PAGE],
        "previous": _address(request, number - 1) if number > 1 else "",
        "next": _address(request, number + 1) if len(found) > ROWS_ON_A_PAGE else "",
    }


def _address(request: HttpRequest, number: int) -> str:
    query = request.GET.copy()
    query["page"] = str(number)
    return f"?{query.urlencode()}"


class FilterForm(forms.Form):
    """The filters of a resource that its pages offer. An invalid value is shown at its field, and
    ignored. The id of an owner is chosen from a list."""

    def __init__(self, resource: Resource[Any], access: Access, data: Any) -> None:
        super().__init__(data)
        self._filters = resource.filters()
        for name in resource.page_filters:
            known: Any = self._filters.fields[name]
            field = self.fields[name] = form_field(known)
            field.widget.attrs["title"], kind = field.help_text, name.removesuffix("_id")
            field.help_text = ""
            if kind in OWNERS:
                self.fields[name] = _owner_field(access, kind, data.get(name, ""))
            elif isinstance(field, forms.ChoiceField):
                field.choices = [("", "any"), *known.choices.items()]

    @cached_property
    def wanted(self) -> dict[str, Any]:
        """The lookup and the value of each filter that is set."""
        self.is_valid()
        values = self.cleaned_data.items()
        return {str(self._filters.fields[name].source): value for name, value in values if value}

    def narrow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        for lookup, value in self.wanted.items():
            rows = self._filters.narrow(rows, lookup, value)
        return rows


def _owner_field(access: Access, kind: str, chosen: str) -> forms.Field:
    found = owner_choices({kind: access.rows(OWNERS[kind])}, f"{kind}:{chosen}")
    rows = [(key.partition(":")[2], name) for _, group in found for key, name in group]
    widget = forms.Select if len(rows) > 1 else forms.HiddenInput
    label, choices = kind.replace("z", "s").capitalize(), [("", "any"), *rows]
    return forms.ChoiceField(choices=choices, required=False, label=label, widget=widget)


@dataclass(frozen=True, slots=True)
class Table:
    """For each row the address of its page, or an empty text, the row itself and its cells."""

    title: str
    rows: Sequence[tuple[str, Any, Sequence[Cell]]]

    @property
    def columns(self) -> list[str]:
        names = [f"{'#' * is_figure}{name}" for name, _, is_figure in self.rows[0][2]]
        return [*names, ""] if any(address for address, *_ in self.rows) else names


def cells_of(row: Any, columns: Columns, extras: Mapping[str, Any] = _NONE) -> list[Cell]:
    """Return the cells of a row. Its name is the first."""
    names = sorted(columns, key=lambda name: name != "name")
    values = ((k, extras[k] if k in extras else columns[k](row)) for k in names)
    return [cell_of(k, value) for k, value in values if k != "id"]


def cell_of(name: str, value: Any) -> Cell:
    words = words_of(name)
    label, is_figure = _LABELS.get(words, words[:1].upper() + words[1:]), False
    match value:
        case bool() if label == "Active":
            value = state(value, "deactivated")
        case datetime():
            value = moment(value, seconds=True)
        case int() | float() if not isinstance(value, bool):
            value, is_figure = f"{value:,}", True
        case str() if name == "request_id" and value:
            address = reverse("console:request", args=[value])
            value = format_html('<a href="{}">{}</a>', address, value)
        case _ if not isinstance(value, SafeString):
            value = text_of(value)
    return label, value, is_figure


class Rows(ResourcePage):
    template_name = "console/rows.html"
    title: str = ""
    note: str = ""
    empty_text: str = ""  # by default that of the resource
    ordering: ClassVar[tuple[str, ...]] = ()

    def buttons(self) -> Mapping[str, str]:
        """Return addresses by texts; the first is the usual one."""
        if not self.resource.may_create(self.access):
            return {}
        return {f"Create {self.resource.one}": reverse(f"console:{self.name}-new")}

    def may_open(self, row: Any) -> bool:
        return True

    def columns(self) -> Columns:
        return self.resource.columns

    def listed(self) -> QuerySet[Any]:
        return self.resource.listed(self.access)

    def extras(self, rows: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """Return further values of each row, read at once for all."""
        return self.resource.extra_columns(rows)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        resource = self.resource
        form = FilterForm(resource, self.access, self.request.GET)
        rows = form.narrow(self.listed())
        found = page_of(rows.order_by(*(self.ordering or resource.ordering), "-pk"), self.request)
        shown, columns = resource.load(found["rows"]), self.columns()
        extras = self.extras(shown)
        cells = [cells_of(row, columns, more) for row, more in zip(shown, extras, strict=True)]
        addresses = [self.row_address(row) if self.may_open(row) else "" for row in found["rows"]]
        table = Table("", list(zip(addresses, found["rows"], cells, strict=True)))
        return super().get_context_data(**kwargs) | found | {"form": form, "table": table}


class Row(ChangeRow):
    template_name = "console/row.html"
    presses: ClassVar[tuple[str, ...]] = ()  # actions that need no confirmation

    def links(self) -> Mapping[str, str]:
        """Return addresses of pages about the row, below `/console/`, by texts."""
        return {}

    def does(self) -> list[str]:
        """Return what the caller may do to the row."""
        actions = (each for each in self.resource.actions if not each.is_of_list)
        permissions = {each.name: each.permission for each in actions}
        if "remove" in self.resource.verbs:
            permissions["remove"] = self.resource.removal
        undone = "activate" if getattr(self.row, "is_active", False) else "deactivate"
        return [k for k, v in permissions.items() if k != undone and self.access.may(v, self.row)]

    def _facts(self, left_out: Container[str]) -> list[Cell]:
        """Return what the API shows of the row, but these fields. A related row has its name."""
        serializer = self.resource.serializer(context={"access": self.access})
        body = serializer.to_representation(self.row)
        for name, field in serializer.fields.items():
            if isinstance(field, VisibleRelatedField | DateTimeField):
                body[name] = attrgetter(str(field.source))(self.row)
        known = {"id", *(f"{name}_name" for name in body)}
        return [cell_of(k, v) for k, v in body.items() if k not in left_out and k not in known]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        may_change = "change" in self.resource.verbs and context["may_change"]
        return context | {
            "may_change": may_change,
            "facts": self._facts(context["form"].fields if may_change else ()),
            "buttons": [
                (verb(each), f"{self.request.path}{each}/", each in self.presses)
                for each in self.does()
            ],
        }

    def save(self, form: ResourceForm) -> HttpResponse:
        if "change" not in self.resource.verbs:
            raise PermissionDenied
        return super().save(form)


def add_generated_pages() -> None:
    for name, resource in registered().items():
        if not resource.title:
            continue
        row = f"{name}/<int:row_id>/"
        does = [each.name for each in resource.actions if not each.is_of_list]
        add_page(Rows, resource, f"{name}/", name)
        if "create" in resource.verbs:
            heading = f"Create {resource.one}"
            add_page(NewRow, resource, f"{name}/new/", f"{name}-new", heading=heading)
        add_page(Row, resource, row, f"{name}-row")
        for each in (*({"remove"} & resource.verbs), *does):
            add_page(ConfirmPage, resource, f"{row}{each}/", f"{name}-{each}", does=each)


def add_page(
    kind: type[Page], resource: Resource[Any], address: str, name: str, **more: str
) -> None:
    """Add a page of a resource below `/console/`, unless there is one of this name."""
    if not any(each.name == name for each in urlpatterns):
        made: Any = type(kind.__name__, (kind,), {"resource": resource, **more})
        at(address, name)(made)
