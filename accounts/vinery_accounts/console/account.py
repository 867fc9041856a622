"""One's own keys, usage of this month, and the limits that hold for oneself. The other pages of the
own account are those of `signin`."""

from datetime import UTC
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from vinery_accounts.console.limits import limit_rows
from vinery_accounts.console.overview import tiles
from vinery_accounts.console.page import Page, at, before
from vinery_accounts.models import ApiKey, Limit, LimitScope, User
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
        mine = KEYS.rows(self.access).filter(owner=self.user, revoked_at=None)
        since, until = calendar_month(now.astimezone(UTC), is_last=False)
        filters = {Dimension.USER: frozenset({self.user.pk})}
        visible = self.access.visible()
        question = reports.Question(since=since, until=until, filters=filters, visible=visible)
        earlier = reports.totals(before(question)).figures
        binding = self.access.rows(Limit).filter(_binds(self.user, mine))
        return super().get_context_data(**kwargs) | {
            "keys": [(key, key.state_at(now)) for key in mine.order_by("-pk")[:_MAX_KEYS]],
            "tiles": tiles(reports.totals(question).figures, earlier),
            **limit_rows(self.access, binding),
        }


def _binds(user: User, keys: QuerySet[ApiKey]) -> Q:
    """Return the condition on limits that a request of the user must fit."""
    of_key = Q(scope=LimitScope.KEY, scope_id__in=keys.values("pk"))
    of_project = Q(scope=LimitScope.PROJECT, scope_id__in=keys.values("project"))
    organizations = keys.values("project__organization")
    of_organization = Q(scope=LimitScope.ORGANIZATION, scope_id__in=organizations)
    of_user = Q(scope=LimitScope.USER, scope_id=user.pk)
    of_all = Q(scope__in=(LimitScope.PLATFORM, LimitScope.MODEL))
    return of_key | of_project | of_organization | of_user | of_all
