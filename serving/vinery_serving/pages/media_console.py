"""The console's pages of media rules: allowed and refused media, and the tester; with the forms of
rules, and links to the forms. All are in Django's admin, too."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import F
from django.http import HttpResponse, QueryDict
from django.urls import reverse

from vinery_accounts.access.access import Access, Action
from vinery_accounts.admin.base import register
from vinery_accounts.console.organization import ScopeField
from vinery_accounts.console.page import FormPage, Page, at
from vinery_accounts.console.rows import ChangeRow, ConfirmPage, NewRow, RowForm, page_of
from vinery_accounts.models import Organization, Project, Role
from vinery_accounts.outbound.urls import DEFAULT_PORTS
from vinery_accounts.resources.base import Conflict, require
from vinery_accounts.resources.forms import ResourceForm, SerializerForm
from vinery_serving.media.rules import Denial, DenialReason
from vinery_serving.media.tables import resource
from vinery_serving.media.tables.models import MediaDenial, MediaFolder, MediaRule, default_schemes
from vinery_serving.media.tables.policies import MediaPolicies
from vinery_serving.media.tables.resource import MEDIA_FOLDERS, MEDIA_LIMITS, MEDIA_RULES
from vinery_serving.media.tables.tester import test
from vinery_serving.media.tables.values import overlaps

PLATFORM: Final = "platform"
_NARROWER: Final = "Rules of an organisation or a project only narrow those of the platform."


def scope_field(access: Access, **details: Any) -> ScopeField:
    """Return a choice among the platform, for administrators, and what the user owns."""
    all_ = [(PLATFORM, "The whole platform")] if access.is_superuser else []
    return ScopeField(access, Role.OWNER, all_, **details)


class ScopedForm(ResourceForm):
    """A form of a row that applies to a scope, which a stored row keeps."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for field in self.fields.values():
            # An empty number does not mean the default: a number is required.
            is_number = isinstance(field, forms.IntegerField | forms.FloatField)
            field.required = field.required or is_number
        if self.row is None:
            about = {"label": "Applies to", "help_text": _NARROWER}
            self.fields["of"] = scope_field(self.access, **about)
            self.order_fields(["of", *self.fields])

    @property
    def columns(self) -> dict[str, Any]:
        return {**super().columns, **_scope_columns(self.cleaned_data.get("of"))}


def ids_of(of: Any) -> tuple[int | None, int | None]:
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
    rare = (
        *("ports", "content_types", "max_bytes", "max_pixels", "max_redirects", "timeout_s"),
        "networks",
    )


class FolderForm(ScopedForm):
    rare = ("max_bytes", "max_pixels")


class TestForm(SerializerForm):
    what = forms.CharField(
        label="URL or path", max_length=8192, help_text="As a client would send it."
    )

    def __init__(self, access: Access, data: Any = None) -> None:
        super().__init__({}, (), data)
        self.fields["of"] = scope_field(access, label="For a request of")


@dataclass(frozen=True, slots=True)
class Link:
    """A link to the form of the rule that would allow a refused target."""

    row: MediaRule | MediaFolder  # new, or the rule that refused
    address: str

    @property
    def text(self) -> str:
        return "Allow" if self.row.pk is None else "Change the rule"


def link_of(denial: Denial, organization_id: int | None, project_id: int | None) -> Link | None:
    """Return the link for a refusal of a caller with these ids; None: the rule that refused it is
    gone. The form of a new rule takes its values from the query of the address."""
    kind = "folder" if denial.folder else "rule"
    table: type[Any] = MediaFolder if denial.folder else MediaRule
    if denial.reason is not DenialReason.NO_RULE:
        row = table.objects.filter(pk=denial.rule_id or 0).first()
    else:
        organization = None if denial.level == "platform" else organization_id
        project = project_id if denial.level == "project" else None
        what = {"folder": denial.folder} if denial.folder else {"host": denial.host}
        ids: dict[str, Any] = {"organization_id": organization, "project_id": project}
        row = table.objects.filter(**ids, **what).first()
        if row is None:
            of = f"organization:{organization}" if organization else PLATFORM
            query = {"of": f"project:{project}" if project else of, **what, **_unusual(denial)}
            new = reverse(f"console:media-{kind}-new")
            return Link(table(**ids), f"{new}?{urlencode(query)}")
    return row and Link(row, reverse(f"console:media-{kind}", args=[row.pk]))


def _unusual(denial: Denial) -> dict[str, str]:
    """Return the scheme and the port of a URL that a new rule would not allow by itself."""
    values = {}
    if denial.scheme not in ("", default_schemes()[0]):
        values["schemes"] = denial.scheme
    if denial.port not in (0, DEFAULT_PORTS.get(denial.scheme)):
        values["ports"] = str(denial.port)
    return values


# A link of another user may open the same form: it fills in no networks and no limits.
_NAMED_BY_LINKS: Final = ("of", "host", "schemes", "ports", "folder")
_MAX_ROWS: Final = 200
_BY_SCOPE: Final = (
    F("organization__name").asc(nulls_first=True),
    F("project__name").asc(nulls_first=True),
)


@at("media/", "media")
class Media(Page):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        page = page_of(MEDIA_RULES.rows(self.access).order_by(*_BY_SCOPE, "host"), self.request)
        folders = MEDIA_FOLDERS.rows(self.access).order_by(*_BY_SCOPE, "folder")[:_MAX_ROWS]
        limits = MEDIA_LIMITS.rows(self.access).order_by(*_BY_SCOPE)[:_MAX_ROWS]
        denials, policies = resource.MEDIA_DENIALS.rows(self.access)[:50], MediaPolicies()
        policies.refresh()
        active = MediaRule.objects.filter(organization=None, is_active=True)
        hosts = list(active.values_list("host", flat=True))
        return super().get_context_data(**kwargs) | {
            **page,
            "rows": [(row, self._may(row), _is_useless(row, hosts)) for row in page["rows"]],
            "folders": [(row, self._may(row)) for row in folders],
            "limits": [(row, self._may(row)) for row in limits],
            "denials": [self._denial(row, policies) for row in denials],
            "has_no_rule": not (hosts or MediaFolder.objects.filter(organization=None).exists()),
            "is_admin": self.access.is_superuser,
        }

    def _may(self, row: Any) -> bool:
        return self.access.may(Action.MANAGE, row)

    def _denial(self, row: MediaDenial, policies: MediaPolicies) -> dict[str, Any]:
        policy = policies.policy_of(row.organization_id, row.project_id)
        has_no_rule = row.reason == DenialReason.NO_RULE
        link = link_of(row.denial, row.organization_id, row.project_id)
        return {
            "row": row,
            "reason": row.why(with_address=self.access.is_superuser),
            "is_allowed": has_no_rule and policy.allows(row.denial.target),
            "link": link,
            "may_allow": link is not None and self._may(link.row),
        }


def _is_useless(row: MediaRule, platform_hosts: Iterable[str]) -> bool:
    """Return whether the platform allows none of the hosts that the row narrows to."""
    is_narrower = row.organization_id is not None and row.is_active
    return is_narrower and not any(overlaps(row.host, each) for each in platform_hosts)


class _MediaForm(RowForm):
    """A form of a rule, a folder or a number, as `kind` names."""

    template_name = "console/media_form.html"
    resource = MEDIA_RULES
    kind = "rule"
    done = "Saved. It is in force within a second."
    field_of_column = {"organization": "of", "project": "of"}

    def row_address(self, row: Any) -> str:
        return reverse("console:media")


class NewMedia(_MediaForm, NewRow):
    def form_of(self, data: QueryDict | None) -> ResourceForm:
        if not self.access.owns_scope:
            raise PermissionDenied
        initial = {name: text for name, text in self.request.GET.items() if name in _NAMED_BY_LINKS}
        return self.make_form(data, initial=initial)


class ChangeMedia(_MediaForm, ChangeRow):
    def form_of(self, data: QueryDict | None) -> ResourceForm:
        require(self.access, Action.MANAGE, self.row)
        return super().form_of(data)


class RemoveMedia(ConfirmPage):
    resource = MEDIA_RULES

    def text(self) -> str:
        return (
            f"It applies to {self.row.whose}. What only it allows is refused within a second. An "
            "organisation or a project whose last rule is removed has the rules of the wider scope "
            "again."
        )


for _kind, _resource, _form, _names in (
    (
        *("rule", MEDIA_RULES, RuleForm),
        "host schemes ports content_types max_bytes max_pixels max_redirects timeout_s networks "
        "note is_active",
    ),
    ("folder", MEDIA_FOLDERS, FolderForm, "folder max_bytes max_pixels note is_active"),
    ("limit", MEDIA_LIMITS, ScopedForm, "max_media"),
):
    _of_kind: dict[str, Any] = {"resource": _resource, "form_class": _form, "kind": _kind}
    _of_kind["names"] = tuple(_names.split())
    _row = f"media/{_kind}s/<int:row_id>/"
    at(f"media/{_kind}s/new/", f"media-{_kind}-new", **_of_kind)(NewMedia)
    at(_row, f"media-{_kind}", **_of_kind)(ChangeMedia)
    at(_row, f"media-{_kind}", "remove", resource=_resource)(RemoveMedia)


@at("media/test/", "media-test")
class TestMedia(FormPage):
    template_name = "console/media_test.html"

    def form_of(self, data: QueryDict | None) -> TestForm:
        return TestForm(self.access, data)

    def save(self, form: TestForm) -> HttpResponse:
        """Show the steps, or an error if too many tests run."""
        what, ids = form.cleaned_data["what"], ids_of(form.cleaned_data["of"])
        context: dict[str, Any] = {"what": what}
        try:
            verdict = test(what, *ids)
        except Conflict as error:
            form.add_error(None, str(error))
        else:
            context["verdict"] = verdict.seen_by(self.access)
            link = verdict.denial and link_of(verdict.denial, *ids)
            context["link"] = link
            context["may_allow"] = link and self.access.may(Action.MANAGE, link.row)
        return self.render_to_response(self.get_context_data(form=form, **context))


for _each in resource.ALL.values():
    register(_each)
