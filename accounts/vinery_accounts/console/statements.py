"""The statement of an owner in one month, to print or to export."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from functools import cached_property
from typing import Any, Final
from zoneinfo import ZoneInfo

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from vinery_accounts.access.access import Access
from vinery_accounts.console.page import Page, at, csv_file
from vinery_accounts.models.limits import check_time_zone
from vinery_accounts.resources.limits import owner_choices
from vinery_accounts.resources.usage import readable_owners
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Question
from vinery_accounts.usage.statements import Statement

_NUM_MONTHS: Final = 24
_UNKNOWN: Final = {"invalid_choice": "Choose an entry of the list."}


def _months(now: datetime) -> Iterator[tuple[str, str]]:
    for back in range(_NUM_MONTHS):
        year, month = divmod(now.year * 12 + now.month - 1 - back, 12)
        yield f"{year}-{month + 1:02}", f"{date(year, month + 1, 1):%B %Y}"


class StatementForm(forms.Form):
    zone = forms.CharField(label="Time zone", max_length=64, validators=[check_time_zone])

    def __init__(self, access: Access, asked: Mapping[str, str]) -> None:
        self._access, self._owners = access, list(owner_choices(readable_owners(access)))
        months, zone = list(_months(timezone.localtime())), timezone.get_current_timezone_name()
        first = {"of": self._owners[0][1][0][0], "month": months[0][0], "zone": zone}
        super().__init__({name: asked.get(name) or value for name, value in first.items()})
        choices: dict[str, list[Any]] = {"of": self._owners, "month": months}
        for name, found in choices.items():
            self.fields[name] = forms.ChoiceField(choices=found, error_messages=_UNKNOWN)
        self.fields["of"].label = "Whose"
        self.order_fields(first)

    @property
    def owner(self) -> str:
        """The kind and the name of the owner."""
        of: str = self.cleaned_data["of"]
        names = {key: name for _, group in self._owners for key, name in group}
        return f"{of.partition(':')[0].replace('z', 's').capitalize()} {names[of]}"

    @property
    def is_partial(self) -> bool:
        """Whether the owner may have usage that the reader does not see."""
        of: str = self.cleaned_data["of"]
        is_other = of.startswith("user:") and of != f"user:{self._access.user_id}"
        return is_other and not self._access.is_superuser

    @property
    def question(self) -> Question:
        kind, _, owner = self.cleaned_data["of"].partition(":")
        year, month = map(int, self.cleaned_data["month"].split("-"))
        zone = ZoneInfo(self.cleaned_data["zone"])
        return Question(
            since=datetime(year, month, 1, tzinfo=zone),
            until=datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone),
            filters={Dimension(kind): frozenset({int(owner)})},
            visible=self._access.visible(),
            zone=zone,
        )


@at("statements/", "statements")
class StatementPage(Page):
    """`of` is the owner, such as `project:3`; `month` is such as `2026-10`."""

    name = "usage"

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
        return csv_file("statement.csv", context["statement"].csv())
