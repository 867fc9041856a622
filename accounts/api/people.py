"""Users, service accounts, and their roles."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.base import Changes, Makes, Removes
from accounts.api.organizations import Seen, Switches, fixed
from accounts.api.wire import (
    Filters,
    Strict,
    StrictModel,
    choice_filter,
    id_filter,
    switch_filter,
    text_filter,
)
from accounts.models import Membership, Organization, Project, Role, User
from accounts.services import changes
from accounts.services.access import Action


class UserBody(StrictModel):
    """A user, as others see them."""

    created_at = serializers.DateTimeField(source="date_joined", read_only=True)

    class Meta:
        model = User
        fields = [
            *("id", "username", "email", "first_name", "last_name", "is_service", "is_active"),
            *("is_superuser", "last_login", "created_at", "updated_at"),
        ]
        read_only_fields = [
            *("username", "is_service", "is_active", "is_superuser", "last_login", "updated_at"),
        ]


class NewUserBody(Strict):
    """A user to be made, with a role in a place."""

    username = serializers.CharField(max_length=150)
    email = serializers.EmailField(required=False, default="", allow_blank=True)
    password = serializers.CharField(
        required=False,
        write_only=True,
        max_length=4096,
        trim_whitespace=False,
        help_text="Without one, the user cannot sign in by password.",
    )
    is_service = serializers.BooleanField(
        default=False, help_text="A program's account: it owns keys and cannot sign in."
    )
    organization = Seen(Organization, required=False, help_text="For a role in the whole of it.")
    project = Seen(Project, required=False, help_text="For a role in this project alone.")
    role = serializers.ChoiceField(choices=Role.choices, default=Role.MEMBER)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Raises ValidationError for two places."""
        if "organization" in values and "project" in values:
            raise serializers.ValidationError(
                {"project": "Name the organisation or the project: the role holds in one."}
            )
        return values


class UserFilters(Filters):
    """Which users."""

    organization = id_filter("an organisation where they have a role")
    project = id_filter("a project where they have a role of its own")
    username = text_filter("Exactly this name.")
    is_service = switch_filter("Only service accounts, or only people.")
    is_active = switch_filter("Only active or inactive ones.")

    def filter_organization(self, rows: QuerySet[User], organization: int) -> QuerySet[User]:
        """By the roles that the caller sees: others are not found out by asking for them."""
        return self._with_role(rows, organization_id=organization)

    def filter_project(self, rows: QuerySet[User], project: int) -> QuerySet[User]:
        """The same."""
        return self._with_role(rows, project_id=project)

    def _with_role(self, rows: QuerySet[User], **place: int) -> QuerySet[User]:
        roles = self.context["view"].access.rows(Membership).filter(**place)
        return rows.filter(pk__in=roles.order_by().values("user_id"))


class MembershipBody(StrictModel):
    """A role of a user in an organisation, or in one of its projects."""

    user = Seen(User, help_text="The user's id; it cannot be changed.")
    username = serializers.CharField(source="user.username", read_only=True)
    organization = Seen(Organization, help_text="The organisation's id; it cannot be changed.")
    organization_name = serializers.CharField(source="organization.name", read_only=True)
    project = Seen(
        Project,
        "organization",
        required=False,
        allow_null=True,
        help_text="Null: the role holds in the whole organisation. It cannot be changed.",
    )
    project_name = serializers.CharField(source="project.name", read_only=True, default=None)

    class Meta:
        model = Membership
        fields = [
            *("id", "user", "username", "organization", "organization_name", "project"),
            *("project_name", "role", "created_at"),
        ]
        read_only_fields = ["created_at"]
        validators: ClassVar[list[Any]] = []

    def get_fields(self) -> Any:
        """Only the role changes."""
        return fixed(super().get_fields(), self, "user", "organization", "project")


class MeBody(UserBody):
    """The caller, with their roles."""

    memberships = MembershipBody(many=True, read_only=True)

    class Meta(UserBody.Meta):
        fields = [*UserBody.Meta.fields, "memberships"]


class Users(Switches):
    """People and service accounts. Owners of an organisation manage the people who are in
    theirs alone, admins its service accounts. Only administrators of the platform remove them:
    their keys, roles and limits go with them, and what they have used stays."""

    model = User
    serializer_class = UserBody
    filters = UserFilters
    ordering = ("username",)
    words = ("a user", "users")
    removal = Action.REMOVE

    @extend_schema(request=NewUserBody, responses={201: UserBody})
    def create(self, request: Request) -> Response:
        """Make a user with a role in an organisation or a project. Only administrators of the
        platform make users without one. A key makes service accounts alone."""
        body = NewUserBody(data=request.data, context=self.get_serializer_context())
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        place = values.pop("project", None) or values.pop("organization", None)
        self._require_to_make(values, place)
        return self.told(changes.add_user(**values, place=place), 201)

    def _require_to_make(
        self, values: dict[str, Any], place: Organization | Project | None
    ) -> None:
        if place is None:
            if not self.access.is_superuser:
                raise serializers.ValidationError(
                    {"organization": "Name the organisation or the project that they belong to."}
                )
            return
        candidate = changes.membership_of(User(), place, values["role"])
        if not values["is_service"]:
            self.require(Action.MANAGE, candidate)
            self._require_session()
            return
        # Whoever makes a service account holds its keys: it may not be greater than they are.
        self.require_rank(candidate)

    def partial_update(self, request: Request, pk: str) -> Response:
        """Change what the request names; the rest stays. A key does not change the e-mail
        address of a person."""
        user = self.get_object()
        self.require(Action.MANAGE, user)
        values = self.read_body(user)
        if "email" in values and not user.is_service:
            self._require_session()
        return self.told(changes.change(user, **values))

    def _require_session(self) -> None:
        """Raises `PermissionDenied` for keys. A password and the address that new ones are sent
        to let somebody in, who would stay when the key is revoked."""
        if self.access.is_of_key:
            raise PermissionDenied(
                "A key makes no people and changes no address of theirs. Sign in and use the "
                "session."
            )

    def require_rank(self, candidate: Membership) -> None:
        """Raises `PermissionDenied` unless the caller leads the place and has the role."""
        self.require(
            Action.MANAGE,
            Project(id=candidate.project_id, organization_id=candidate.organization_id),
        )
        if candidate.role == Role.OWNER:
            self.require(Action.MANAGE, candidate)

    @extend_schema(responses=MeBody)
    @action(detail=False, methods=["get"])
    def me(self, request: Request) -> Response:
        """You, or the owner of your key, with all roles."""
        people = User.objects.prefetch_related(
            "memberships__user", "memberships__organization", "memberships__project"
        )
        context = self.get_serializer_context()
        return Response(MeBody(people.get(pk=self.access.user_id or 0), context=context).data)


class MembershipFilters(Filters):
    """Which roles."""

    user = id_filter("a user")
    organization = id_filter("an organisation")
    project = id_filter("a project")
    role = choice_filter(Role.choices, "Only this role.")


class Memberships(Makes, Changes, Removes):
    """Who has which role where. Owners decide."""

    model = Membership
    serializer_class = MembershipBody
    related = ("user", "organization", "project")
    filters = MembershipFilters
    words = ("a role of a user", "roles of users")
