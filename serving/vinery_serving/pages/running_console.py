"""The console's pages of what runs: devices and hosts with their models, and present requests."""

import os
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils import timezone

from vinery_accounts.console.page import FormPage, LivePage, at
from vinery_accounts.console.rows import Cell, ConfirmPage, Row, Rows, add_page, cell_of
from vinery_accounts.console.words import count, in_time
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.forms import ParametersForm
from vinery_serving.models import devices, live_requests
from vinery_serving.models.devices import Device, first_device
from vinery_serving.models.engine_status import ShownState
from vinery_serving.models.host_resource import HOSTS
from vinery_serving.models.host_rows import replicas_by_model
from vinery_serving.models.job_rows import bytes_text
from vinery_serving.models.live_requests import StopSerializer
from vinery_serving.models.live_socket import LiveRow, Stage
from vinery_serving.models.models import ServedModel
from vinery_serving.models.resource import MODELS
from vinery_serving.pages.console import body_of

_WITHOUT_ENGINE: Final = (ShownState.ASLEEP, ShownState.UNLOADED, ShownState.FAILED)


@at("devices/", "devices")
class Devices(LivePage):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        known = devices.read(Path(settings.VINERY_RUN_DIR))
        rows = _rows_by_device(MODELS.load(list(MODELS.rows(self.access))))
        found = known.devices if known else ()
        shown = [_shown(each, rows.pop(first_device(each.name), [])) for each in found]
        return super().get_context_data(**kwargs) | {
            "devices": shown,
            "others": (others := [row for rest in rows.values() for row in rest]),
            "has_hosts": any(row["host"] for row in others),
            "found_at": datetime.fromtimestamp(known.found_at, UTC) if known else None,
            "openvino": metadata.version("openvino"),
        }


def _rows_by_device(models: Sequence[ServedModel]) -> dict[str, list[dict[str, Any]]]:
    """Return rows of models by the first device of their replicas."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    hosts = replicas_by_model()
    for model in models:
        engine = body_of(model)["engine"]
        replicas = hosts.get(model.pk) or [(each, "") for each in range(model.num_replicas)]
        places = Counter((model.device_of(replica), host) for replica, host in replicas)
        for (name, host), num_replicas in places.items():
            elsewhere = "" if host == settings.VINERY_HOST_NAME else host
            row = _row(model, name, engine, num_replicas, elsewhere)
            rows[elsewhere or first_device(name)].append(row)
    return rows


def _row(
    model: ServedModel, device: str, engine: Mapping[str, Any], num_replicas: int, host: str
) -> dict[str, Any]:
    """Return a model on a device, of this host if `host` is empty. The memory of a process is that
    of the CPU, and is known of one replica on this host."""
    is_measured = first_device(device) == "CPU" and not host and engine["memory_bytes"]
    of_one = engine["memory_bytes" if is_measured else "needed_bytes"] or 0
    has_engine = model.folder and model.shown_state not in _WITHOUT_ENGINE
    num_bytes = of_one * num_replicas if has_engine else 0
    work = engine["work"]
    return {
        "model": model,
        "device": device,
        "host": host,
        "num_bytes": num_bytes,
        "memory": bytes_text(num_bytes) if num_bytes else "",
        "is_expected": not is_measured or num_replicas > 1,
        "num_running": engine["num_running"],
        "speed": work and f"{work['output_tokens_per_s']:,.1f} tokens/s",
    }


def _shown(device: Device, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    used = sum(row["num_bytes"] for row in rows)
    is_cpu = device.name == "CPU"
    return {
        "device": device,
        "rows": rows,
        "memory_bytes": device.memory_bytes,
        "memory": bytes_text(device.memory_bytes) if device.memory_bytes else "unknown",
        "used_bytes": used,
        "used": bytes_text(used),
        # Others than the CPU do not tell.
        "load": f"average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if is_cpu else "",
    }


_MEMORY: Final = "Of the memory of each device, models need the first figure."
add_page(Rows, HOSTS, "hosts/", "hosts", title="Hosts", note=_MEMORY)
_HOST: Final = "hosts/<uuid:row_id>/"


@at(_HOST, "hosts-row")
class HostRow(Row):
    resource = HOSTS

    def does(self) -> list[str]:
        done = "drain" if self.row.is_draining else "resume"
        return [each for each in super().does() if each != done]

    def _facts(self, left_out: Container[str]) -> list[Cell]:
        devices_cell = cell_of("devices", HOSTS.columns["devices"](self.row))
        return [*super()._facts({"devices"}), devices_cell]


@at(_HOST, "hosts", "drain", "resume", "remove")
class ActOnHost(ConfirmPage):
    resource = HOSTS


# -- Requests

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
