"""API keys, from creation to revocation."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.utils import timezone
from rest_framework import serializers

from vinery_accounts.access.access import Access, Action
from vinery_accounts.access.served import check_models
from vinery_accounts.keys import lifecycle
from vinery_accounts.keys.lifecycle import matching
from vinery_accounts.models import ApiKey, KeyState, Project, Role, Scope, User
from vinery_accounts.models.keys import STATES, has_scope, in_state
from vinery_accounts.resources import base, fields
from vinery_accounts.resources.base import Conflict, Resource, RowAction, columns_of, require

MAX_GRACE: Final = timedelta(days=90)


class KeySerializer(fields.StrictModelSerializer):
    """An API key. Its secret is returned once, when the key is created."""

    owner = fields.VisibleRelatedField(
        User, required=False, help_text="The owner's id; default: you."
    )
    owner_name = serializers.CharField(source="owner.username", read_only=True)
    project = fields.VisibleRelatedField(
        Project, "organization", help_text="The project's id; it cannot be changed."
    )
    project_name = serializers.CharField(source="project.name", read_only=True)
    organization = serializers.IntegerField(source="project.organization_id", read_only=True)
    state = serializers.SerializerMethodField(help_text="Whether the key works, and why not.")
    scopes = serializers.ListField(
        label="Permissions",
        child=serializers.ChoiceField(choices=Scope.choices),
        required=False,
        allow_empty=False,
        help_text="What the key may be used for; default: inference and usage. An admin key "
        "(`admin`) belongs to an administrator of the platform; only administrators who signed in "
        "create one.",
    )
    models = fields.NameListField(
        source="allowed_models", help_text="The models that the key may use; empty: all."
    )
    endpoints = fields.NameListField(
        source="allowed_endpoints",
        help_text="The endpoints that the key may call, such as chat/completions; empty: all.",
    )
    networks = fields.NameListField(
        label="Allowed IP ranges (CIDR)",
        source="allowed_networks",
        help_text="The networks that the key may be used from, such as 10.0.0.0/8; empty: any.",
    )
    rotation_due_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="When the key must be rotated; null: never."
    )
    is_rotation_overdue = serializers.SerializerMethodField(
        help_text="Whether the rotation is overdue."
    )
    replaced_by = serializers.IntegerField(
        source="replaced_by_id",
        read_only=True,
        allow_null=True,
        help_text="The key that replaced this one in a rotation.",
    )

    class Meta:
        model = ApiKey
        fields = [
            *("id", "name", "note", "hint", "state", "owner", "owner_name", "project"),
            *("project_name", "organization", "scopes", "models", "endpoints", "networks"),
            *("created_at", "rotate_every_days", "rotation_grace_days", "rotation_due_at"),
            *("is_rotation_overdue", "expires_at", "paused_at", "revoked_at", "replaced_by"),
            *("last_used_at", "last_used_ip", "last_used_model", "updated_at"),
        ]
        read_only_fields = [
            *("hint", "paused_at", "revoked_at", "last_used_at", "last_used_ip"),
            "last_used_model",
        ]
        fixed = ("owner", "project")
        extra_kwargs = {
            "name": {"help_text": "A label to recognise the key by, such as laptop."},
            "note": {"help_text": "Free text, such as a contact or a ticket."},
            "expires_at": {"label": "Expires", "help_text": "Empty: never."},
            "rotate_every_days": {
                "label": "Rotation period (days)",
                "help_text": "The rotation is due this many days after the key was created. "
                "Empty: never.",
            },
            "rotation_grace_days": {
                "label": "Grace period (days)",
                "help_text": "The key is disabled this many days after a missed rotation. Empty: "
                "it is only marked as overdue.",
            },
        }

    def get_state(self, key: ApiKey) -> KeyState:
        return key.state_at(timezone.now())

    def get_is_rotation_overdue(self, key: ApiKey) -> bool:
        return key.is_rotation_overdue(timezone.now())


NewKeySerializer = fields.with_secret(KeySerializer, "Keep it now: it is not stored.")


class RotationSerializer(fields.StrictSerializer):
    """How a key is rotated."""

    grace_s = serializers.IntegerField(
        default=0,
        min_value=0,
        max_value=int(MAX_GRACE.total_seconds()),
        help_text="How many seconds the old key keeps working; with 0 it is revoked.",
    )


class KeyFilters(fields.Filters):
    organization = fields.id_filter("an organisation", "project__organization_id")
    project = fields.id_filter("a project", "project_id")
    owner = fields.id_filter("an owner", "owner_id")
    name = fields.text_filter("Exactly this name.")
    hint = fields.text_filter("Exactly this hint.")
    state = fields.choice_filter(STATES, "Only in this state.")
    scope = fields.choice_filter(Scope.choices, "Only with this scope.")
    search = fields.text_filter("Part of the name, the hint, or the owner's or project's name.")

    def filter_state(self, rows: QuerySet[ApiKey], state: str) -> QuerySet[ApiKey]:
        return rows.filter(in_state(KeyState(state), timezone.now()))

    def filter_scope(self, rows: QuerySet[ApiKey], scope: str) -> QuerySet[ApiKey]:
        return rows.filter(has_scope(scope))

    def filter_search(self, rows: QuerySet[ApiKey], text: str) -> QuerySet[ApiKey]:
        return rows.filter(matching(text))


def _rotate(key: ApiKey, *, grace_s: float = 0) -> base.Issued:
    try:
        new = lifecycle.rotate_key(key, grace=timedelta(seconds=grace_s))
    except ValueError as error:
        raise Conflict(str(error)) from error
    return base.Issued(new.key, new.secret)


def _pause(key: ApiKey) -> None:
    _check_not_revoked(key)
    lifecycle.pause_key(key)


def _resume(key: ApiKey) -> None:
    _check_not_revoked(key)
    lifecycle.resume_key(key)


def _check_not_revoked(key: ApiKey) -> None:
    if key.revoked_at is not None:
        raise Conflict(f"{key} is revoked for good. Create a new key.")


_MOST_ADDRESSES: Final = 50


class Keys(Resource[ApiKey]):
    """API keys that programs send. Members manage their own keys, admins all keys of their
    organisation or project."""

    model = ApiKey
    path = "keys"
    serializer = KeySerializer
    answers = {"create": NewKeySerializer}
    filters = KeyFilters
    related = ("owner", "project__organization")
    ordering = ("-created_at",)
    one, many = "a key", "keys"
    verbs = frozenset({"create", "change", "remove"})
    removal = Action.REMOVE
    search = ("name", "hint", "owner__username", "project__name")
    page_filters = ("search", "state", "organization", "project")
    help = {
        "create": "Create a key. The response holds its secret, which is never returned again.",
        "change": "Change the fields that the request names. Servers follow within a second.",
        "remove": "Delete a key for good, so that its project can be removed. Only administrators "
        "of the platform do this: a deleted key looks like one that never existed. Revoke a key to "
        "stop it.",
    }
    empty_text = "No key yet. Add one: programs send it with each request."
    actions = (
        RowAction(
            "pause", _pause, "Stop a key until it is resumed.", "paused", permission=Action.STOP
        ),
        RowAction("resume", _resume, "Resume a paused key.", "resumed", permission=Action.RESUME),
        RowAction(
            "rotate",
            _rotate,
            "Replace a key by a new one with the same permissions. The old key may keep working "
            "for a grace period.",
            "rotated",
            RotationSerializer,
            NewKeySerializer,
            201,
        ),
        RowAction(
            "revoke",
            lifecycle.revoke_key,
            "Stop a key for good. Programs that use it are refused within a second, and their "
            "running requests end. This cannot be undone: pause a key to stop it for a while.",
            "revoked",
            permission=Action.STOP,
        ),
    )
    columns = columns_of(
        "id hint name user=owner.username organization=project.organization.name "
        "project=project.name state expires=expires_at rotation_due=rotation_due_at "
        "last_used=last_used_at",
        state=lambda key: key.state_at(timezone.now()),
    )

    def check(self, access: Access, row: ApiKey, stored: ApiKey | None = None) -> None:
        """Raise `PermissionDenied` unless the caller may hold the key's secret, and
        ValidationError for an owner without a role in the project, or a new name of no model."""
        require_to_hold(access, row)
        _check_models(row, row.allowed_models, [] if stored is None else stored.allowed_models)
        if stored is None and not Access.of(row.owner).may(Action.MANAGE, row):
            lack = (
                "no administrator of the platform, as the owner of an admin key is"
                if row.is_for_administration
                else f"not a {Role.MEMBER} of {row.project}"
            )
            raise ValidationError({"owner": f"{row.owner} is {lack}."})

    def initial(self, access: Access) -> Mapping[str, Any]:
        project = access.rows(Project).order_by("id").first()
        return {"owner": access.user_id, "project": project and project.pk}

    def choices(self, access: Access) -> Mapping[str, Any]:
        is_admin = access.is_superuser and not access.is_of_key
        scopes = [each for each in Scope.choices if is_admin or each[0] != Scope.ADMIN]
        used = self.rows(access).exclude(last_used_ip=None).order_by("-last_used_at", "-pk")
        seen = dict.fromkeys(used.values_list("last_used_ip", flat=True)[:_MOST_ADDRESSES])
        return {"scopes": scopes, "networks": [str(each) for each in seen]}

    def check_values(self, values: Mapping[str, Any], stored: ApiKey | None = None) -> None:
        now = timezone.now()
        if stored is not None:
            lifecycle.with_expiry(stored, values, now)
            return
        expires_at: datetime | None = values.get("expires_at")
        if expires_at is not None and expires_at <= now:
            raise ValidationError({"expires_at": "Choose a time in the future, or leave it out."})
        lifecycle.expiry_of_new(values, now)

    def create(self, access: Access, values: Mapping[str, Any]) -> base.Issued:
        columns = dict(values)
        if "owner" not in columns:
            columns["owner"] = User.objects.get(pk=access.user_id or 0)
        self.check(access, ApiKey(**columns))
        self.check_values(columns)
        new = lifecycle.create_key(**columns)
        return base.Issued(new.key, new.secret)

    def change(self, access: Access, row: ApiKey, values: Mapping[str, Any]) -> ApiKey:
        """Give a key other values. The caller needs the permission for the old and new scopes."""
        self.check(access, row, row)
        _check_models(row, values.get("allowed_models", ()), row.allowed_models)
        scopes = values.get("scopes", row.scopes)
        require_to_hold(access, ApiKey(owner=row.owner, project=row.project, scopes=scopes))
        return lifecycle.change_key(row, **values)

    def act(self, access: Access, action: RowAction, row: ApiKey | None, **values: Any) -> Any:
        if row is not None and action.name == "rotate":
            require_to_hold(access, row)
        return super().act(access, action, row, **values) or row


def _check_models(key: ApiKey, names: Iterable[str], known: Iterable[str]) -> None:
    """The key's present names may be names of models that are gone."""
    check_models("allowed_models", [each for each in names if each not in known], key.project_id)


def require_to_hold(access: Access, key: ApiKey) -> None:
    """Raise `PermissionDenied` unless the caller may hold the secret of this key: a client with
    the secret acts in the name of the key's owner."""
    if key.is_for_administration and not access.may_act_as(key):
        raise PermissionDenied(
            "Only an administrator of the platform who signed in creates, changes or rotates an "
            "admin key."
        )
    require(access, Action.MANAGE, key)
    if not access.may_act_as(key):
        raise PermissionDenied(
            f"{key.owner} may do more than you: you may not hold a key of theirs with the scope "
            "`manage`."
        )


KEYS: Final = Keys()
