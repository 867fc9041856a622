"""Records: refusals by limits, the quarantine, captured texts, the audit log."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.conf import settings
from django.db.models import Q, QuerySet
from rest_framework import serializers

from vinery_accounts.access import audit
from vinery_accounts.access.access import Access
from vinery_accounts.captures.quarantine import release
from vinery_accounts.captures.store import CaptureUnreadable, Texts, read
from vinery_accounts.models import AuditEntry, Capture, Project, RefusedRequest, Scope
from vinery_accounts.models.records import QuarantinedRequest
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import EVERYTHING, Conflict, Resource, RowAction, columns_of
from vinery_accounts.resources.fields import DatedFilters, StrictSerializer
from vinery_accounts.resources.limits import owners_of
from vinery_accounts.usage.export import REFUSAL_COLUMNS
from vinery_accounts.usage.filters import Effect, with_effect


class RefusalSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """Why a limit refused a request or cut it short. A shadow limit only records it."""

    effect = serializers.ChoiceField(
        choices=Effect.choices,
        allow_null=True,
        help_text="`refused`; `cut_short` where the request ran and its answer was ended early; "
        "`shadow`; null where the usage record of the request is deleted already.",
    )

    class Meta:
        model = RefusedRequest
        fields = ["id", *REFUSAL_COLUMNS]


class Refusals(Resource[RefusedRequest]):
    """Requests that a limit refused or cut short, each with the limit, its level, the amount that
    the request needed, and how long the client should have waited."""

    model = RefusedRequest
    path = "refusals"
    serializer = RefusalSerializer
    filters = DatedFilters.of(
        organization_id=fields.id_filter("an organisation"),
        project_id=fields.id_filter("a project"),
        user_id=fields.id_filter("a user"),
        key_id=fields.id_filter("a key"),
        limit_id=fields.id_filter("a limit"),
        request_id=fields.text_filter("Only of this request."),
        model=fields.text_filter("Only of requests to this model."),
        scope=fields.text_filter("Only by limits of this scope, such as key:12."),
        effect=fields.choice_filter(Effect.choices, "Only with this effect."),
        **fields.limit_filters(),
    )
    ordering = ("-created_at",)
    one, many = "a refusal", "refusals"
    page_filters = (
        *("effect", "model", "organization_id", "project_id", "user_id", "key_id", "limit_id"),
        *("from", "to"),
    )
    read_scope = Scope.USAGE.value
    empty_text = "No request was refused by a limit."
    search = ("request_id__exact", "username", "key_name", "scope")
    columns = columns_of(
        "at=created_at user=username key=key_name scope whose metric window amount level needed "
        "wait_s effect"
    )

    def rows(self, access: Access) -> QuerySet[RefusedRequest]:
        return with_effect(super().rows(access))

    def extra_columns(self, rows: Sequence[RefusedRequest]) -> Sequence[Mapping[str, Any]]:
        names = owners_of(EVERYTHING, [row.scope for row in rows])
        return [
            {
                "whose": names[row.scope],
                "project": row.project_name,
                "organization": row.organization_name,
                "shadow": row.is_shadow,
            }
            for row in rows
        ]


class Quarantine(Resource[QuarantinedRequest]):
    """Requests that ended two engines, by a digest of what the engines were to do. They are
    refused with `request_quarantined` until they expire or an administrator of the platform
    releases them."""

    model = QuarantinedRequest
    path, title = "quarantine", "Quarantine"
    lookup = ("digest", "[0-9a-f]{1,32}")
    field_names = (
        "id digest request_id created_at expires_at organization_id organization_name project_id "
        "project_name user_id username key_id key_name model"
    )
    filters = DatedFilters.of(
        organization_id=fields.id_filter("an organisation"),
        project_id=fields.id_filter("a project"),
        user_id=fields.id_filter("a user"),
        key_id=fields.id_filter("a key"),
        digest=fields.text_filter("Only of this digest."),
        request_id=fields.text_filter("Only of this request."),
        model=fields.text_filter("Only of requests to this model."),
    )
    ordering = ("-created_at",)
    one, many = "a request in quarantine", "requests in quarantine"
    read_scope = Scope.USAGE.value
    search = ("digest__exact", "request_id__exact", "username", "key_name")
    empty_text = "Nothing is in quarantine: no request has ended two engines lately."
    # Engines serve all organisations, so only administrators of the platform may try again.
    actions = (
        RowAction(
            "release",
            release,
            "Release a request: within a second it is accepted again. If it ends two engines "
            "again, it is back in quarantine.",
            "released",
        ),
    )
    columns = columns_of(
        "since=created_at digest model user=username key=key_name project=project_name request_id "
        "expires=expires_at"
    )

    def notice(self) -> str:
        is_off = not settings.VINERY_QUARANTINE_S
        return "The quarantine is turned off: VINERY_QUARANTINE_S is 0." if is_off else ""


class CaptureSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A captured request, without its texts."""

    class Meta:
        model = Capture
        fields = [
            *("id", "request_id", "project_id", "created_at", "expires_at", "dialect"),
            *("endpoint", "num_body_bytes", "num_answer_bytes", "is_body_cut", "is_answer_cut"),
            "is_redacted",
        ]


class CaptureWithTextsSerializer(CaptureSerializer):
    """A captured request with its texts."""

    body = serializers.CharField(help_text="The JSON of the request, without redacted parts.")
    answer = serializers.CharField(help_text="The JSON of the response, or its stream of events.")

    class Meta(CaptureSerializer.Meta):
        fields = [*CaptureSerializer.Meta.fields, "body", "answer"]

    def to_representation(self, instance: Any) -> Any:
        """Return the capture with its texts. Writes an entry of the audit log."""
        texts = read_texts(instance)
        return {
            **CaptureSerializer(instance).data,
            "body": texts.body.decode("utf-8", "replace"),
            "answer": texts.answer.decode("utf-8", "replace"),
        }


def read_texts(capture: Capture) -> Texts:
    """Return the decrypted texts, and write an entry of the audit log. Raises `Conflict` for
    texts under a key that is no longer configured."""
    try:
        return read(capture)
    except CaptureUnreadable as error:
        raise Conflict(str(error)) from None


class Captures(Resource[Capture]):
    """Requests whose texts their project captures (`capture_hours`). Owners and admins of the
    organisation, administrators of the platform, and their keys with the scope `manage` read them.
    Lists are without texts; reading the texts of one is an entry of the audit log."""

    model = Capture
    path, title = "captures", "Captures"
    lookup = ("request_id", "[0-9A-Za-z_-]{1,64}")
    serializer = CaptureSerializer
    answers = {"retrieve": CaptureWithTextsSerializer}
    filters = DatedFilters.of(
        project_id=fields.id_filter("a project"),
        request_id=fields.text_filter("Only of this request."),
    )
    ordering = ("-created_at",)
    one, many = "a capture", "captures"
    verbs = frozenset({"remove"})
    help = {"remove": "Delete the texts of a request for good. Its usage record stays."}
    search = ("request_id__exact",)
    empty_text = "Nothing is captured. A project can be set to keep its texts for some hours."
    columns = columns_of(
        "created=created_at request_id project endpoint body=num_body_bytes "
        "answer=num_answer_bytes redacted=is_redacted expires=expires_at",
        endpoint=lambda capture: f"{capture.dialect}/{capture.endpoint}",
    )

    def rows(self, access: Access) -> QuerySet[Capture]:
        return super().rows(access).defer("encrypted_texts")

    def extra_columns(self, rows: Sequence[Capture]) -> Sequence[Mapping[str, Any]]:
        projects = Project.objects.select_related("organization")
        names = projects.in_bulk({each.project_id for each in rows})
        return [
            {
                "project": str(names.get(each.project_id, "")),
                "body_cut": each.is_body_cut,
                "answer_cut": each.is_answer_cut,
            }
            for each in rows
        ]


class AuditFilters(DatedFilters):
    actor = fields.text_filter(
        "The name of a user who acted, or whose key did. Names of deleted users stay."
    )
    search = fields.text_filter(
        "Part of the actor, the action, the target or the values; or an address."
    )
    without_sign_ins = fields.switch_filter("Leave out sign-ins, also failed ones.")

    def filter_without_sign_ins(self, rows: QuerySet[AuditEntry], wanted: Any) -> Any:
        return rows.exclude(action__startswith="user.sign_in") if wanted else rows

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
    broken = serializers.ChoiceField(choices=[*map(str, audit.Break)], allow_null=True)
    number = serializers.IntegerField(allow_null=True, help_text="Of the first broken entry.")
    message = serializers.CharField()


def changed_fields(entry: AuditEntry) -> list[str]:
    return sorted(entry.after or entry.before or ())


class AuditEntries(Resource[AuditEntry]):
    """The audit log, the newest entry first. Admins see the entries of their organisation, every
    user their own. Entries never change, and each holds the hash of the entry before it."""

    model = AuditEntry
    path, title = "audit", "Audit log"
    field_names = (
        "id number created_at actor_id actor ip action organization_id target_kind target_id "
        "target before after previous_hash hash"
    )
    filters = AuditFilters.of(
        organization_id=fields.id_filter("an organisation"),
        actor_id=fields.id_filter("a user who acted, or whose key did"),
        action=fields.text_filter("Exactly this action, such as key.revoke."),
        target_kind=fields.text_filter("The kind of the target, such as key."),
        target_id=fields.text_filter("The id of the target."),
    )
    ordering = ("-number",)
    search = ("actor", "action", "target", "ip")
    one, many = "an entry", "entries"
    page_filters = ("actor", "action", "search", "from", "to", "without_sign_ins")
    empty_text = "Nothing was changed yet."
    columns = columns_of(
        "number at=created_at actor ip action target changed", changed=changed_fields
    )


REFUSALS: Final = Refusals()
QUARANTINE: Final = Quarantine()
CAPTURES: Final = Captures()
AUDIT: Final = AuditEntries()
