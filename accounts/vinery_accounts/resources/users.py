"""Users, service accounts, and their roles."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.http import int_to_base36
from rest_framework import serializers

from vinery_accounts.access import audit, changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.models import Membership, Organization, Project, Role, User
from vinery_accounts.resources import base, fields
from vinery_accounts.resources.base import Conflict, Resource, RowAction, columns_of, require
from vinery_accounts.signin.factors import reset_second_factor, set_password


class UserSerializer(fields.StrictModelSerializer):
    """A user, as other users see them."""

    created_at = serializers.DateTimeField(source="date_joined", read_only=True)

    class Meta:
        model = User
        fields = [
            *("id", "username", "email", "is_email_confirmed", "first_name", "last_name"),
            *("is_service", "is_active", "is_superuser", "last_login", "created_at", "updated_at"),
        ]
        read_only_fields = (
            *("username", "is_email_confirmed", "is_service", "is_active", "is_superuser"),
            "last_login",
        )


class NewUserSerializer(fields.StrictSerializer):
    """A new user, with a role in an organisation or a project."""

    username = serializers.CharField(
        label="User name",
        max_length=150,
        help_text="The name gets a mark of the organisation or project, such as alice@o7, unless "
        "an administrator of the platform creates the user.",
    )
    email = serializers.EmailField(
        label="E-mail address", required=False, default="", allow_blank=True
    )
    password = serializers.CharField(
        required=False,
        write_only=True,
        max_length=4096,
        trim_whitespace=False,
        help_text="Without one, the user cannot sign in by password.",
    )
    is_service = serializers.BooleanField(
        label="Service account",
        default=False,
        help_text="A program's account: it owns keys and cannot sign in.",
    )
    organization = fields.VisibleRelatedField(
        Organization, required=False, help_text="For a role in the whole organisation."
    )
    project = fields.VisibleRelatedField(
        Project, required=False, help_text="For a role in this project alone."
    )
    role = serializers.ChoiceField(choices=Role.choices, default=Role.MEMBER)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        return one_scope(values)


def one_scope(values: dict[str, Any], *, is_required: bool = False) -> dict[str, Any]:
    """Raise ValidationError for both scopes and, if a scope is required, for neither."""
    num_scopes = len(values.keys() & {"organization", "project"})
    if num_scopes > 1 or (is_required and not num_scopes):
        text = "Name the organisation or the project: the role is in one of them."
        raise serializers.ValidationError({"project": text})
    return values


class UserFilters(fields.Filters):
    organization = fields.id_filter("an organisation where they have a role")
    project = fields.id_filter("a project where they have a role of its own")
    username = fields.text_filter("Exactly this name.")
    is_service = fields.switch_filter("Only service accounts, or only people.")
    is_active = fields.switch_filter("Only active or inactive ones.")

    def filter_organization(self, rows: QuerySet[User], organization: int) -> QuerySet[User]:
        """Filter by the roles that the caller sees, so that the filter reveals no others."""
        return self._with_role(rows, organization_id=organization)

    def filter_project(self, rows: QuerySet[User], project: int) -> QuerySet[User]:
        return self._with_role(rows, project_id=project)

    def _with_role(self, rows: QuerySet[User], **scope: int) -> QuerySet[User]:
        roles = self.context["access"].rows(Membership).filter(**scope)
        return rows.filter(pk__in=roles.order_by().values("user_id"))


def _kind(user: User) -> str:
    return "administrator" if user.is_superuser else "service" if user.is_service else "person"


def _roles(user: User) -> list[str]:
    roles = user.memberships.all()
    return [f"{each.role} of {each.project or each.organization}" for each in roles]


class PasswordLinkSerializer(fields.StrictSerializer):
    """A link with which a user sets a password."""

    path = serializers.CharField(help_text="To open on this server. It works once.")
    expires_at = serializers.DateTimeField()


def _link(user: User) -> dict[str, Any]:
    if user.is_service:
        raise Conflict(f"{user} is a service account, which does not sign in.")
    if user.last_login is not None:
        raise Conflict(
            f"{user} has signed in already. An administrator of the platform can give a new "
            "password."
        )
    audit.record("password_link", user)
    # A token contains the stored password, so it ends with the next password. The same page opens
    # the links of e-mails, see `signin`.
    key = default_token_generator.make_token(user)
    names = {"uidb36": int_to_base36(user.pk), "key": key}
    return {
        "path": reverse("account_reset_password_from_key", kwargs=names),
        "expires_at": timezone.now() + timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT),
    }


class PasswordSerializer(fields.StrictSerializer):
    """A new password."""

    password = serializers.CharField(
        required=False,
        max_length=4096,
        trim_whitespace=False,
        help_text="Without one, a random password is set.",
    )


class NewPasswordSerializer(fields.StrictSerializer):
    """The password that was set."""

    password = serializers.CharField(help_text="Keep it now: it is not stored.")


def _new_password(user: User, password: str = "") -> dict[str, Any]:
    text = password or changes.new_password()
    set_password(user, text)
    return {"password": text}


def _second_factor_off(user: User) -> None:
    if not reset_second_factor(user):
        raise Conflict(f"{user} has no second factor.")


class Users(Resource[User]):
    """People and service accounts. Owners of an organisation manage the people who are in it
    alone, admins its service accounts. Only administrators of the platform remove users: their
    keys, roles and limits are removed with them, and their usage records stay."""

    model = User
    path, title = "users", "All users"
    serializer = UserSerializer
    bodies = {"create": NewUserSerializer}
    filters = UserFilters
    ordering = ("username",)
    one, many = "a user", "users"
    verbs = frozenset({"create", "change", "remove"})
    removal = Action.REMOVE
    actions = (
        *base.activation(Action.MANAGE, " A person is signed out and cannot sign in."),
        RowAction(
            "link",
            _link,
            "Get a link with which a user who has never signed in sets a password. It works once. "
            "Send it to that person alone: any holder can sign in with it.",
            answer=PasswordLinkSerializer,
        ),
        RowAction(
            "password",
            _new_password,
            "Give a user a new password. It ends the user's sessions, and lifts a lock-out. Only "
            "administrators of the platform may do this.",
            serializer=PasswordSerializer,
            answer=NewPasswordSerializer,
        ),
        RowAction(
            "second_factor_off",
            _second_factor_off,
            "Remove the second factor and the recovery codes of a user who lost them. Only "
            "administrators of the platform may do this.",
            "without a second factor",
            status=204,
        ),
    )
    page_filters = ("username",)
    columns = columns_of(
        "id name=username kind active=is_active roles last_login", kind=_kind, roles=_roles
    )
    help = {
        "create": "Create a user with a role in an organisation or a project. Only administrators "
        "of the platform create users without one. A key creates service accounts only, unless it "
        "is an admin key.",
        "change": "Change the fields that the request names. Only an admin key changes "
        "the e-mail address of a person.",
        "remove": "Remove a user for good, with their keys, roles and limits. Their usage records "
        "stay.",
    }

    def listed(self, access: Access) -> QuerySet[User]:
        roles = ("memberships__organization", "memberships__project__organization")
        return super().listed(access).prefetch_related(*roles)

    def create(self, access: Access, values: Mapping[str, Any]) -> User:
        columns = dict(values)
        scope = columns.pop("project", None) or columns.pop("organization", None)
        self._check_new(access, columns, scope)
        if scope is not None and not access.is_superuser:
            columns["username"] = _marked(columns["username"], scope)
        return changes.add_user(**_confirmed(access, columns), scope=scope)

    def _check_new(
        self, access: Access, columns: Mapping[str, Any], scope: Organization | Project | None
    ) -> None:
        if scope is None:
            if not access.is_superuser:
                text = "Name the organisation or the project of the new user."
                raise ValidationError({"organization": text})
            return
        candidate = changes.membership_of(User(), scope, columns["role"])
        if not columns["is_service"]:
            require(access, Action.MANAGE, candidate)
            _require_session(access)
            return
        # The creator of a service account holds its keys: the account may not do more than the
        # creator.
        project = Project(id=candidate.project_id, organization_id=candidate.organization_id)
        require(access, Action.MANAGE, project)
        if candidate.role == Role.OWNER:
            require(access, Action.MANAGE, candidate)

    def change(self, access: Access, row: User, values: Mapping[str, Any]) -> User:
        if "email" in values and not row.is_service:
            _require_session(access)
        return super().change(access, row, _confirmed(access, values, row.email))

    def act(self, access: Access, action: RowAction, row: User | None, **values: Any) -> Any:
        if action.name == "link":
            _require_session(access)
        if action.name in ("password", "second_factor_off"):
            base.require_administrator(access)
        return super().act(access, action, row, **values)


def _confirmed(access: Access, values: Mapping[str, Any], stored_email: str = "") -> dict[str, Any]:
    """Return the values, with whether a new address counts at sign-in through the issuer. An owner
    may give any address, also that of a person in another organisation."""
    given = values.get("email")
    if given is None or (given == stored_email and not access.is_superuser):
        return dict(values)
    return {**values, "is_email_confirmed": access.is_superuser}


def _marked(name: str, scope: Organization | Project) -> str:
    """Return the name with a mark of the scope. Names are unique on the platform: a caller who
    could choose any name would learn which names other organisations have."""
    mark = f"@{scope._meta.model_name:.1}{scope.pk}"
    return name.removesuffix(mark) + mark


def _require_session(access: Access) -> None:
    """Raise `PermissionDenied` for keys but admin keys. A password, and the address that a new
    password is sent to, admit a person who would keep this access when the key is revoked."""
    if access.is_of_key and not access.is_superuser:
        text = "A key creates no people and changes no address of theirs."
        raise PermissionDenied(f"{text} Sign in and use the session.")


class MembershipSerializer(fields.StrictModelSerializer):
    """A role of a user in an organisation, or in one of its projects."""

    user = fields.VisibleRelatedField(User, help_text="The user's id; it cannot be changed.")
    username = serializers.CharField(source="user.username", read_only=True)
    organization = fields.VisibleRelatedField(
        Organization, help_text="The organisation's id; it cannot be changed."
    )
    organization_name = serializers.CharField(source="organization.name", read_only=True)
    project = fields.VisibleRelatedField(
        Project,
        "organization",
        required=False,
        allow_null=True,
        help_text="Null: a role in the whole organisation. It cannot be changed.",
    )
    project_name = fields.name_of("project")
    last_login = serializers.DateTimeField(
        source="user.last_login", read_only=True, help_text="The user's last sign-in."
    )
    has_second_factor = serializers.SerializerMethodField(
        help_text="Whether the user has a second factor, also a passkey; null where your role does "
        "not show it."
    )

    class Meta:
        model = Membership
        fields = [
            *("id", "user", "username", "organization", "organization_name", "project"),
            *("project_name", "role", "last_login", "has_second_factor", "created_at"),
        ]
        validators = ()
        fixed = ("user", "organization", "project")

    def get_has_second_factor(self, membership: Membership) -> bool | None:
        is_seen = self.context["access"].leads(membership.organization_id, membership.project_id)
        return getattr(membership, "has_second_factor", None) if is_seen else None


class MeSerializer(UserSerializer):
    """The caller, with their roles."""

    memberships = MembershipSerializer(many=True, read_only=True)

    class Meta(UserSerializer.Meta):
        fields = [*UserSerializer.Meta.fields, "memberships"]


class MembershipFilters(fields.Filters):
    user = fields.id_filter("a user", "user_id")
    organization = fields.id_filter("an organisation", "organization_id")
    project = fields.id_filter("a project", "project_id")
    role = fields.choice_filter(Role.choices, "Only this role.")
    search = fields.text_filter("Part of the user's name or e-mail address.")

    def filter_search(self, rows: QuerySet[Membership], text: str) -> QuerySet[Membership]:
        return rows.filter(Q(user__username__icontains=text) | Q(user__email__icontains=text))


class Memberships(Resource[Membership]):
    """Roles of users in organisations and projects. Owners give and take them."""

    model = Membership
    path = "memberships"
    serializer = MembershipSerializer
    related = ("user", "organization", "project")
    search = ("user__username", "user__email")
    page_filters = ("search", "role", "organization", "project")
    filters = MembershipFilters
    one, many = "a role of a user", "roles of users"
    verbs = frozenset({"create", "change", "remove"})
    help = {
        "remove": "Take a role from a user. Keys that the user may no longer have are paused. The "
        "account stays. To undo this, add the role again, and resume the keys."
    }
    empty_text = "No user has a role yet. Add one for each."
    columns = columns_of("id user role organization project created=created_at")

    def rows(self, access: Access) -> QuerySet[Membership]:
        # The relation is allauth's, whose tables `signin` alone imports.
        kinds = ("totp", "webauthn")
        protected = User.objects.filter(pk=OuterRef("user_id"), authenticator__type__in=kinds)
        return super().rows(access).annotate(has_second_factor=Exists(protected))


USERS: Final = Users()
MEMBERSHIPS: Final = Memberships()
