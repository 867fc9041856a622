"""Statements: the usage and the cost of a question, by model."""

from dataclasses import dataclass
from typing import Any, Final

from vinery_accounts.base.money import MILLION, money
from vinery_accounts.models import Currency, ModelWeight
from vinery_accounts.usage import reports
from vinery_accounts.usage.export import csv_of
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.reports import Figures, Question

_MAX_MODELS: Final = 1000
_SUMS: Final = ("num_requests", "num_prompt_tokens", "num_cached_tokens", "num_output_tokens")


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
