"""Media rules, folders, limits per request, and refused media as resources."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from rest_framework import serializers

from vinery_accounts.access.access import Access
from vinery_accounts.models import LimitScope, Organization, Project, ScopedRow
from vinery_accounts.resources import fields
from vinery_accounts.resources.base import Resource, columns_of
from vinery_serving.media.rules import DenialReason
from vinery_serving.media.tables import models
from vinery_serving.media.tables.tester import TEST
from vinery_serving.media.tables.values import MAX_LIST, SCHEMES

RowT = TypeVar("RowT", bound=ScopedRow)

MAX_ROWS: Final = 1000
"""How many rules an organisation may have with its projects, and how many the platform."""
SCOPES: Final = [
    (each.value, each.label)
    for each in (LimitScope.PLATFORM, LimitScope.ORGANIZATION, LimitScope.PROJECT)
]
_SCOPE_FIELDS: Final = (
    *("id", "scope", "organization", "organization_name", "project", "project_name"),
)
_RULE_FIELDS: Final = ("max_bytes", "max_pixels", "note", "is_active", "created_at", "updated_at")


class _ScopedSerializer(fields.StrictModelSerializer):
    """The scope of a row: the platform, an organisation or a project."""

    scope = serializers.ChoiceField(choices=SCOPES, read_only=True)
    organization = fields.VisibleRelatedField(
        Organization,
        required=False,
        allow_null=True,
        help_text="The organisation's id; null without a project: the whole platform. It cannot "
        "be changed.",
    )
    organization_name = fields.name_of("organization")
    project = fields.VisibleRelatedField(
        Project,
        "organization",
        required=False,
        allow_null=True,
        help_text="The project's id; null: not for one project alone. It cannot be changed.",
    )
    project_name = fields.name_of("project")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values, with the organisation of a project that is named alone."""
        project = values.get("project")
        if project is not None and values.get("organization") is None:
            values["organization"] = project.organization
        return values


class ScopedFilters(fields.Filters):
    scope = fields.choice_filter(SCOPES, "Only of this scope.")
    organization = fields.id_filter("an organisation", "organization_id")
    project = fields.id_filter("a project", "project_id")

    def filter_scope(self, rows: QuerySet[Any], scope: str) -> QuerySet[Any]:
        return rows.filter(
            organization__isnull=scope == LimitScope.PLATFORM,
            project__isnull=scope != LimitScope.PROJECT,
        )


class _ScopedResource(Resource[RowT]):
    """Rows of the platform, which administrators change, and narrower rows of organisations and
    projects, which owners change."""

    related = ("organization", "project__organization")
    verbs = frozenset({"create", "change", "remove"})

    def check(self, access: Access, row: RowT, stored: RowT | None = None) -> None:
        """Raise `PermissionDenied`, or ValidationError for one row too many."""
        super().check(access, row, stored)
        rows = self.model._default_manager.filter(organization=row.organization_id)
        if stored is None and rows.count() >= MAX_ROWS:
            raise ValidationError(f"There are {MAX_ROWS} {self.many}. Remove some first.")


def _list_of(
    column: str, child: Any, max_length: int = MAX_LIST, **more: Any
) -> serializers.ListField:
    field: Any = models.MediaRule._meta.get_field(column)
    details = {"help_text": field.help_text, "max_length": max_length, **more}
    return serializers.ListField(child=child, required=False, **details)


class MediaRuleSerializer(_ScopedSerializer):
    """A rule that allows the URLs of a host."""

    schemes = _list_of(
        "schemes", serializers.ChoiceField(choices=SCHEMES), len(SCHEMES), allow_empty=False
    )
    ports = _list_of("ports", serializers.IntegerField(min_value=1, max_value=65535))
    content_types = _list_of("content_types", serializers.CharField(max_length=100))
    networks = _list_of(
        "networks",
        serializers.CharField(max_length=50),
        help_text="Addresses that are not public and allowed nevertheless, such as 10.1.0.0/16. "
        "Only administrators see and set them, in rules of the platform.",
    )

    class Meta:
        model = models.MediaRule
        fields = [
            *(*_SCOPE_FIELDS, "host", "schemes", "ports", "content_types"),
            *("max_redirects", "timeout_s", "networks", *_RULE_FIELDS),
        ]
        validators = ()
        fixed = ("organization", "project")

    def to_representation(self, instance: Any) -> Any:
        """Return the body. The addresses of a private network are for administrators alone."""
        body = super().to_representation(instance)
        if not self.context["access"].is_superuser:
            del body["networks"]
        return body


class MediaRules(_ScopedResource[models.MediaRule]):
    """Rules that allow media of requests to be fetched from the URLs of a host. Without a rule of
    the platform no URL is fetched. Administrators write rules of the platform. An organisation or
    a project without rules takes those of the wider scope; with rules of its own it narrows them:
    a URL must be allowed by each scope, and the strictest value counts. Owners write these."""

    model = models.MediaRule
    serializer = MediaRuleSerializer
    filters = ScopedFilters.of(
        host=fields.text_filter("Exactly this host or pattern."),
        is_active=fields.switch_filter("Only active rules, or only the others."),
    )
    ordering = ("host",)
    search = ("host", "note")
    one, many = "a media rule", "media rules"
    help = {
        "create": "Allow the URLs of a host. It is in force within a second.",
        "change": "Change the fields that the request names. In force within a second.",
    }
    actions = (TEST,)
    empty_text = (
        "No host is allowed yet: a request may hold media itself, and none is fetched from a URL. "
        "Add a rule for each host that is trusted."
    )

    def hidden(self, access: Access, row: models.MediaRule | None) -> frozenset[str]:
        return frozenset() if access.is_superuser else frozenset({"networks"})

    columns = columns_of(
        "id scope whose host schemes ports types=content_types max_bytes active=is_active note"
    )


class MediaFolderSerializer(_ScopedSerializer):
    """A rule that allows the files of a folder."""

    class Meta:
        model = models.MediaFolder
        fields = [*_SCOPE_FIELDS, "folder", *_RULE_FIELDS]
        validators = ()
        fixed = ("organization", "project")


class MediaFolders(_ScopedResource[models.MediaFolder]):
    """Folders of the server whose files requests may name, with the folders below them. Without a
    folder of the platform no file is read. Administrators name folders of the platform; folders of
    an organisation or a project narrow them, and owners name these."""

    model = models.MediaFolder
    serializer = MediaFolderSerializer
    filters = ScopedFilters.of(
        folder=fields.text_filter("Exactly this folder."),
        is_active=fields.switch_filter("Only active folders, or only the others."),
    )
    ordering = ("folder",)
    search = ("folder", "note")
    one, many = "a media folder", "media folders"
    help = {
        "create": "Allow the files of a folder. It is in force within a second.",
        "change": "Change the fields that the request names. In force within a second.",
    }
    empty_text = "No folder is allowed yet: requests cannot name files of the server."
    columns = columns_of("id scope whose folder max_bytes active=is_active note")


class MediaLimitSerializer(_ScopedSerializer):
    """How many media a request may have."""

    class Meta:
        model = models.MediaLimit
        fields = [*_SCOPE_FIELDS, "max_media", "created_at", "updated_at"]
        validators = ()
        fixed = ("organization", "project")


class MediaLimits(_ScopedResource[models.MediaLimit]):
    """How many pictures, videos and documents a request may have: the smallest number of the
    platform, the organisation and the project counts."""

    model = models.MediaLimit
    serializer = MediaLimitSerializer
    filters = ScopedFilters
    ordering = ("id",)
    one, many = "a media limit", "media limits"
    empty_text = "No number is set: requests may have as many media as the settings allow."
    columns = columns_of("id scope whose max_media")


class MediaDenialSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """Media that the rules refused: how often, and why."""

    what = serializers.CharField(help_text="The folder, or the URL without its path.")
    level = serializers.ChoiceField(choices=SCOPES, help_text="Whose rules refused it.")
    reason = serializers.ChoiceField(choices=models.DENIAL_REASONS)

    class Meta:
        model = models.MediaDenial
        fields = [
            *("id", "organization_id", "organization_name", "project_id", "project_name", "what"),
            *("scheme", "host", "port", "folder", "level", "reason", "detail", "rule_id", "num"),
            *("first_at", "last_at"),
        ]

    def to_representation(self, instance: Any) -> Any:
        """Return the body. Addresses, which may be private, are for administrators alone."""
        body = super().to_representation(instance)
        if body["reason"] == DenialReason.ADDRESS and not self.context["access"].is_superuser:
            body["detail"] = ""
        return body


class MediaDenials(Resource[models.MediaDenial]):
    """Media that the rules refused, counted by project, host or folder, and reason; the newest
    first. Paths of URLs and names of files are not kept. Ids are 0 for a caller without a key."""

    model = models.MediaDenial
    serializer = MediaDenialSerializer
    filters = fields.Filters.of(
        organization_id=serializers.IntegerField(
            required=False,
            min_value=0,
            max_value=fields.MAX_ID,
            help_text="The id of an organisation.",
        ),
        project_id=serializers.IntegerField(
            required=False, min_value=0, max_value=fields.MAX_ID, help_text="The id of a project."
        ),
        reason=fields.choice_filter(models.DENIAL_REASONS, "Only with this reason."),
        level=fields.choice_filter(SCOPES, "Only those that rules of this scope refused."),
        host=fields.text_filter("Only of this host."),
    )
    ordering = ("-last_at",)
    search = ("host", "folder")
    one, many = "refused media", "refused media"
    empty_text = "Nothing was refused yet."
    columns = columns_of(
        "last=last_at count=num what detail level organization=organization_name "
        "project=project_name",
        why=lambda denial: denial.why(with_address=False),
    )

    def rows(self, access: Access) -> QuerySet[models.MediaDenial]:
        rows = models.MediaDenial.objects.all()
        if access.is_superuser:
            return rows
        seen = Q(organization_id__in=access.organizations) | Q(project_id__in=access.projects)
        return rows.filter(seen)

    def hidden(self, access: Access, row: models.MediaDenial | None) -> frozenset[str]:
        return frozenset() if access.is_superuser else frozenset({"detail"})


MEDIA_RULES: Final = MediaRules()
MEDIA_FOLDERS: Final = MediaFolders()
MEDIA_LIMITS: Final = MediaLimits()
MEDIA_DENIALS: Final = MediaDenials()
ALL: Final[Mapping[str, Resource[Any]]] = {
    "media-rules": MEDIA_RULES,
    "media-folders": MEDIA_FOLDERS,
    "media-limits": MEDIA_LIMITS,
    "media-denials": MEDIA_DENIALS,
}
"""By their names in the URLs of the API."""
