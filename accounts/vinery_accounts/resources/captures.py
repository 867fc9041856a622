"""Captured texts of requests."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db.models import QuerySet
from rest_framework import serializers

from vinery_accounts.captures.encrypted import CaptureUnreadable, Texts, read
from vinery_accounts.models import Capture, Project
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Conflict, Resource, columns_of
from vinery_accounts.resources.fields import DatedFilters
from vinery_accounts.services.access import Access


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
    serializer = CaptureSerializer
    answers = {"retrieve": CaptureWithTextsSerializer}
    filters = DatedFilters.of(
        project_id=fields.id_filter("a project"),
        request_id=fields.text_filter("Only of this request."),
    )
    ordering = ("-created_at",)
    one, many = "a capture", "captures"
    verbs = frozenset({"remove"})
    search = ("request_id__exact",)
    empty_text = "Nothing is captured. Each project sets whether and how long its texts are kept."
    columns = columns_of(
        "created=created_at request_id project endpoint body=num_body_bytes "
        "answer=num_answer_bytes redacted=is_redacted expires=expires_at",
        endpoint=lambda capture: f"{capture.dialect}/{capture.endpoint}",
    )

    def rows(self, access: Access) -> QuerySet[Capture]:
        """Return the captures without the encrypted texts, which are loaded when they are read."""
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


CAPTURES: Final = Captures()
