"""The statement of an owner in one month, to print or to export."""

from functools import cached_property
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from vinery_accounts.access.access import Access
from vinery_accounts.console.page import Page, at
from vinery_accounts.resources.statements import Statement, StatementForm

_FILE = 'attachment; filename="statement.csv"'


@at("statements/", "statements")
class StatementPage(Page):
    """`of` is the owner, such as `project:3`; `month` is such as `2026-10`."""

    name = "usage"
    template_name = "console/statement.html"

    @cached_property
    def form(self) -> StatementForm:
        # A statement is whole, whatever the other pages are narrowed to.
        return StatementForm(Access.of(self.user), self.request.GET.dict())

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs) | {"form": self.form}
        if not self.form.is_valid():
            return context
        return context | {"statement": Statement(self.form.question), "now": timezone.now()}


@at("statements/statement.csv", "statement-file")
class StatementFile(StatementPage):
    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        context = self.get_context_data()
        if "statement" not in context:
            return self.render_to_response(context, status=400)
        text, headers = context["statement"].csv(), {"Content-Disposition": _FILE}
        return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)
