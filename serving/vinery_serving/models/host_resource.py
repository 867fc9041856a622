"""Hosts as a resource: what API, commands and status show and change."""

from typing import Final

from rest_framework import serializers

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.resources.base import Conflict, PlatformResource, RowAction, columns_of
from vinery_serving.models.host_rows import Host


class HostSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A host that runs engines."""

    state = serializers.ChoiceField(
        choices=["active", "draining", "gone"],
        read_only=True,
        help_text="gone: its lease has ended, and its replicas may start on other hosts.",
    )
    models = serializers.CharField(
        source="models_text",
        read_only=True,
        help_text="What it runs, with states; empty for the only host, which runs all.",
    )

    class Meta:
        model = Host
        fields = [
            *("id", "name", "state", "address", "labels", "devices", "lacks", "version"),
            *("protocol_version", "generation", "started_at", "models"),
        ]


class Hosts(PlatformResource[Host]):
    """The hosts that share the database, and what runs on them. They are for administrators of the
    platform. Each host adds itself when its node starts."""

    model = Host
    serializer = HostSerializer
    lookup = ("pk", "[0-9a-f-]{36}")
    ordering = search = ("name",)
    one, many = "a host", "hosts"
    verbs = frozenset({"remove"})
    help = {"remove": "Forget a host that is gone. It adds itself again if its node starts."}
    empty_text = "No host has started yet."
    actions = (
        RowAction(
            "drain",
            Action.MANAGE,
            lambda row: changes.switch(row, "drain", is_draining=True),
            "Move the replicas of a host to other hosts, and place no new ones there. Each serves "
            "until the new one does, and finishes its answers.",
            "being drained",
        ),
        RowAction(
            "resume",
            Action.MANAGE,
            lambda row: changes.switch(row, "resume", is_draining=False),
            "Let a host that was drained take replicas again.",
            "active",
        ),
    )
    columns = columns_of("name state address version models=models_text")

    def remove(self, access: Access, row: Host) -> None:
        """Raises `Conflict` for a host that lives."""
        if not row.is_gone:
            raise Conflict(f"{row} is {row.state}: drain and stop it first.")
        super().remove(access, row)


HOSTS: Final = Hosts()
