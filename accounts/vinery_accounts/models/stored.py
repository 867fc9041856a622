"""What the server remembers for clients: responses and their items, conversations, and chats.

Texts are sealed, and bound to the id of their row. Rows have copied ids instead of foreign keys to
projects, users and keys, like usage records. An item belongs to every response and conversation
that links it, and goes with the last link.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, TypeVar

from django.db import models
from django.utils import timezone

RowT = TypeVar("RowT", bound=models.Model)


class OwnedQuerySet(models.QuerySet[RowT, RowT]):
    def of(self, project_id: int | None) -> OwnedQuerySet[RowT]:
        """The rows of a project; None: of clients without keys."""
        return self.filter(project_id=project_id)

    def kept(self, now: datetime | None = None) -> OwnedQuerySet[RowT]:
        """Rows that have not expired. Expired ones count as deleted."""
        return self.exclude(expires_at__lte=now or timezone.now())


class OwnedRow(models.Model):
    noun: ClassVar[str]  # for clients
    project_bytes = 0  # of a new row: what its project has stored then

    public_id = models.CharField("id", max_length=80, unique=True)
    project_id = models.BigIntegerField(null=True, help_text="Empty: of clients without keys.")
    user_id = models.BigIntegerField(null=True)
    key_id = models.BigIntegerField(null=True)
    created_at = models.DateTimeField("created")
    num_bytes = models.PositiveIntegerField("bytes", help_text="Of its sealed texts.")
    sealed = models.BinaryField(editable=False)

    objects: Any = OwnedQuerySet.as_manager()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.public_id


class Conversation(OwnedRow):
    """`sealed` has the metadata. One running response at a time: see `locked_until`. A conversation
    has no term: it expires when its owner goes, or keeps nothing any more."""

    noun = "Conversation"
    expires_at = models.DateTimeField("expires", null=True, editable=False)
    next_position = models.PositiveBigIntegerField(default=0)
    # Null, so that the index needs no entry that many rows share.
    locked_by = models.CharField(max_length=80, null=True, db_index=True)  # noqa: DJ001
    locked_until = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["project_id", "created_at"], name="conversation_of_project"),
            models.Index(fields=["created_at"], name="conversation_of_time"),
            models.Index(fields=["user_id"], name="conversation_of_user"),
            models.Index(
                fields=["expires_at"],
                condition=models.Q(expires_at__isnull=False),
                name="conversation_expired",
            ),
        ]


class StoredResponse(OwnedRow):
    """`sealed` has the response without its output, which is in items."""

    noun = "Response"
    status = models.CharField(max_length=16)
    model = models.CharField(max_length=255)
    request_id = models.CharField(max_length=64)
    # A response that another one continues stays until that one is gone.
    previous = models.ForeignKey(
        "self", on_delete=models.RESTRICT, related_name="children", null=True
    )
    conversation = models.ForeignKey(
        Conversation, on_delete=models.SET_NULL, related_name="responses", null=True
    )
    expires_at = models.DateTimeField("expires", db_index=True)
    is_background = models.BooleanField("background", default=False)
    # Events of a background response are kept for so long. Empty: it has not ended.
    events_until = models.DateTimeField(null=True, db_index=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["project_id", "created_at"], name="response_of_project"),
            models.Index(fields=["created_at"], name="response_of_time"),
            models.Index(fields=["user_id"], name="response_of_user"),
        ]


class StoredItem(OwnedRow):
    """A message, call, output or reasoning as JSON. Never changed."""

    noun = "Item"
    kind = models.CharField(max_length=64)

    class Meta:
        ordering = ["id"]


class Part(models.Model):
    """A row that goes with another one."""

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"


class ResponseItem(Part):
    """An item of a response: of its own input, then of its output."""

    response = models.ForeignKey(StoredResponse, on_delete=models.CASCADE, related_name="links")
    item = models.ForeignKey(StoredItem, on_delete=models.CASCADE, related_name="in_responses")
    position = models.PositiveIntegerField()
    is_output = models.BooleanField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["response", "position"], name="one_item_at_a_position_of_a_response"
            )
        ]


class ConversationItem(Part):
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="links")
    item = models.ForeignKey(StoredItem, on_delete=models.CASCADE, related_name="in_conversations")
    position = models.PositiveBigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "position"], name="one_item_at_a_position_of_a_conversation"
            )
        ]


class StoredChat(OwnedRow):
    """`sealed` has the completion, its metadata and the messages of the request."""

    noun = "Chat completion"
    model = models.CharField(max_length=255)
    request_id = models.CharField(max_length=64)
    expires_at = models.DateTimeField("expires", db_index=True)

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(fields=["project_id", "created_at", "id"], name="chat_of_project"),
            models.Index(fields=["model", "project_id", "created_at", "id"], name="chat_of_model"),
            models.Index(fields=["created_at"], name="chat_of_time"),
            models.Index(fields=["user_id"], name="chat_of_user"),
        ]


class ChatMetadata(Part):
    """A pair of a chat's metadata as a keyed hash, by which lists are filtered."""

    chat = models.ForeignKey(StoredChat, on_delete=models.CASCADE, related_name="pairs")
    digest = models.CharField(max_length=32)

    class Meta:
        indexes = [models.Index(fields=["digest", "chat"], name="chats_of_metadata")]


class StoredBytes(Part):
    """How many bytes a project has stored; changed with every row that is stored or removed. Each
    row of the project is kept for at most `days` if `is_followed`."""

    project_id = models.BigIntegerField(unique=True, help_text="0: clients without keys.")
    num_bytes = models.BigIntegerField(default=0)
    days = models.PositiveSmallIntegerField(
        null=True, help_text="Empty: something was stored for longer since."
    )
    is_followed = models.BooleanField(default=False, db_default=False)


class BackgroundRun(Part):
    """What is left to do for a response. The web process with the lease does it; without a lease it
    waits its turn. `lease_number` counts up, so that a process that lost the lease changes nothing.
    """

    request: Any = None  # of a leased run: a `StoredRequest`
    trail = b""  # of a leased run: the tokens of its answer so far
    response = models.OneToOneField(StoredResponse, on_delete=models.CASCADE, related_name="run")
    lease_owner = models.CharField(max_length=120, blank=True, default="")
    lease_number = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    due_at = models.DateTimeField(help_text="Not before.")
    num_tries = models.PositiveSmallIntegerField(default=0)
    num_events = models.PositiveIntegerField(default=0)
    sealed_request = models.BinaryField(editable=False)
    sealed_trail = models.BinaryField(editable=False, default=bytes)

    class Meta:
        ordering = ["due_at", "id"]
        indexes = [models.Index(fields=["due_at", "id"], name="run_due")]


class ResponseEvents(Part):
    """Some events of a background response, numbered from `first`, as they are sent."""

    response = models.ForeignKey(StoredResponse, on_delete=models.CASCADE, related_name="events")
    first = models.PositiveIntegerField()
    sealed = models.BinaryField(editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["response", "first"], name="one_event_of_a_number")
        ]


# -- The term of a project

OBJECTS: Final[tuple[Any, ...]] = (StoredResponse, Conversation, StoredChat)
_CHANGED_AT_ONCE: Final = 2000


def in_groups(rows: models.QuerySet[Any], **values: Any) -> None:
    """Update many rows in groups: outside of a transaction, other writers wait for one group. With
    the new values, a row is none of `rows` any more."""
    since = datetime(1970, 1, 1, tzinfo=UTC)
    ordered = rows.order_by("created_at").values_list("pk", "created_at")
    while found := list(ordered.filter(created_at__gte=since)[:_CHANGED_AT_ONCE]):
        table = rows.model._default_manager
        table.filter(pk__in=[pk for pk, _ in found]).update(**values)
        since = found[-1][1]


def expire(condition: models.Q, now: datetime | None = None) -> None:
    """Let the objects of an owner count as deleted. A periodic task removes them in groups."""
    now = now or timezone.now()
    for table in OBJECTS:
        in_groups(table.objects.filter(condition).kept(now), expires_at=now)


def follow_days(project_id: int | None, days: int, now: datetime | None = None) -> None:
    """Keep a project's responses and chats for at most this long; with 0 days all objects expire,
    conversations too. Nothing expires later than before: more days hold for later answers only."""
    if not days:
        expire(models.Q(project_id=project_id), now)
        return
    latest = models.ExpressionWrapper(
        models.F("created_at") + timedelta(days=days), output_field=models.DateTimeField()
    )
    for table in (StoredResponse, StoredChat):
        in_groups(table.objects.of(project_id).filter(expires_at__gt=latest), expires_at=latest)
