"""Organisations and the projects in them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.base import Changes, Makes, Removes
from accounts.api.wire import Filters, Nothing, StrictModel, id_filter, switch_filter, text_filter
from accounts.base.redaction import MAX_LITERAL, MAX_RULES, check_redactions
from accounts.models import Organization, Project
from accounts.services import changes
from accounts.services.access import Action


class Seen(serializers.PrimaryKeyRelatedField):  # type: ignore[type-arg]
    """The id of a row that the caller sees. Others are told apart from none by nobody."""

    def __init__(self, model: type[Model], *related: str, **more: Any) -> None:
        self.model, self.related = model, related
        more["error_messages"] = {
            "does_not_exist": f"There is no {model._meta.verbose_name} of this id, or not for you.",
            "incorrect_type": "Give an id, a whole number.",
        }
        # REST framework wants a queryset at once; the caller is known later.
        super().__init__(queryset=model._default_manager.none(), **more)

    def run_validation(self, data: Any = empty) -> Any:
        """As REST framework's. Raises ValidationError for an empty text, which it takes for null:
        that is a wider place."""
        if data == "":
            self.fail("incorrect_type")
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> Any:
        """The row. Raises ValidationError for what is no id: Django takes 1.5 for 1."""
        if isinstance(data, float):
            self.fail("incorrect_type")
        return super().to_internal_value(data)

    def get_queryset(self) -> QuerySet[Any]:
        """What the caller sees."""
        view = self.context.get("view")
        if view is None or getattr(view, "swagger_fake_view", False):
            return self.model._default_manager.none()
        rows: QuerySet[Any] = view.access.rows(self.model)
        return rows.select_related(*self.related) if self.related else rows


class OrganizationBody(StrictModel):
    """An organisation."""

    class Meta:
        model = Organization
        fields = ["id", "name", "is_active", "created_at", "updated_at"]
        read_only_fields = ["is_active", "created_at", "updated_at"]


class OrganizationFilters(Filters):
    """Which organisations."""

    name = text_filter("Exactly this name.")
    is_active = switch_filter("Only active or inactive ones.")


class Switches(Makes, Changes, Removes):
    """And activated and deactivated: keys of what is inactive open no door."""

    switch: ClassVar[Action] = Action.MANAGE

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def activate(self, request: Request, pk: str) -> Response:
        """Let the keys in it open the door again."""
        return self._switch(is_active=True)

    @extend_schema(request=Nothing)
    @action(detail=True, methods=["post"])
    def deactivate(self, request: Request, pk: str) -> Response:
        """Let none of the keys in it open the door, within a second."""
        return self._switch(is_active=False)

    def _switch(self, *, is_active: bool) -> Response:
        Nothing(data=self.request.data).is_valid(raise_exception=True)
        row = self.get_object()
        self.require(self.switch, row)
        return self.told(changes.set_active(row, is_active))


class Organizations(Switches):
    """Companies or teams. What is in one is seen by its members alone. Administrators of the
    platform make, switch and remove them; owners rename theirs. One that has projects stays."""

    model = Organization
    serializer_class = OrganizationBody
    filters = OrganizationFilters
    ordering = ("name",)
    words = ("an organisation", "organisations")
    switch = Action.SWITCH
    removal = Action.REMOVE


class ProjectBody(StrictModel):
    """A project."""

    organization = Seen(Organization, help_text="The organisation's id; it cannot be changed.")
    organization_name = serializers.CharField(source="organization.name", read_only=True)
    capture_redactions = serializers.ListField(
        child=serializers.CharField(max_length=MAX_LITERAL, trim_whitespace=False),
        max_length=MAX_RULES,
        required=False,
        validators=[check_redactions],
        help_text="What is blacked out of kept texts: `email`, `card`, `phone`, `ip` or `secret`, "
        "or any words as they are. Only those who may set it see it.",
    )

    class Meta:
        model = Project
        fields = [
            *("id", "organization", "organization_name", "name", "is_active"),
            *("capture_hours", "capture_redactions", "created_at", "updated_at"),
        ]
        read_only_fields = ["is_active", "created_at", "updated_at"]
        validators: ClassVar[list[Any]] = []

    def get_fields(self) -> Any:
        """A project stays in its organisation."""
        return fixed(super().get_fields(), self, "organization")

    def to_representation(self, instance: Any) -> Any:
        """What is blacked out tells something of what is said."""
        told = super().to_representation(instance)
        if not self.context["view"].access.may(Action.CAPTURE, instance):
            del told["capture_redactions"]
        return told


_KEEPING = frozenset({"capture_hours", "capture_redactions"})


class ProjectFilters(Filters):
    """Which projects."""

    organization = id_filter("an organisation")
    name = text_filter("Exactly this name.")
    is_active = switch_filter("Only active or inactive ones.")


class Projects(Switches):
    """What keys are made for, and what is counted together. One that has keys stays, even when
    they are revoked."""

    model = Project
    serializer_class = ProjectBody
    related = ("organization",)
    filters = ProjectFilters
    ordering = ("name",)
    words = ("a project", "projects")

    def partial_update(self, request: Request, pk: str) -> Response:
        """Change what the request names; the rest stays. What is kept of requests' texts is
        decided by those who lead the organisation."""
        row = self.get_object()
        self.require(Action.MANAGE, row)
        values = self.read_body(row)
        if not _KEEPING.isdisjoint(values):
            self.require(Action.CAPTURE, row)
        return self.told(changes.change(row, **values))


def fixed(fields: Any, body: serializers.Serializer[Any], *names: str) -> Any:
    """Lets only a new row be given these fields."""
    is_change = getattr(body.context.get("view"), "action", "") == "partial_update"
    if is_change or isinstance(body.instance, Model):
        for name in names:
            fields[name].read_only = True
    return fields
