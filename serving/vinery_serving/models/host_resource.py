"""Hosts as a resource: what API, commands and status show and change."""

from collections.abc import Iterator, Sequence
from typing import Final

from django.db import connection
from rest_framework import serializers

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access
from vinery_accounts.resources.base import Conflict, PlatformResource, RowAction, columns_of
from vinery_serving.models.devices import first_device
from vinery_serving.models.host_rows import Host, Placement
from vinery_serving.models.job_rows import JobKind, ModelJob, bytes_text
from vinery_serving.models.models import ServedModel


class HostSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A host that runs engines."""

    state = serializers.ChoiceField(
        choices=["active", "draining", "gone"],
        read_only=True,
        help_text="gone: its lease has ended, and its replicas may start on other hosts.",
    )
    models = serializers.SerializerMethodField(help_text="What it runs, with states.")

    class Meta:
        model = Host
        fields = [
            *("id", "name", "state", "address", "labels", "devices", "lacks", "digests"),
            *("version", "protocol_version", "generation", "started_at", "models"),
        ]

    def get_models(self, host: Host) -> str:
        return models_text(host)


class Hosts(PlatformResource[Host]):
    """The hosts that share the database, and what runs on them. They are for administrators of the
    platform. Each host adds itself when its node starts."""

    model = Host
    serializer = HostSerializer
    lookup = ("pk", "[0-9a-f-]{1,36}")
    ordering = search = ("name",)
    one, many = "a host", "hosts"
    verbs = frozenset({"remove"})
    help = {"remove": "Forget a host that is gone. It adds itself again if its node starts."}
    empty_text = "No host has started yet."
    actions = (
        RowAction(
            "drain",
            lambda row: changes.switch(row, "drain", is_draining=True),
            "Move the replicas of a host to other hosts, and place no new ones there. Each serves "
            "until the new one does, and finishes its answers.",
            "being drained",
        ),
        RowAction(
            "resume",
            lambda row: changes.switch(row, "resume", is_draining=False),
            "Let a host that was drained take replicas again.",
            "active",
        ),
    )
    columns = columns_of(
        "name state address version",
        models=lambda row: models_text(row),
        devices=lambda row: ", ".join(_devices_of(row)),
    )

    def remove(self, access: Access, row: Host) -> None:
        """Raises `Conflict` for a host that lives."""
        if not row.is_gone:
            raise Conflict(f"{row} still runs: drain it, and stop it there.")
        fetches = ModelJob.objects.filter(kind=JobKind.FETCH, parameters__host=str(row.pk))
        super().remove(access, row)
        fetches.delete()


def _replicas_of(host: Host) -> Sequence[Placement]:
    """Return what a host runs. On SQLite no placements are stored: the only host runs all."""
    rows = host.placements.select_related("model").order_by("model__name", "replica")
    if rows or connection.vendor == "postgresql":
        return list(rows)
    models = ServedModel.objects.filter(is_loaded=True).select_related("engine").order_by("name")
    return [
        Placement(
            model=each,
            state=each.status.state,
            device=each.device_of(number),
            needed_bytes=each.status.needed_bytes,
        )
        for each in models
        for number in range(each.num_replicas)
    ]


def models_text(host: Host) -> str:
    return ", ".join(f"{each.model} ({each.state})" for each in _replicas_of(host))


def _devices_of(host: Host) -> Iterator[str]:
    rows = [(first_device(each.device), each.needed_bytes) for each in _replicas_of(host)]
    for name, budget in host.devices.items():
        used = bytes_text(sum(needed or 0 for device, needed in rows if device == name))
        yield f"{name}: {used} of {bytes_text(budget)}" if budget else f"{name}: {used}"


HOSTS: Final = Hosts()
