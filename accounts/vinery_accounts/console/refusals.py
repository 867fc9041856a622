"""The page of rate limit events, each with a sentence that gives the reason."""

from typing import Any, Final

from django.db.models import Count, QuerySet

from vinery_accounts.console.page import UsagePage
from vinery_accounts.console.words import reason
from vinery_accounts.limits.rules import in_words
from vinery_accounts.models import RefusedRequest
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.owners import owners_of
from vinery_accounts.resources.refusals import REFUSALS
from vinery_accounts.usage.effects import Effect
from vinery_accounts.usage.filters import Dimension, among

_ROWS: Final = 50
_MOST: Final = 5


class Refusals(UsagePage):
    """`/console/refusals/`. The newest first; `before=17` continues before that row."""

    name = "refusals"
    template_name = "console/refusals.html"
    dimensions = frozenset(Dimension) - {
        *(Dimension.ENDPOINT, Dimension.OUTCOME, Dimension.STATUS, Dimension.END_USER)
    }

    def follows(self, name: str, value: str) -> bool:
        match name:
            case "before" | "limit":
                return not value or id_of(value) is not None
            case "effect":
                return value in ("", *Effect.values)
        return False

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        matching = self._matching()
        before = id_of(self.request.GET.get("before", ""))
        rows = matching if before is None else matching.filter(pk__lt=before)
        found = list(rows.order_by("-id")[: _ROWS + 1])
        shown = found[:_ROWS]
        most = _most_refused(matching)
        owners = owners_of(
            self.access, [*(row.scope for row in shown), *(row["scope"] for row in most)]
        )
        asked = self.request.GET.get("effect", "")
        return super().get_context_data(**kwargs) | {
            "rows": [{"row": row, "reason": reason(row, owners[row.scope])} for row in shown],
            "older": self.address(before=str(shown[-1].pk)) if len(found) > _ROWS else "",
            "most": [self._sum(row, owners[row["scope"]]) for row in most],
            "effects": [
                (label, self.address(effect=value or None, before=None), value == asked)
                for value, label in (("", "all"), *Effect.choices)
            ],
        }

    def _matching(self) -> QuerySet[RefusedRequest]:
        """Return the events of the period that the filters of the address match."""
        rows = REFUSALS.rows(self.access).filter(
            created_at__gte=self.period.since, created_at__lt=self.period.until
        )
        for dimension, values in self.filters.items():
            rows = rows.filter(among(dimension, values))
        limit_id, effect = id_of(self.request.GET.get("limit", "")), self.request.GET.get("effect")
        if limit_id is not None:
            rows = rows.filter(limit_id=limit_id)
        if effect in Effect.values:
            narrowed: QuerySet[RefusedRequest] = REFUSALS.filters().narrow(rows, "effect", effect)
            return narrowed
        return rows

    def _sum(self, row: dict[str, Any], owner: str) -> dict[str, Any]:
        user, limit = str(row["user_id"] or ""), str(row["limit_id"] or "")
        return {
            **row,
            "limit": f"{in_words(row['metric'], row['window'])} of {owner}",
            "address": self.address(user=user or None, limit=limit or None, before=None),
        }


def _most_refused(rows: QuerySet[RefusedRequest]) -> list[dict[str, Any]]:
    """Return the users and limits with the most events, if there are several."""
    columns = ("user_id", "username", "limit_id", "scope", "metric", "window")
    sums = rows.order_by().values(*columns).annotate(num_events=Count("id"))
    found = list(sums.order_by("-num_events")[:_MOST])
    return found if len(found) > 1 else []
