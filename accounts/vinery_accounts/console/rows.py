"""The parts of pages about rows of a resource: one row, its form, and a confirmation."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from vinery_accounts.access.access import Action
from vinery_accounts.access.changes import check_removable
from vinery_accounts.console.page import FormPage, Page
from vinery_accounts.resources.base import Conflict, Issued, Resource, RowAction, require
from vinery_accounts.resources.forms import ResourceForm, text_of

ROWS_ON_A_PAGE: Final = 50
# When an old secret ends after a rotation, in seconds and in words.
GRACES: Final = {"0": "at once", "3600": "in an hour", "86400": "in a day", "604800": "in a week"}


class ResourcePage(Page):
    """A page about rows of a resource. The list of the rows has the URL `name`."""

    resource: ClassVar[Resource[Any]]


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
    done: ClassVar[str]  # the message, in which `{row}` is the row

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

    def form_of(self, data: QueryDict | None) -> ResourceForm:
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
