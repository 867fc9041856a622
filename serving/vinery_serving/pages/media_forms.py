"""The forms of media rules, in the console and in the admin, and links to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import ValidationError
from django.urls import reverse

from vinery_accounts.access.access import Access, Action
from vinery_accounts.console.organization import ScopeField, scope_choices
from vinery_accounts.models import Organization, Project
from vinery_accounts.outbound.urls import DEFAULT_PORTS
from vinery_accounts.resources.base import Resource
from vinery_accounts.resources.forms import ResourceForm
from vinery_serving.media.rules import Denial, DenialReason
from vinery_serving.media.tables.models import MediaFolder, MediaRule, default_schemes
from vinery_serving.media.tables.resource import MEDIA_FOLDERS, MEDIA_LIMITS, MEDIA_RULES
from vinery_serving.media.tables.tester import vision_models

PLATFORM: Final = "platform"


class MediaScopeField(ScopeField):
    """A choice among the platform, for administrators, and what the user owns."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.label, self.help_text = (
            "Applies to",
            "Rules of an organisation or a project only narrow those of the platform.",
        )
        choices = scope_choices(access, access.owns)
        if access.is_superuser:
            choices.insert(0, (PLATFORM, "The whole platform"))
        assert isinstance(self.widget, forms.Select)
        self.widget.choices = choices

    def to_python(self, value: Any) -> Any:
        """Return the row, or `platform`. Raises ValidationError for what the user does not own."""
        row = PLATFORM if value == PLATFORM else super().to_python(value)
        if row is not None and not self._access.owns(*ids_of(row)):
            raise ValidationError("Choose an entry of the list.")
        return row


class ScopedForm(ResourceForm):
    """A form of a row that applies to the platform, an organisation or a project. A stored row
    keeps what it applies to."""

    scoped_resource: Resource[Any]
    names: tuple[str, ...]

    def __init__(self, access: Access, data: Any = None, *, row: Any = None, **more: Any) -> None:
        values = row or self.scoped_resource.model()
        initial = {name: getattr(values, name) for name in self.names}
        initial |= more.pop("initial", None) or {}
        super().__init__(self.scoped_resource, self.names, data, initial=initial, **more)
        for field in self.fields.values():
            # An empty number is none of the default: it is asked for.
            is_number = isinstance(field, forms.IntegerField | forms.FloatField)
            field.required = field.required or is_number
        if row is None:
            self.fields["of"] = MediaScopeField(access)
            self.order_fields(["of", *self.fields])

    @property
    def columns(self) -> dict[str, Any]:
        return {**super().columns, **_scope_columns(self.cleaned_data.get("of"))}


def ids_of(of: Any) -> tuple[int | None, int | None]:
    """Return the ids of the organisation and the project of a choice."""
    columns = _scope_columns(of)
    organization, project = columns.get("organization"), columns.get("project")
    return organization and organization.pk, project and project.pk


def _scope_columns(of: Any) -> dict[str, Any]:
    match of:
        case Project():
            return {"organization": of.organization, "project": of}
        case Organization():
            return {"organization": of}
    return {}


class RuleForm(ScopedForm):
    scoped_resource = MEDIA_RULES
    names = (
        *("host", "schemes", "ports", "content_types", "max_bytes", "max_pixels"),
        *("max_redirects", "timeout_s", "networks", "note", "is_active"),
    )
    rare = (
        *("ports", "content_types", "max_bytes", "max_pixels", "max_redirects", "timeout_s"),
        "networks",
    )

    def __init__(self, access: Access, data: Any = None, **more: Any) -> None:
        super().__init__(access, data, **more)
        if not access.is_superuser:
            del self.fields["networks"]


class FolderForm(ScopedForm):
    scoped_resource = MEDIA_FOLDERS
    names = ("folder", "max_bytes", "max_pixels", "note", "is_active")
    rare = ("max_bytes", "max_pixels")


class TestForm(forms.Form):
    """A URL or a path, and the caller of the test."""

    rare: ClassVar[tuple[str, ...]] = ()
    what = forms.CharField(
        label="URL or path", max_length=8192, help_text="As a client would send it."
    )

    def __init__(self, access: Access, data: Any = None) -> None:
        super().__init__(data)
        self.fields["of"] = MediaScopeField(access)
        self.fields["of"].label, self.fields["of"].help_text = "For a request of", ""
        names = [model.name for model in vision_models()]
        if names:
            choices = [(name, name) for name in names]
            text = "Who sees it: the size and the tokens depend on the model."
            self.fields["model"] = forms.ChoiceField(
                label="Vision model", required=False, choices=choices, help_text=text
            )

    def usual_fields(self) -> list[forms.BoundField]:
        return self.visible_fields()


class LimitForm(ScopedForm):
    scoped_resource = MEDIA_LIMITS
    names = ("max_media",)


FORMS: Final[Mapping[str, type[ScopedForm]]] = {
    "rules": RuleForm,
    "folders": FolderForm,
    "limits": LimitForm,
}
"""By the part of the console's addresses."""


# -- Links


@dataclass(frozen=True, slots=True)
class Link:
    """To the form of the rule that would allow what was refused."""

    row: MediaRule | MediaFolder  # a new one, or the one that refused it
    address: str

    @property
    def text(self) -> str:
        return "Allow" if self.row.pk is None else "Change the rule"

    def may_be_used_by(self, access: Access) -> bool:
        return access.may(Action.MANAGE, self.row)


def link_of(denial: Denial, organization_id: int | None, project_id: int | None) -> Link | None:
    """Return the link for a refusal of a caller with these ids; None: the rule that refused it is
    gone. The form of a new rule takes its values from the query of the address."""
    table: type[Any] = MediaFolder if denial.folder else MediaRule
    if denial.reason is not DenialReason.NO_RULE:
        return _link_to(table.objects.filter(pk=denial.rule_id or 0).first())
    ids: dict[str, Any] = {
        "organization_id": None if denial.level == "platform" else organization_id,
        "project_id": project_id if denial.level == "project" else None,
    }
    what = {"folder": denial.folder} if denial.folder else {"host": denial.host}
    stored = table.objects.filter(**ids, **what).first()
    query = {"of": _scope_value(**ids), **what, **_unusual(denial)}
    new = reverse("console:media-folder-new" if denial.folder else "console:media-rule-new")
    return _link_to(stored) or Link(table(**ids), f"{new}?{urlencode(query)}")


def _link_to(row: MediaRule | MediaFolder | None) -> Link | None:
    if row is None:
        return None
    kind = "folder" if isinstance(row, MediaFolder) else "rule"
    return Link(row, reverse(f"console:media-{kind}", args=[row.pk]))


def _unusual(denial: Denial) -> dict[str, str]:
    """Return the scheme and the port of a URL that a new rule would not allow by itself."""
    values = {}
    if denial.scheme not in ("", default_schemes()[0]):
        values["schemes"] = denial.scheme
    if denial.port not in (0, DEFAULT_PORTS.get(denial.scheme)):
        values["ports"] = str(denial.port)
    return values


def _scope_value(organization_id: int | None, project_id: int | None) -> str:
    """Return the choice of a scope, such as `project:7`."""
    if project_id:
        return f"project:{project_id}"
    return f"organization:{organization_id}" if organization_id else PLATFORM


NAMED_BY_LINKS: Final = ("of", "host", "schemes", "ports", "folder")
"""A link of another user may open the same form: it fills in no networks and no limits."""
