"""API keys, from being made to being revoked."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.base import Changes
from accounts.api.errors import Conflict
from accounts.api.organizations import Seen, fixed
from accounts.api.wire import (
    Filters,
    Nothing,
    Strict,
    StrictModel,
    choice_filter,
    id_filter,
    text_filter,
)
from accounts.keys import lifecycle as keys
from accounts.keys.lifecycle import matching
from accounts.models import ApiKey, KeyState, Project, Role, Scope, User
from accounts.models.keys import in_state
from accounts.services.access import Access, Action

_MAX_GRACE: Final = timedelta(days=90)


class Names(serializers.ListField):
    """A list of names; an empty one allows all."""

    child = serializers.CharField(max_length=255)

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"required": False, "max_length": 1000, **more})


class KeyBody(StrictModel):
    """A key. Its secret is told once, when it is made."""

    owner = Seen(User, required=False, help_text="The owner's id; you, unless said otherwise.")
    owner_name = serializers.CharField(source="owner.username", read_only=True)
    project = Seen(Project, "organization", help_text="The project's id; it cannot be changed.")
    project_name = serializers.CharField(source="project.name", read_only=True)
    organization = serializers.IntegerField(source="project.organization_id", read_only=True)
    state = serializers.SerializerMethodField(help_text="Whether it opens the door, and why not.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=Scope.choices),
        required=False,
        allow_empty=False,
        help_text="What it may be used for; inference and usage, unless said otherwise.",
    )
    models = Names(source="allowed_models", help_text="The models it may use; empty: all.")
    endpoints = Names(
        source="allowed_endpoints",
        help_text="The endpoints it may call, such as chat/completions; empty: all.",
    )
    networks = Names(
        source="allowed_networks",
        help_text="The networks it may be used from, such as 10.0.0.0/8; empty: all.",
    )
    rotation_due_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="When it is to be rotated; null: at no time."
    )
    is_rotation_overdue = serializers.SerializerMethodField(
        help_text="Whether it should have been rotated by now."
    )
    replaced_by = serializers.IntegerField(
        source="replaced_by_id", read_only=True, allow_null=True, help_text="Its rotation's key."
    )

    class Meta:
        model = ApiKey
        fields = [
            *("id", "name", "hint", "state", "owner", "owner_name", "project", "project_name"),
            *("organization", "scopes", "models", "endpoints", "networks", "created_at"),
            *("rotate_every_days", "rotation_grace_days", "rotation_due_at"),
            *(
                "is_rotation_overdue",
                "expires_at",
                "paused_at",
                "revoked_at",
                "replaced_by",
                "last_used_at",
            ),
            *("last_used_ip", "last_used_model", "updated_at"),
        ]
        read_only_fields = [
            *("hint", "created_at", "paused_at", "revoked_at", "last_used_at", "last_used_ip"),
            *("last_used_model", "updated_at"),
        ]

    def get_fields(self) -> Any:
        """A key stays its owner's, in its project."""
        return fixed(super().get_fields(), self, "owner", "project")

    def get_state(self, key: ApiKey) -> KeyState:
        """At this moment."""
        return key.state_at(timezone.now())

    def get_is_rotation_overdue(self, key: ApiKey) -> bool:
        """At this moment."""
        return key.is_rotation_overdue(timezone.now())

    def validate_expires_at(self, expires_at: datetime | None) -> datetime | None:
        """Raises ValidationError for a key that is over when it begins."""
        if self.instance is None and expires_at is not None and expires_at <= timezone.now():
            raise serializers.ValidationError("Choose a time in the future, or leave it out.")
        return expires_at


class NewKeyBody(KeyBody):
    """A key with its secret, which is told now and never again."""

    secret = serializers.SerializerMethodField(help_text="Keep it now: it is not stored.")

    class Meta(KeyBody.Meta):
        fields = [*KeyBody.Meta.fields, "secret"]

    def get_secret(self, key: ApiKey) -> str:
        """What was just drawn."""
        return str(self.context["secret"])


class RotationBody(Strict):
    """How a key is replaced."""

    grace_s = serializers.IntegerField(
        default=0,
        min_value=0,
        max_value=int(_MAX_GRACE.total_seconds()),
        help_text="How many seconds the old key goes on to work; with 0 it is revoked.",
    )


class KeyFilters(Filters):
    """Which keys."""

    lookups: ClassVar[dict[str, str]] = {
        "organization": "project__organization_id",
        "project": "project_id",
        "owner": "owner_id",
    }
    organization = id_filter("an organisation")
    project = id_filter("a project")
    owner = id_filter("an owner")
    name = text_filter("Exactly this name.")
    hint = text_filter("Exactly this hint.")
    state = choice_filter([(state.value, state.value) for state in KeyState], "Only in this state.")
    search = text_filter("A part of the name, the hint, or the owner's or project's name.")

    def filter_state(self, rows: QuerySet[ApiKey], state: str) -> QuerySet[ApiKey]:
        """By what `state_at` says now."""
        return rows.filter(in_state(KeyState(state), timezone.now()))

    def filter_search(self, rows: QuerySet[ApiKey], text: str) -> QuerySet[ApiKey]:
        """As people remember keys."""
        return rows.filter(matching(text))


class Keys(Changes):
    """Keys that programs call with. Members manage their own, admins all of their place."""

    model = ApiKey
    serializer_class = KeyBody
    related = ("owner", "project__organization")
    filters = KeyFilters
    ordering = ("-created_at",)
    words = ("a key", "keys")

    @extend_schema(responses={201: NewKeyBody})
    def create(self, request: Request) -> Response:
        """Make a key. The answer holds its secret, which cannot be told again."""
        values = self.read_body()
        values.setdefault("owner", self._caller())
        self._require_to_hold(ApiKey(**values))
        self._require_role_of_owner(values["owner"], values["project"])
        for name in ("models", "endpoints", "networks"):
            values[name] = values.pop(f"allowed_{name}", ())
        return self._told_once(keys.create_key(**values))

    def partial_update(self, request: Request, pk: str) -> Response:
        """Change what the request names; the rest stays. Servers follow within a second."""
        key = self.get_object()
        wanted = self.read_body(key)
        self._require_to_hold(key)
        scopes = wanted.get("scopes", key.scopes)
        self._require_to_hold(ApiKey(owner=key.owner, project=key.project, scopes=scopes))
        return self.told(keys.change_key(key, **wanted))

    @extend_schema(request=RotationBody, responses={201: NewKeyBody})
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Replace a key by a new one that may do the same; the old one works on for a time."""
        body = RotationBody(data=request.data)
        body.is_valid(raise_exception=True)
        key = self.get_object()
        self._require_to_hold(key)
        try:
            new = keys.rotate_key(key, grace=timedelta(seconds=body.validated_data["grace_s"]))
        except ValueError as error:
            raise Conflict(str(error)) from error
        return self._told_once(new)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Stop a key until it is resumed."""
        key = self._to_be_stopped()
        self._refuse_revoked(key)
        keys.pause_key(key)
        return self.told(key)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Let a paused key open the door again."""
        Nothing(data=request.data).is_valid(raise_exception=True)
        key = self.get_object()
        self.require(Action.RESUME, key)
        self._refuse_revoked(key)
        keys.resume_key(key)
        return self.told(key)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Stop a key for good, and end what it runs."""
        key = self._to_be_stopped()
        keys.revoke_key(key)
        return self.told(key)

    def _caller(self) -> User:
        return User.objects.get(pk=self.access.user_id or 0)

    def _to_be_stopped(self) -> ApiKey:
        Nothing(data=self.request.data).is_valid(raise_exception=True)
        key: ApiKey = self.get_object()
        self.require(Action.STOP, key)
        return key

    def _refuse_revoked(self, key: ApiKey) -> None:
        if key.revoked_at is not None:
            raise Conflict("This key is revoked, for good. Create a new one.")

    def _require_to_hold(self, key: ApiKey) -> None:
        """Whoever learns a secret acts in its owner's name."""
        self.require(Action.MANAGE, key)
        if not self.access.may_act_as(key):
            raise PermissionDenied(
                f"{key.owner} may do more than you: you may not hold a key of theirs with the "
                "scope `manage`."
            )

    def _require_role_of_owner(self, owner: User, project: Project) -> None:
        theirs = Access.of(owner)
        if not theirs.may(Action.MANAGE, ApiKey(owner=owner, project=project)):
            raise serializers.ValidationError(
                {"owner": f"{owner} is not a {Role.MEMBER} of {project}."}
            )

    def _told_once(self, new: keys.NewKey) -> Response:
        context = {**self.get_serializer_context(), "secret": new.secret}
        return Response(NewKeyBody(new.key, context=context).data, status=201)
