"""The pages about the rows of any resource: the list, one row, its form, and a confirmation. A
resource without special pages gets these, generated."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from vinery_accounts.access.access import Action
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.resources.base import Conflict, Issued, Resource, registered, require
from vinery_accounts.resources.forms import ResourceForm, form_field, text_of

ROWS_ON_A_PAGE: Final = 50
GRACES: Final = [
    ("0", "at once"),
    ("3600", "in an hour"),
    ("86400", "in a day"),
    ("604800", "in a week"),
]
"""When an old secret ends after a rotation, in seconds and in words."""


def grace_of(request: HttpRequest) -> int:
    grace = request.POST.get("grace", "")
    return int(grace) if grace in dict(GRACES) else 0


class ResourcePage(Page):
    """A page about rows of a resource. The list of the rows has the URL `name`."""

    resource: ClassVar[Resource[Any]]


class FilterForm(forms.Form):
    """Filters of a resource. An invalid value is shown at its field, and ignored. `inputs` has the
    attributes of the input of each filter."""

    lookups: ClassVar[Mapping[str, str]] = {}
    """Those of the fields with other names."""

    def __init__(
        self, resource: Resource[Any], inputs: Mapping[str, Mapping[str, Any]], data: Any
    ) -> None:
        super().__init__(data)
        self._filters = resource.filters()
        for name, attributes in inputs.items():
            known: Any = self._filters.fields[name]
            field = self.fields[name] = form_field(known)
            field.help_text = ""
            if isinstance(field, forms.ChoiceField):
                field.choices = [("", "any"), *known.choices.items()]
            else:
                field.widget = forms.TextInput({**attributes, **field.widget.attrs})
        self.order_fields(inputs)

    @cached_property
    def wanted(self) -> dict[str, Any]:
        """The lookup and the value of each filter that is set."""
        self.is_valid()
        values = self.cleaned_data.items()
        return {self.lookups.get(name, name): value for name, value in values if value}

    def narrow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        for lookup, value in self.wanted.items():
            rows = self._filters.narrow(rows, lookup, value)
        return rows


class ListPage(ResourcePage):
    """A list of rows, in pages."""

    ordering: ClassVar[tuple[str, ...]] = ()
    inputs: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The filters that the page offers, see `FilterForm`."""
    filter_form: ClassVar[type[FilterForm]] = FilterForm

    def queryset(self) -> QuerySet[Any]:
        return self.resource.rows(self.access)

    def shown(self, row: Any) -> Any:
        return row

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = self.filter_form(self.resource, self.inputs, self.request.GET)
        ordering = self.ordering or (*self.resource.ordering, "-pk")
        page = page_of(form.narrow(self.queryset()).order_by(*ordering), self.request)
        context = {**page, "rows": [*map(self.shown, page["rows"])], "form": form}
        return super().get_context_data(**kwargs) | context | {"is_filtered": bool(form.wanted)}


class RowPage(ResourcePage):
    """A page about the row of the address."""

    @cached_property
    def row(self) -> Any:
        return get_object_or_404(self.resource.rows(self.access), pk=self.kwargs["row_id"])

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"row": self.row}


class RowForm(FormPage, ResourcePage):
    """A form with `names` of the resource's fields, by default all, which stores the row."""

    form_class: ClassVar[type[ResourceForm]] = ResourceForm
    names: ClassVar[tuple[str, ...]] = ()
    done: ClassVar[str]
    """The message, in which `{row}` is the row."""

    def make_form(self, data: QueryDict | None, row: Any = None, **more: Any) -> ResourceForm:
        return self.form_class(self.resource, self.access, data, self.names, row, **more)

    def stored(self, row: Any) -> HttpResponse:
        messages.success(self.request, self.done.format(row=row))
        return redirect(self.row_address(row))

    def row_address(self, row: Any) -> str:
        """Return the address of the next page, that of the row."""
        return reverse(f"console:{self.name.removesuffix('s')}", args=[row.pk])


class NewRow(RowForm):
    button = "Create"
    done = "{row} is created."

    def offered(self) -> dict[str, QuerySet[Any]]:
        """Return the rows of a field that does not offer all rows that the user sees."""
        return {}

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        initial = self.resource.initial(self.access)
        return self.make_form(data, rows=self.offered(), initial=initial)

    def save(self, form: ResourceForm) -> HttpResponse:
        new = self.resource.create(self.access, form.columns)
        return self.issued(new) if isinstance(new, Issued) else self.stored(new)

    def issued(self, new: Issued) -> HttpResponse:
        return show_secret(self, new, self.row_address(new.row))


class ChangeRow(RowPage, RowForm):
    done = "{row} is changed."

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        return self.make_form(data, self.row)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        may_change = self.access.may(Action.MANAGE, self.row)
        return super().get_context_data(**kwargs) | {"may_change": may_change}

    def save(self, form: ResourceForm) -> HttpResponse:
        return self.stored(self.resource.change(self.access, self.row, form.changed_columns))


def show_secret(page: Page, new: Issued, back: str, text: str = "") -> HttpResponse:
    """Return the page with the secret of a row, which is never shown again."""
    context = page.get_context_data() | {
        "heading": str(new.row),
        "text": text or "Copy this secret now. It is shown once.",
        "secret": new.secret,
        "copy": "Copy the secret",
        "back": back,
        "done": "Done",
    }
    return render(page.request, "console/issued.html", context)


@dataclass(frozen=True, slots=True)
class Question:
    """The texts of a confirmation, in which `{row}` is the row."""

    heading: str
    text: str
    done: str
    button: str = ""
    """By default the name of the action."""
    is_danger: bool = True


class ActPage(RowPage):
    """Does something to the row, and returns to another page with a message about it."""

    does: str = ""
    """`remove`, or the name of an action of the resource."""

    def act(self) -> Any:
        """Do it. Raises `PermissionDenied`, ValidationError and `Conflict`."""
        if self.does == "remove":
            return self.resource.remove(self.access, self.row)
        action = self.resource.action(self.does)
        takes_grace = "grace_s" in action.serializer().fields
        values = {"grace_s": grace_of(self.request)} if takes_grace else {}
        return self.resource.act(self.access, action, self.row, **values)

    def done_text(self) -> str:
        return f"The {self.row} is {self.resource.action(self.does).done}."

    def back_address(self) -> str:
        return reverse(f"console:{self.name}")

    def issued(self, new: Issued) -> HttpResponse:
        return show_secret(self, new, self.back_address())

    def report(self, result: Any, done: str) -> None:
        """Add a message. `done` is `done_text` as it was before."""
        messages.success(self.request, done)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        done, back = self.done_text(), self.back_address()
        try:
            result = self.act()
        except (ValidationError, Conflict) as error:
            messages.error(request, " ".join(getattr(error, "messages", [str(error)])))
        else:
            if isinstance(result, Issued):
                return self.issued(result)
            self.report(result, done)
        return redirect(back)


class ButtonPage(ActPage):
    """Acts at the press of a button of another page."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Redirect to the page: after sign-in, a button pressed without a session leads here."""
        text = f"Nothing was changed yet. To {self.does} {self.row}, press the button again."
        messages.info(request, text)
        return redirect(self.back_address())


class ConfirmPage(ActPage):
    """Asks before it acts."""

    template_name = "console/confirm.html"
    questions: ClassVar[dict[str, Question]] = {}

    @property
    def question(self) -> Question:
        return self.questions.get(self.does) or _question(self.resource, self.does)

    def done_text(self) -> str:
        return self.question.done.format(row=self.row)

    def about(self) -> str:
        """Return the value of `{about}` in the texts, where the row alone is not enough."""
        return ""

    def check(self) -> None:
        remove = self.does == "remove"
        permission = self.resource.removal if remove else self.resource.action(self.does).permission
        require(self.access, permission, self.row)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        self.check()
        question = self.question
        return super().get_context_data(**kwargs) | {
            "heading": question.heading.format(row=self.row),
            "text": question.text.format(row=self.row, about=self.about()),
            "button": question.button or _verb(self.does),
            "is_danger": question.is_danger,
            "back": self.back_address(),
        }


def _question(resource: Resource[Any], does: str) -> Question:
    """Return the question before an action, in the words of the resource."""
    if does == "remove":
        text, done = resource.help.get("remove", "This cannot be undone."), "removed"
    else:
        text, done = resource.action(does).help, resource.action(does).done or "changed"
    return Question(f"{_verb(does)} {{row}}?", text, f"{{row}} is {done}.")


def _verb(does: str) -> str:
    return does.replace("_", " ").capitalize()


def page_of(rows: QuerySet[Any], request: HttpRequest) -> dict[str, Any]:
    page = Paginator(rows, ROWS_ON_A_PAGE).get_page(request.GET.get("page"))
    return {
        "rows": list(page.object_list),
        "previous": _address(request, page.previous_page_number()) if page.has_previous() else "",
        "next": _address(request, page.next_page_number()) if page.has_next() else "",
    }


def _address(request: HttpRequest, number: int) -> str:
    query = request.GET.copy()
    query["page"] = str(number)
    return f"?{query.urlencode()}"


# -- The pages of a resource that has a `title`, and no pages of its own


class _Generated(ResourcePage):
    """Pages with the URLs `NAME`, `NAME-new`, `NAME-row` and, for all that is done, `NAME-VERB`."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        about = {"resource": self.resource, "list": reverse(f"console:{self.name}")}
        return super().get_context_data(**kwargs) | about

    def row_address(self, row: Any) -> str:
        return reverse(f"console:{self.name}-row", args=[row.pk])


class _Rows(_Generated, ListPage):
    template_name = "console/rows.html"

    def queryset(self) -> QuerySet[Any]:
        return self.resource.listed(self.access)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        columns = [each for each in self.resource.columns.items() if each[0] != "id"]
        shown = self.resource.load(context["rows"])
        names = [name.replace("_", " ").capitalize() for name, _ in columns]
        rows = []
        for row, extras in zip(shown, self.resource.extra_columns(shown), strict=True):
            values = (extras.get(name) or column(row) for name, column in columns)
            texts = zip(names, map(_cell, values), strict=True)
            rows.append((self.row_address(row), row, list(texts)))
        may_create = "create" in self.resource.verbs and self.access.is_leader
        return context | {"rows": rows, "columns": [*names, ""], "may_create": may_create}


def _cell(value: Any) -> Any:
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else text_of(value)


class _New(_Generated, NewRow):
    pass


class _Row(_Generated, ChangeRow):
    template_name = "console/row.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        verbs, actions = self.resource.verbs, self.resource.actions
        body = self.resource.serializer(context={"access": self.access}).to_representation(self.row)
        fields = context["form"].fields
        does = [each.name for each in actions if self.access.may(each.permission, self.row)]
        if "remove" in verbs and self.access.may(self.resource.removal, self.row):
            does.append("remove")
        return context | {
            "may_change": "change" in verbs and context["may_change"],
            "facts": [
                (k.replace("_", " "), text_of(v)) for k, v in body.items() if k not in fields
            ],
            "buttons": [
                (each.replace("_", " "), reverse(f"console:{self.name}-{each}", args=[self.row.pk]))
                for each in does
            ],
        }

    def save(self, form: ResourceForm) -> HttpResponse:
        if "change" not in self.resource.verbs:
            raise PermissionDenied
        return super().save(form)


class _Act(_Generated, ConfirmPage):
    pass


def add_generated_pages() -> None:
    for name, resource in registered().items():
        if not resource.title:
            continue
        row = f"{name}/<int:row_id>/"
        does = [each.name for each in resource.actions if not each.is_of_list]
        _add(_Rows, resource, f"{name}/", name)
        if "create" in resource.verbs:
            new = {"heading": f"Create {resource.one}"}
            _add(_New, resource, f"{name}/new/", f"{name}-new", **new)
        _add(_Row, resource, row, f"{name}-row")
        for each in (*({"remove"} & resource.verbs), *does):
            _add(_Act, resource, f"{row}{each}/", f"{name}-{each}", does=each)


def _add(
    page: type[Page], resource: Resource[Any], address: str, url_name: str, **more: str
) -> None:
    kind: Any = type(page.__name__, (page,), {"resource": resource, **more})
    at(address, url_name)(kind)
