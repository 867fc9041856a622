"""What the pages about the rows of a resource share: the list, one row, and a confirmation."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from vinery_accounts.console.page import Page
from vinery_accounts.resources.base import Conflict, Resource, require

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

    def to_list(self, message: str) -> HttpResponse:
        messages.success(self.request, message)
        return redirect(f"console:{self.name}")


class ListPage(ResourcePage):
    """A list of rows, in pages."""

    ordering: ClassVar[tuple[str, ...]]
    filter_form: ClassVar[Any] = None
    """A form whose `wanted` yields the lookup and the value of each filter that is set."""

    def queryset(self) -> QuerySet[Any]:
        return self.resource.rows(self.access)

    def shown(self, row: Any) -> Any:
        return row

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        rows = self.queryset()
        form = self.filter_form and self.filter_form(self.request.GET)
        wanted = list(form.wanted()) if form else []
        for lookup, value in wanted:
            rows = self.resource.filters().narrow(rows, lookup, value)
        page = page_of(rows.order_by(*self.ordering), self.request)
        context = {**page, "rows": [*map(self.shown, page["rows"])], "form": form}
        return super().get_context_data(**kwargs) | context | {"is_filtered": bool(wanted)}


class RowPage(ResourcePage):
    """A page about the row of the address."""

    @cached_property
    def row(self) -> Any:
        return get_object_or_404(self.resource.rows(self.access), pk=self.kwargs["row_id"])

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"row": self.row}


@dataclass(frozen=True, slots=True)
class Question:
    """The texts of a confirmation, in which `{row}` is the row."""

    heading: str
    text: str
    button: str
    done: str
    is_danger: bool = True


class ActPage(RowPage):
    """Does something to the row, and returns to another page with a message about it."""

    does: str = ""
    """`remove`, or the name of an action of the resource."""

    def act(self) -> None:
        """Do it. Raises `PermissionDenied`, ValidationError and `Conflict`."""
        if self.does == "remove":
            self.resource.remove(self.access, self.row)
        else:
            self.resource.act(self.access, self.resource.action(self.does), self.row)

    def done_text(self) -> str:
        return f"The {self.row} is {self.resource.action(self.does).done}."

    def back_address(self) -> str:
        return reverse(f"console:{self.name}")

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        done, back = self.done_text(), self.back_address()
        try:
            self.act()
        except (ValidationError, Conflict) as error:
            messages.error(request, " ".join(getattr(error, "messages", [str(error)])))
        else:
            messages.success(request, done)
        return redirect(back)


class ButtonPage(ActPage):
    """Acts at the press of a button of another page."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return to the page: after sign-in, a button pressed without a session leads here."""
        text = f"Nothing was changed yet. To {self.does} {self.row}, press the button again."
        messages.info(request, text)
        return redirect(self.back_address())


class ConfirmPage(ActPage):
    """Asks before it acts."""

    template_name = "console/confirm.html"
    questions: ClassVar[dict[str, Question]]

    def done_text(self) -> str:
        return self.questions[self.does].done.format(row=self.row)

    def about(self) -> str:
        """Return what `{about}` of the texts means, where the row alone is not enough."""
        return ""

    def check(self) -> None:
        remove = self.does == "remove"
        permission = self.resource.removal if remove else self.resource.action(self.does).permission
        require(self.access, permission, self.row)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        self.check()
        question = self.questions[self.does]
        return super().get_context_data(**kwargs) | {
            "heading": question.heading.format(row=self.row),
            "text": question.text.format(row=self.row, about=self.about()),
            "button": question.button,
            "is_danger": question.is_danger,
            "back": self.back_address(),
        }


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
