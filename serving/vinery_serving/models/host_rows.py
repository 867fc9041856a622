"""The hosts that share the database, and which of them runs which replica.

A host on SQLite is the only one: it needs no placements, and runs all."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from django.db import models

from vinery_serving.core.field_limits import HOST_LABEL
from vinery_serving.models.engine_status import EngineState


class Host(models.Model):
    """A machine or container whose node runs engines. The node writes its row at each start; an
    administrator drains the host, and the placing notes that it is gone."""

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    name = models.CharField(max_length=253, help_text="As VINERY_HOST_NAME has it.")
    address = models.CharField(
        max_length=300,
        blank=True,
        default="",
        db_default="",
        help_text="Where other hosts reach its engines, as host:port; empty: they cannot.",
    )
    fingerprint = models.CharField(
        max_length=128,
        blank=True,
        default="",
        db_default="",
        help_text="Of the certificate with which it answers there.",
    )
    labels = models.JSONField(
        default=list,
        blank=True,
        help_text="Such as ['disk=fast']: a model can be pinned to the hosts with some labels.",
    )
    devices = models.JSONField(
        default=dict,
        blank=True,
        help_text="The bytes that models may use, by device; null: no limit. Empty: unknown.",
    )
    lacks = models.JSONField(
        default=list,
        blank=True,
        help_text="The folders of models that are not there, and that it cannot fetch.",
    )
    digests = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="The folders of models that others can fetch: the SHA-256 and the size of the "
        "list of their files.",
    )
    version = models.CharField(max_length=32, blank=True, default="", db_default="")
    protocol_version = models.PositiveIntegerField(default=0, db_default=0)
    generation = models.PositiveIntegerField(
        default=0, db_default=0, help_text="How often its node has started."
    )
    is_draining = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Whether its replicas move to other hosts, and no new ones come.",
    )
    is_gone = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Whether its lease has ended: its replicas may start elsewhere.",
    )
    started_at = models.DateTimeField(null=True, blank=True, help_text="When its node started.")

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name

    @property
    def state(self) -> str:
        if self.is_gone:
            return "gone"
        return "draining" if self.is_draining else "active"

    @property
    def number(self) -> int:
        """Names the host's lease: 32 bits of its id."""
        return self.id.int & 0xFFFF_FFFF


class Placement(models.Model):
    """A replica that a host should run, and what its node reports of it."""

    model = models.ForeignKey(
        "serving.ServedModel", on_delete=models.CASCADE, related_name="placements"
    )
    replica = models.PositiveSmallIntegerField()
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="placements")
    device = models.CharField(max_length=64, blank=True, default="", db_default="")
    state = models.CharField(
        max_length=16,
        choices=EngineState.choices,
        default=EngineState.UNLOADED,
        db_default=EngineState.UNLOADED,
    )
    pid = models.PositiveIntegerField(null=True, blank=True)
    num_restarts = models.PositiveIntegerField(default=0, db_default=0)
    needed_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    error = models.TextField(blank=True, default="", db_default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["model", "replica", "host"], name="one_placement_of_a_replica_on_a_host"
            )
        ]

    def __str__(self) -> str:
        return f"{self.model_id}-{self.replica} on {self.host_id}"


def replicas_by_model() -> Mapping[int, Sequence[tuple[int, str]]]:
    """Return the numbers of replicas with their hosts, by model; empty if there is one host."""
    found: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    if Host.objects.count() > 1:
        rows = Placement.objects.order_by("replica", "host__name")
        for model, replica, host in rows.values_list("model", "replica", "host__name"):
            found[model].append((replica, host))
    return found


def check_labels(labels: Any) -> None:
    """Raises ValueError."""
    is_list = isinstance(labels, list) and all(isinstance(each, str) for each in labels)
    if not is_list or not all(re.fullmatch(HOST_LABEL, each) for each in labels):
        raise ValueError("Write a list of labels, such as host=moon or disk=fast.")
