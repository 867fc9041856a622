"""Organisations and the projects in them."""

from collections.abc import Mapping
from typing import Any, Final

from rest_framework import serializers

from vinery_accounts.access.access import Access, Action
from vinery_accounts.base.redaction import MAX_LITERAL, MAX_RULES, check_redactions
from vinery_accounts.models import Organization, Project
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Resource, activation, columns_of, require
from vinery_accounts.resources.fields import Filters, StrictModelSerializer, VisibleRelatedField

_CAPTURE_FIELDS: Final = frozenset({"capture_hours", "capture_redactions"})


class OrganizationSerializer(StrictModelSerializer):
    """An organisation."""

    class Meta:
        model = Organization
        fields = ["id", "name", "is_active", "created_at", "updated_at"]
        read_only_fields = ("is_active",)


class Organizations(Resource[Organization]):
    """Companies or teams. Only members see what is in an organisation. Administrators of the
    platform create, rename, deactivate and remove organisations: a name is unique, so an owner who
    could choose one would learn which others there are. An organisation with projects cannot be
    removed."""

    model = Organization
    serializer = OrganizationSerializer
    filters = Filters.of(**fields.named_filters())
    ordering = ("name",)
    one, many = "an organisation", "organisations"
    verbs = frozenset({"create", "change", "remove"})
    removal = Action.REMOVE
    actions = activation(Action.SWITCH)
    help = {
        "remove": "Remove an organisation for good, with its roles, limits and webhooks. One with "
        "projects cannot be removed. Its usage records stay.",
    }
    empty_text = "No organisation yet. Add one: users and projects belong to it."
    columns = columns_of("id name active=is_active projects=num_projects created=created_at")
    counted = {"num_projects": "projects"}
    search = ("name",)


ORGANIZATIONS: Final = Organizations()


class ProjectSerializer(StrictModelSerializer):
    """A project."""

    organization = VisibleRelatedField(
        Organization, help_text="The organisation's id; it cannot be changed."
    )
    organization_name = serializers.CharField(source="organization.name", read_only=True)
    capture_redactions = serializers.ListField(
        label="Redaction rules",
        child=serializers.CharField(max_length=MAX_LITERAL, trim_whitespace=False),
        max_length=MAX_RULES,
        required=False,
        validators=[check_redactions],
        help_text="What is redacted from captured texts: `email`, `card`, `phone`, `ip` or "
        "`secret`, or any literal text. Only users who may set this see it.",
    )

    class Meta:
        model = Project
        fields = [
            *("id", "organization", "organization_name", "name", "is_active"),
            *(
                "capture_hours",
                "capture_redactions",
                "hashes_end_users",
                "created_at",
                "updated_at",
            ),
        ]
        read_only_fields = ("is_active",)
        validators = ()
        fixed = ("organization",)

    def to_representation(self, instance: Any) -> Any:
        """Return the body. Redactions hint at the texts, so only users who may set them see
        them."""
        body = super().to_representation(instance)
        if not self.context["access"].may(Action.CAPTURE, instance):
            del body["capture_redactions"]
        return body


class Projects(Resource[Project]):
    """Keys belong to projects, and usage is added up by project. A project with keys cannot be
    removed, even when all of them are revoked."""

    model = Project
    serializer = ProjectSerializer
    related = ("organization",)
    filters = Filters.of(
        organization=fields.id_filter("an organisation", "organization_id"),
        **fields.named_filters(),
    )
    ordering = ("name",)
    one, many = "a project", "projects"
    verbs = frozenset({"create", "change", "remove"})
    actions = activation(Action.MANAGE)
    help = {
        "change": "Change the fields that the request names. Only admins of the organisation "
        "change what is captured.",
        "remove": "Remove a project for good, with its roles, limits and captured texts. One with "
        "keys, revoked ones included, cannot be removed. Its usage records stay.",
    }
    empty_text = "No project yet. Add one: keys belong to it."
    columns = columns_of(
        "id organization=organization.name name active=is_active keys=num_keys capture_hours "
        "created=created_at"
    )
    counted = {"num_keys": "api_keys"}
    search = ("name", "organization__name")

    def hidden(self, access: Access, row: Project | None) -> frozenset[str]:
        may = row is None or access.may(Action.CAPTURE, row)
        return frozenset() if may else _CAPTURE_FIELDS

    def change(self, access: Access, row: Project, values: Mapping[str, Any]) -> Project:
        if not _CAPTURE_FIELDS.isdisjoint(values):
            require(access, Action.CAPTURE, row)
        return super().change(access, row, values)


PROJECTS: Final = Projects()
