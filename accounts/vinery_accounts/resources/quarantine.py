"""Requests in quarantine, because they ended two engines."""

from typing import Final

from rest_framework import serializers

from vinery_accounts.models import QuarantinedRequest, Scope
from vinery_accounts.quarantine.store import release
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Resource, RowAction, columns_of
from vinery_accounts.resources.fields import DatedFilters
from vinery_accounts.services.access import Action


class QuarantinedRequestSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A request that ended two engines. It is refused until it expires or is released."""

    class Meta:
        model = QuarantinedRequest
        fields = [
            *("id", "digest", "request_id", "created_at", "expires_at", "organization_id"),
            *("organization_name", "project_id", "project_name", "user_id", "username"),
            *("key_id", "key_name", "model"),
        ]


class Quarantine(Resource[QuarantinedRequest]):
    """Requests that ended two engines, by a digest of what the engines were to do. They are
    refused with `request_quarantined` until they expire or an administrator of the platform
    releases them."""

    model = QuarantinedRequest
    serializer = QuarantinedRequestSerializer
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
            Action.MANAGE,
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


QUARANTINE: Final = Quarantine()
