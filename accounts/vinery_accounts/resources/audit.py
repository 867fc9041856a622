"""The audit log."""

from typing import Final

from django.db.models import Q, QuerySet
from rest_framework import serializers

from vinery_accounts.models import AuditEntry
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Resource, columns_of
from vinery_accounts.resources.fields import DatedFilters, StrictSerializer
from vinery_accounts.services import audit

SEARCH_HELP: Final = "Part of the actor, the action, the target or the values; or an address."


class AuditSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """One entry of the audit log."""

    class Meta:
        model = AuditEntry
        fields = [
            *("id", "number", "created_at", "actor_id", "actor", "ip", "action"),
            *("organization_id", "target_kind", "target_id", "target", "before", "after"),
            *("previous_hash", "hash"),
        ]


class AuditFilters(DatedFilters):
    actor = fields.text_filter(
        "The name of a user who acted, or whose key did. Names of deleted users stay."
    )
    search = fields.text_filter(SEARCH_HELP)

    def filter_actor(self, rows: QuerySet[AuditEntry], name: str) -> QuerySet[AuditEntry]:
        with_key = Q(actor__startswith=f"{name}, key ") | Q(actor__startswith=f"{name}, admin key ")
        return rows.filter(Q(actor=name) | with_key)

    def filter_search(self, rows: QuerySet[AuditEntry], text: str) -> QuerySet[AuditEntry]:
        return audit.search(rows, text)


class VerdictQuery(StrictSerializer):
    """The query of a verification."""

    newest_hash = serializers.RegexField(
        "^[0-9a-f]{64}$",
        required=False,
        help_text="A hash that was once the newest: without it, a cut-off end is not noticed.",
    )


class VerdictSerializer(StrictSerializer):
    """Whether the log is intact."""

    is_whole = serializers.BooleanField()
    num_entries = serializers.IntegerField(help_text="Entries before the first break.")
    newest_hash = serializers.CharField(help_text="Keep it elsewhere, and send it the next time.")
    broken = serializers.ChoiceField(
        choices=[(each.value, each.value) for each in audit.Break], allow_null=True
    )
    number = serializers.IntegerField(allow_null=True, help_text="Of the first broken entry.")
    message = serializers.CharField()


def changed_fields(entry: AuditEntry) -> list[str]:
    """Return the names of the fields that the entry reports."""
    return sorted(entry.after or entry.before or ())


class AuditEntries(Resource[AuditEntry]):
    """The audit log, the newest entry first. Admins see the entries of their organisation, every
    user their own. Entries never change, and each holds the hash of the entry before it."""

    model = AuditEntry
    serializer = AuditSerializer
    filters = AuditFilters.of(
        organization_id=fields.id_filter("an organisation"),
        actor_id=fields.id_filter("a user who acted, or whose key did"),
        action=fields.text_filter("Exactly this action, such as key.revoke."),
        target_kind=fields.text_filter("The kind of the target, such as key."),
        target_id=fields.text_filter("The id of the target."),
    )
    ordering = ("-number",)
    one, many = "an entry", "entries"
    empty_text = "Nothing was changed yet."
    columns = columns_of(
        "number at=created_at actor ip action target changed", changed=changed_fields
    )


AUDIT: Final = AuditEntries()
