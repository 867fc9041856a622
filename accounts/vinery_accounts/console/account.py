"""One's own keys, usage of this month, and the limits that hold for oneself. The other pages of the
own account are those of `signin`."""

from datetime import UTC
from typing import Any, Final

from django.db.models import Q
from django.utils import timezone

from vinery_accounts.console.limits import limit_rows
from vinery_accounts.console.overview import tiles
from vinery_accounts.console.page import Page, at, before
from vinery_accounts.models import Limit, LimitScope, Project
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.usage import reports
from vinery_accounts.usage.filters import Dimension
from vinery_accounts.usage.periods import calendar_month

_MAX_KEYS: Final = 50


@at("account/", "account")
class Account(Page):
    template_name = "console/account.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        now = timezone.now()
        mine = KEYS.rows(self.access).filter(owner=self.user, revoked_at=None).order_by("-pk")
        keys = list(mine[:_MAX_KEYS])
        since, until = calendar_month(now.astimezone(UTC), is_last=False)
        question = reports.Question(
            since=since,
            until=until,
            filters={Dimension.USER: frozenset({self.user.pk})},
            visible=self.access.visible(),
        )
        earlier = reports.totals(before(question)).figures
        rows, is_known = limit_rows(self.access, self._binding([key.project for key in keys]))
        return super().get_context_data(**kwargs) | {
            "keys": [(key, key.state_at(now)) for key in keys],
            "tiles": tiles(reports.totals(question).figures, earlier),
            "rows": rows,
            "is_known": is_known,
        }

    def _binding(self, projects: list[Project]) -> Any:
        """Return the limits that a request of the user must fit."""
        ids = {
            LimitScope.USER: [self.user.pk],
            LimitScope.KEY: KEYS.rows(self.access).filter(owner=self.user).values("pk"),
            LimitScope.PROJECT: [each.pk for each in projects],
            LimitScope.ORGANIZATION: [each.organization_id for each in projects],
        }
        binds = Q(scope__in=(LimitScope.PLATFORM, LimitScope.MODEL))
        for scope, owners in ids.items():
            binds |= Q(scope=scope, scope_id__in=owners)
        return self.access.rows(Limit).filter(binds)
