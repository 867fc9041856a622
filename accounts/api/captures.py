"""Texts of requests that their project keeps."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.base import Removes
from accounts.api.books import Dated
from accounts.api.errors import Conflict
from accounts.api.wire import id_filter, text_filter
from accounts.captures.encrypted import Unreadable
from accounts.captures.reading import read
from accounts.models import Capture


class CaptureBody(serializers.ModelSerializer):  # type: ignore[type-arg]
    """That a request was kept, without what it said."""

    class Meta:
        model = Capture
        fields = [
            *("id", "request_id", "project_id", "created_at", "expires_at", "dialect"),
            *("endpoint", "num_body_bytes", "num_answer_bytes", "is_body_cut", "is_answer_cut"),
            "is_redacted",
        ]


class CaptureWithTextsBody(CaptureBody):
    """And what it said."""

    body = serializers.CharField(help_text="JSON, as it was sent, but for what is blacked out.")
    answer = serializers.CharField(help_text="JSON, or the events of a stream.")

    class Meta(CaptureBody.Meta):
        fields = [*CaptureBody.Meta.fields, "body", "answer"]

    def to_representation(self, instance: Any) -> Any:
        """Reading is written down."""
        texts = read(instance)
        return {
            **CaptureBody(instance).data,
            "body": texts.body.decode("utf-8", "replace"),
            "answer": texts.answer.decode("utf-8", "replace"),
        }


class CaptureFilters(Dated):
    """Which captures."""

    project_id = id_filter("a project")
    request_id = text_filter("Of this request.")


class Captures(Removes):
    """Requests whose texts their project keeps (`capture_hours`), for those who lead its
    organisation: owners, admins and administrators of the platform, and their keys with the scope
    `manage`. Lists are without texts; who reads one is an entry of the audit log."""

    model = Capture
    serializer_class = CaptureBody
    filters = CaptureFilters
    ordering = ("-created_at",)
    words = ("a capture", "captures")
    lookup_field = "request_id"
    lookup_url_kwarg = "pk"
    lookup_value_regex = "[0-9A-Za-z_-]{1,64}"

    def get_queryset(self) -> QuerySet[Any]:
        """With the sealed texts only where they are opened."""
        rows = super().get_queryset()
        return rows if self.action == "retrieve" else rows.defer("sealed")

    @extend_schema(responses=CaptureWithTextsBody)
    def retrieve(self, request: Request, pk: str) -> Response:
        """One of them with its texts, by the id of its request. Writes an entry of the audit
        log."""
        try:
            return Response(CaptureWithTextsBody(self.get_object()).data)
        except Unreadable as error:
            raise Conflict(str(error)) from None
