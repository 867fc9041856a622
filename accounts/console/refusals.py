"""The page of refusals, each with a sentence that gives the reason."""

from typing import Any, Final

from vinery_accounts.console.page import UsagePage
from vinery_accounts.console.words import reason
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.owners import owners_of
from vinery_accounts.resources.refusals import REFUSALS
from vinery_accounts.usage.filters import Dimension, among

_ROWS: Final = 50


class Refusals(UsagePage):
    """`/console/refusals/`. The newest first; `before=17` continues before that row."""

    name = "refusals"
    template_name = "console/refusals.html"
    dimensions = frozenset(Dimension) - {Dimension.ENDPOINT, Dimension.OUTCOME, Dimension.STATUS}

    def follows(self, name: str, value: str) -> bool:
        return name == "before" and (not value or id_of(value) is not None)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        rows = REFUSALS.rows(self.access).filter(
            created_at__gte=self.period.since, created_at__lt=self.period.until
        )
        for dimension, values in self.filters.items():
            rows = rows.filter(among(dimension, values))
        before = id_of(self.request.GET.get("before", ""))
        if before is not None:
            rows = rows.filter(pk__lt=before)
        found = list(rows.order_by("-id")[: _ROWS + 1])
        shown = found[:_ROWS]
        owners = owners_of(self.access, [row.scope for row in shown])
        return super().get_context_data(**kwargs) | {
            "rows": [{"row": row, "reason": reason(row, owners[row.scope])} for row in shown],
            "older": self.address(before=str(shown[-1].pk)) if len(found) > _ROWS else "",
        }
