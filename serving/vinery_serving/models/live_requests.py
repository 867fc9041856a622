"""Who sees and stops the requests that run now in the web processes of this home."""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import serializers

from vinery_accounts.access import audit
from vinery_accounts.access.access import Access, Action
from vinery_accounts.models import ApiKey, UsageRecord
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.fields import StrictSerializer
from vinery_serving.models.live_socket import LiveRow, Stage, ask_for_rows, ask_to_stop

MAX_REASON: Final = 200


def _home() -> tuple[Path, bytes]:
    return Path(settings.VINERY_RUN_DIR), settings.VINERY_SOCKET_SECRET


def live_rows(access: Access) -> list[LiveRow]:
    """Return the requests whose usage the caller may see, the oldest first."""
    visible = access.visible()
    found = [
        row
        for row in asyncio.run(ask_for_rows(*_home()))
        if visible is None
        or any(getattr(row.admission, each.column) in ids for each, ids in visible.items())
    ]
    return sorted(found, key=lambda row: row.admission.started_at)


def stoppable(access: Access, rows: Collection[LiveRow]) -> set[str]:
    """Return the ids of the requests that the caller may stop: those whose keys the caller may
    revoke. Requests without a key are stopped by administrators of the platform."""
    ids = {row.admission.key_id for row in rows}
    keys = ApiKey.objects.filter(pk__in=filter(None, ids)).select_related("project")
    may = {key.pk for key in keys if access.may(Action.STOP, key)}
    return {
        row.admission.request_id
        for row in rows
        if row.admission.key_id in may or (access.is_superuser and row.admission.key_id is None)
    }


def find(access: Access, request_id: str) -> LiveRow:
    """Raises `Http404` for a request that the caller may not see or that does not run."""
    for row in live_rows(access):
        if row.admission.request_id == request_id:
            return row
    raise Http404("There is no running request with this id. Perhaps it has ended.")


def stop(access: Access, request_id: str, reason: str = "") -> LiveRow:
    """Stop a request, with an entry of the audit log. Raises `Http404`, `PermissionDenied`, and
    `Conflict` for a request that has ended meanwhile."""
    row, reason = find(access, request_id), " ".join(reason.split())
    if not stoppable(access, [row]):
        raise PermissionDenied("Only those who may revoke the key of a request may stop it.")
    admission = row.admission
    about: dict[str, Any] = {"reason": reason, "model": admission.model, "key": admission.key_name}
    target = UsageRecord(request_id=request_id, organization_id=admission.organization_id)
    with audit.writing():
        audit.record("stop", target, after=about, target_id=request_id)
        if not asyncio.run(ask_to_stop(*_home(), request_id, reason)):
            raise Conflict("This request has ended meanwhile.")
    return row


class StopSerializer(StrictSerializer):
    """Why a request is stopped."""

    reason = serializers.CharField(
        max_length=MAX_REASON,
        required=False,
        default="",
        allow_blank=True,
        help_text=f"The client gets this sentence of at most {MAX_REASON} characters.",
    )


class LiveRequestSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """A request that runs now."""

    request_id = serializers.CharField(source="admission.request_id")
    started_at = serializers.DateTimeField(source="admission.started_at")
    state = serializers.ChoiceField(
        choices=[(each.value, each.value) for each in Stage],
        source="stage",
        help_text="`waiting`: it is read, or waits for its model or a slot; `prefilling`: an "
        "engine computes the prompt, in more than one step.",
    )
    username = serializers.CharField(source="admission.username")
    key_id = serializers.IntegerField(source="admission.key_id", allow_null=True)
    key_name = serializers.CharField(source="admission.key_name")
    project_name = serializers.CharField(source="admission.project_name")
    organization_name = serializers.CharField(source="admission.organization_name")
    model = serializers.CharField(source="admission.model")
    endpoint = serializers.CharField(source="admission.endpoint")
    is_streamed = serializers.BooleanField(source="admission.is_streamed")
    num_prompt_tokens = serializers.IntegerField()
    num_output_tokens = serializers.IntegerField(help_text="So far.")
    tokens_per_s = serializers.FloatField(
        allow_null=True, help_text="Since the first token; null: there is none yet."
    )
