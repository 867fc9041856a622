"""Organisations and the projects in them."""

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import Count, Q, QuerySet
from django.utils import timezone
from rest_framework import serializers

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.base.redaction import MAX_LITERAL, MAX_RULES, check_redactions
from vinery_accounts.models import Invitation, Organization, Project, Role, User
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Resource, RowAction, activation, columns_of, require
from vinery_accounts.resources.fields import Filters, StrictModelSerializer, VisibleRelatedField
from vinery_accounts.resources.users import MembershipSerializer, one_scope

_CAPTURE_FIELDS: Final = frozenset(
    {"capture_hours", "capture_redactions", "response_days", "max_stored_mb"}
)


class Organizations(Resource[Organization]):
    """Companies or teams. Only members see what is in an organisation. Administrators of the
    platform create, rename, deactivate and remove organisations: a name is unique, so an owner who
    could choose one would learn which others there are. An organisation with projects cannot be
    removed."""

    model = Organization
    path, title = "organizations", "Organisations"
    field_names = "id name is_active created_at updated_at"
    read_only = "is_active"
    filters = Filters.of(**fields.named_filters())
    ordering = ("name",)
    one, many = "an organisation", "organisations"
    verbs = frozenset({"create", "change", "remove"})
    removal = Action.REMOVE
    actions = activation(Action.SWITCH)
    help = {
        "remove": "Remove an organisation for good, with its roles, limits and webhooks. One with "
        "projects cannot be removed. Its usage records stay."
    }
    empty_text = "No organisation yet. Add one: users and projects belong to it."
    columns = columns_of("id name active=is_active projects=num_projects created=created_at")
    counted = {"num_projects": Count("projects")}
    search = ("name",)


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
            *("capture_hours", "capture_redactions", "hashes_end_users", "response_days"),
            *("max_stored_mb", "created_at", "updated_at"),
        ]
        read_only_fields = ("is_active",)
        validators = ()
        fixed = ("organization",)

    def to_representation(self, instance: Any) -> Any:
        """Redactions hint at the texts, so only users who may set redactions see them."""
        body = super().to_representation(instance)
        if not self.context["access"].may(Action.CAPTURE, instance):
            del body["capture_redactions"]
        return body


class Projects(Resource[Project]):
    """Keys belong to projects, and usage is added up by project. A project with keys cannot be
    removed, even when all of them are revoked."""

    model = Project
    path, title = "projects", "Projects"
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
        "change what is captured and stored.",
        "remove": "Remove a project for good, with its roles, limits, captured texts and stored "
        "responses. One with keys, revoked ones included, cannot be removed. Its usage records "
        "stay.",
    }
    empty_text = "No project yet. Add one: keys belong to it."
    columns = columns_of(
        "id organization=organization.name name active=is_active keys=num_keys capture_hours "
        "created=created_at"
    )
    counted = {"num_keys": Count("api_keys", filter=Q(api_keys__revoked_at=None), distinct=True)}
    search = ("name", "organization__name")
    page_filters = ("organization",)

    def hidden(self, access: Access, row: Project | None) -> frozenset[str]:
        may = row is None or access.may(Action.CAPTURE, row)
        return frozenset() if may else _CAPTURE_FIELDS

    def change(self, access: Access, row: Project, values: Mapping[str, Any]) -> Project:
        if not _CAPTURE_FIELDS.isdisjoint(values):
            require(access, Action.CAPTURE, row)
        return super().change(access, row, values)


class InvitationSerializer(StrictModelSerializer):
    """A role that a user may accept."""

    organization = VisibleRelatedField(
        Organization, required=False, help_text="For a role in the whole organisation."
    )
    organization_name = fields.name_of("organization")
    project = VisibleRelatedField(
        Project, "organization", required=False, help_text="For a role in this project alone."
    )
    project_name = fields.name_of("project")

    class Meta:
        model = Invitation
        fields = [
            *("id", "username", "organization", "organization_name", "project", "project_name"),
            *("role", "invited_by", "created_at", "expires_at"),
        ]
        read_only_fields = ("invited_by", "expires_at")
        extra_kwargs = {
            "username": {
                "label": "User name",
                "help_text": "The exact name that the user signs in with.",
            }
        }

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        return one_scope(values, is_required=True)


class Invitations(Resource[Invitation]):
    """Roles that owners offer to users by their exact name. The user accepts or declines. The
    response is the same whether or not there is a user of this name, because names of users are
    unique on the platform, and an owner learns nothing of other organisations. An invitation
    expires after 14 days. Owners see those of their organisation, users those to them."""

    model = Invitation
    path, title = "invitations", "Open invitations"
    serializer = InvitationSerializer
    related = ("organization", "project")
    filters = Filters.of(
        organization=fields.id_filter("an organisation", "organization_id"),
        project=fields.id_filter("a project", "project_id"),
        username=fields.text_filter("Exactly this name."),
    )
    ordering = ("username", "id")
    one, many = "an invitation", "invitations"
    verbs = frozenset({"create", "remove"})
    removal = Action.REMOVE
    help = {"remove": "Withdraw an invitation of your organisation, or decline one to you."}
    empty_text = "No invitation is open."
    actions = (
        RowAction(
            "accept",
            changes.accept,
            "Accept an invitation to you. Only the invited user may do this, with a session.",
            "accepted",
            answer=MembershipSerializer,
            permission=Action.ANSWER,
        ),
    )
    columns = columns_of("id username role organization project invited_by expires_at")

    def may_create(self, access: Access) -> bool:
        return access.is_leader

    def rows(self, access: Access) -> QuerySet[Invitation]:
        return super().rows(access).filter(expires_at__gt=timezone.now())

    def create(self, access: Access, values: Mapping[str, Any]) -> Invitation:
        scope = values.get("project") or values["organization"]
        role = values.get("role", Role.MEMBER)
        require(access, Action.MANAGE, changes.membership_of(User(), scope, role))
        return changes.invite(values["username"], scope, role)


ORGANIZATIONS: Final = Organizations()
PROJECTS: Final = Projects()
INVITATIONS: Final = Invitations()
