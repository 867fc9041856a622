"""The page of requests that ended two engines, and their release."""

from functools import cached_property
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from vinery_accounts.console.page import Page
from vinery_accounts.models import QuarantinedRequest
from vinery_accounts.resources.base import require
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.quarantine import QUARANTINE
from vinery_accounts.services.access import Access, Action

_ROWS: Final = 50


def num_quarantined(access: Access) -> int:
    """Return how many requests in quarantine the user sees."""
    return QUARANTINE.rows(access).count()


class Quarantine(Page):
    """`/console/quarantine/`. The newest first; `before=17` continues before that row."""

    name = "quarantine"
    template_name = "console/quarantine.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        rows = QUARANTINE.rows(self.access)
        before = id_of(self.request.GET.get("before", ""))
        if before is not None:
            rows = rows.filter(pk__lt=before)
        found = list(rows.order_by("-id")[: _ROWS + 1])
        shown = found[:_ROWS]
        return super().get_context_data(**kwargs) | {
            "rows": shown,
            "older": shown[-1].pk if len(found) > _ROWS else None,
            "may_release": any(self.access.may(Action.MANAGE, row) for row in shown[:1]),
            "is_off": not settings.VINERY_QUARANTINE_S,
        }


class Release(Page):
    """`/console/quarantine/<id>/release/`: asks for a confirmation, and releases."""

    name = "quarantine"
    template_name = "console/quarantine_release.html"

    @cached_property
    def row(self) -> QuarantinedRequest:
        """The request of the address. Raises `Http404` for one that the user may not see, and
        `PermissionDenied` for one that they may not release."""
        row = get_object_or_404(QUARANTINE.rows(self.access), pk=self.kwargs["row_id"])
        require(self.access, Action.MANAGE, row)
        return row

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"row": self.row}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        QUARANTINE.act(self.access, QUARANTINE.action("release"), self.row)
        messages.success(request, "The request is released.")
        return redirect("console:quarantine")
