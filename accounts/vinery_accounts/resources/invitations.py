"""Invitations: roles that owners offer to users by name."""

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import QuerySet
from django.utils import timezone

from vinery_accounts.access import changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.models import Invitation, Organization, Project, Role, User
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Resource, RowAction, columns_of, require
from vinery_accounts.resources.fields import Filters, StrictModelSerializer, VisibleRelatedField
from vinery_accounts.resources.users import MembershipSerializer, one_scope


class InvitationSerializer(StrictModelSerializer):
    """A role that a user may accept."""

    organization = VisibleRelatedField(
        Organization, required=False, help_text="For a role in the whole organisation."
    )
    organization_name = fields.name_of("organization")
    project = VisibleRelatedField(
        Project,
        "organization",
        required=False,
        help_text="For a role in this project alone.",
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
            },
        }

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        return one_scope(values, is_required=True)


class Invitations(Resource[Invitation]):
    """Roles that owners offer to users by their exact name. The user accepts or declines. The
    response is the same whether or not there is a user of this name, because names of users are
    unique on the platform, and an owner learns nothing of other organisations. An invitation
    expires after 14 days. Owners see those of their organisation, users those to them."""

    model = Invitation
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
            Action.ANSWER,
            changes.accept,
            "Accept an invitation to you. Only the invited user may do this, with a session.",
            "accepted",
            answer=MembershipSerializer,
        ),
    )
    columns = columns_of("id username role organization project invited_by expires_at")

    def rows(self, access: Access) -> QuerySet[Invitation]:
        return super().rows(access).filter(expires_at__gt=timezone.now())

    def create(self, access: Access, values: Mapping[str, Any]) -> Invitation:
        scope = values.get("project") or values["organization"]
        role = values.get("role", Role.MEMBER)
        require(access, Action.MANAGE, changes.membership_of(User(), scope, role))
        return changes.invite(values["username"], scope, role)


INVITATIONS: Final = Invitations()
