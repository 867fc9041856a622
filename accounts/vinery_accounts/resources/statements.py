"""The usage and the cost of an owner in one month, by model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from django import forms
from django.db.models import Q, QuerySet
from django.utils import timezone

from vinery_accounts.access.access import Access
from vinery_accounts.base.money import MILLION, money
from vinery_accounts.models import ApiKey, Currency, ModelWeight, Project, User
from vinery_accounts.models.limits import check_time_zone
from vinery_accounts.resources.limits import owner_choices
from vinery_accounts.usage import reports
from vinery_accounts.usage.export import csv_of
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Figures, Question

_MAX_MODELS: Final = 1000
_NUM_MONTHS: Final = 24
_SUMS: Final = ("num_requests", "num_prompt_tokens", "num_cached_tokens", "num_output_tokens")
_UNKNOWN: Final = {"invalid_choice": "Choose an entry of the list."}


def _owners(access: Access) -> Mapping[str, QuerySet[Any]]:
    """Return whose statement a person may read: of all that the person leads, and of oneself."""
    led = access.led_organizations()
    projects = [pk for pk in access.projects if access.leads(None, pk)]
    oneself = User.objects.filter(pk=access.user_id or 0)
    of_led = Q(pk__in=access.rows_to_limit(ApiKey).order_by().values("pk"))
    return {
        "organization": led,
        "project": access.rows(Project).filter(Q(organization__in=led) | Q(pk__in=projects)),
        "user": oneself | access.rows_to_limit(User),
        "key": ApiKey.objects.filter(Q(owner__in=oneself) | of_led),
    }


def _months(now: datetime) -> Iterator[tuple[str, str]]:
    for back in range(_NUM_MONTHS):
        year, month = divmod(now.year * 12 + now.month - 1 - back, 12)
        yield f"{year}-{month + 1:02}", f"{date(year, month + 1, 1):%B %Y}"


class StatementForm(forms.Form):
    of = forms.ChoiceField(label="Whose", error_messages=_UNKNOWN)
    month = forms.ChoiceField(error_messages=_UNKNOWN)
    zone = forms.CharField(label="Time zone", max_length=64, validators=[check_time_zone])

    def __init__(self, access: Access, asked: Mapping[str, str]) -> None:
        self._access, self._owners = access, list(owner_choices(_owners(access)))
        months, zone = list(_months(timezone.localtime())), timezone.get_current_timezone_name()
        first = {"of": self._owners[0][1][0][0], "month": months[0][0], "zone": zone}
        super().__init__({name: asked.get(name) or value for name, value in first.items()})
        of, month = self.fields["of"], self.fields["month"]
        assert isinstance(of, forms.ChoiceField) and isinstance(month, forms.ChoiceField)
        of.choices, month.choices = self._owners, months

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
