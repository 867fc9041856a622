"""The statement of an owner in one month, to print or to export."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any, Final
from zoneinfo import ZoneInfo

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from vinery_accounts.access.access import Access
from vinery_accounts.base.money import MILLION, money
from vinery_accounts.console.page import Page, at, csv_file
from vinery_accounts.models import Currency, ModelWeight
from vinery_accounts.models.limits import check_time_zone
from vinery_accounts.resources.limits import owner_choices
from vinery_accounts.resources.usage import readable_owners
from vinery_accounts.usage import reports
from vinery_accounts.usage.export import csv_of
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Figures, Question

_MAX_MODELS: Final = 1000
_SUMS: Final = ("num_requests", "num_prompt_tokens", "num_cached_tokens", "num_output_tokens")
_UNKNOWN: Final = {"invalid_choice": "Choose an entry of the list."}


def _months(now: datetime) -> Iterator[tuple[str, str]]:
    for back in range(24):
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


@dataclass(frozen=True, slots=True)
class Line:
    """The usage of a model, or of all. `currency` is empty without one."""

    name: str
    figures: Figures
    currency: str
    is_priced: bool = True

    @property
    def cost(self) -> str:
        return money(self.figures.cost, self.currency)

    @property
    def mean_cost(self) -> str:
        """The cost of a million tokens."""
        figures = self.figures
        if not self.is_priced and not figures.cost:
            return "no price"
        return f"{figures.cost / figures.num_tokens:,.3f}" if figures.num_tokens else "-"


class Statement:
    """The lines of a question, and their total, of the period that the report has."""

    def __init__(self, question: Question) -> None:
        self.currency = Currency.objects.first()
        code, total = str(self.currency or ""), reports.totals(question)
        self.since, self.until = (e.astimezone(question.zone) for e in (total.since, total.until))
        self.total = Line("All models", total.figures, code)
        priced = set(ModelWeight.objects.values_list("model", flat=True))
        largest, by = "cost" if code else "num_tokens", [Dimension.MODEL]
        found = reports.groups(question, by, max_groups=_MAX_MODELS, largest=largest)
        self.lines = [
            Line(str(name or "(none)"), each.figures, code, name in priced)
            for each in found.groups
            for name in each.values
        ]

    def csv(self) -> str:
        columns = ("model", *_SUMS, "cost", "currency")
        rows: list[dict[str, Any]] = [dict(zip(columns, columns, strict=True))]
        for line in (*self.lines, self.total):
            sums = {name: getattr(line.figures, name) for name in _SUMS}
            cost = round(line.figures.cost / MILLION, 9) if line.currency else None
            name = "all" if line is self.total else line.name
            rows.append({"model": name, **sums, "cost": cost, "currency": line.currency})
        return csv_of(rows, columns)


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
