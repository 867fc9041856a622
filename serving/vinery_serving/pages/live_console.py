"""Console pages about the requests that run now, and the form that stops one."""

from functools import cached_property
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils import timezone

from vinery_accounts.console.page import FormPage, LivePage, at
from vinery_accounts.console.words import count, in_time
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.forms import ParametersForm
from vinery_serving.models import live_requests
from vinery_serving.models.live_requests import StopSerializer
from vinery_serving.models.live_socket import LiveRow, Stage

# More rows would make the page slow; the oldest are shown.
_MOST_ROWS: Final = 200


@at("live/", "live")
class Live(LivePage):
    template_name = "console/live_requests.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found = live_requests.live_rows(self.access)
        shown = found[:_MOST_ROWS]
        may_stop = live_requests.stoppable(self.access, shown)
        now = timezone.now()
        return super().get_context_data(**kwargs) | {
            "num_more": len(found) - len(shown),
            "num_rows": len(found),
            "num_waiting": sum(row.stage is not Stage.GENERATING for row in found),
            "tokens_per_s": sum(row.tokens_per_s or 0.0 for row in found),
            "rows": [
                {
                    "row": row,
                    "tokens": count(row.num_output_tokens),
                    "age": in_time(max(0.0, (now - row.admission.started_at).total_seconds())),
                    "may_stop": row.admission.request_id in may_stop,
                }
                for row in shown
            ],
        }


@at("live/<str:request_id>/stop/", "live-stop")
class Stop(FormPage):
    heading = "Stop this request?"
    button = "Stop the request"
    note = (
        "What was generated so far stays charged, and the audit log gets an entry. The client can "
        "send the request again. To prevent that, pause or revoke its key."
    )

    @cached_property
    def row(self) -> LiveRow:
        """Raises `Http404` and `PermissionDenied`."""
        row = live_requests.find(self.access, self.kwargs["request_id"])
        if not live_requests.stoppable(self.access, [row]):
            raise PermissionDenied
        return row

    def form_of(self, data: QueryDict | None) -> ParametersForm:
        return ParametersForm(StopSerializer, ("reason",), data)

    def texts(self) -> dict[str, Any]:
        asked = self.row.admission
        whose = f"{asked.username}, key {asked.key_name}" if asked.key_name else asked.username
        num = self.row.num_output_tokens
        return {"intro": f"A request of {whose} to {asked.model}, with {num} tokens so far."}

    def save(self, form: ParametersForm) -> HttpResponse:
        try:
            live_requests.stop(self.access, self.kwargs["request_id"], **form.values)
        except Conflict as error:
            messages.info(self.request, str(error))
        else:
            messages.success(self.request, "The request is stopped.")
        return redirect("console:live")
