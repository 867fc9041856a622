"""The console's pages of media rules: what is allowed, what was refused, and the tester."""

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from django.core.exceptions import PermissionDenied
from django.db.models import F
from django.http import HttpResponse, QueryDict
from django.urls import URLPattern, path

from vinery_accounts.access.access import Action
from vinery_accounts.console.page import FormPage
from vinery_accounts.console.rows import ConfirmPage, Question, ResourcePage, RowPage, page_of
from vinery_accounts.resources.base import Conflict, Resource, require
from vinery_serving.media.rules import DenialReason
from vinery_serving.media.tables.models import MediaDenial, MediaFolder, MediaRule
from vinery_serving.media.tables.policies import MediaPolicies
from vinery_serving.media.tables.resource import (
    MEDIA_DENIALS,
    MEDIA_FOLDERS,
    MEDIA_LIMITS,
    MEDIA_RULES,
)
from vinery_serving.media.tables.tester import test
from vinery_serving.media.tables.values import overlaps
from vinery_serving.pages.media_forms import (
    FORMS,
    NAMED_BY_LINKS,
    ScopedForm,
    TestForm,
    ids_of,
    link_of,
)

_MAX_ROWS: Final = 200
_MAX_DENIALS: Final = 50
_BY_SCOPE: Final = (
    F("organization__name").asc(nulls_first=True),
    F("project__name").asc(nulls_first=True),
)
_SAVED: Final = "Saved. It is in force within a second."


class Media(ResourcePage):
    """`/console/media/`."""

    name = "media"
    template_name = "console/media.html"
    resource = MEDIA_RULES

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        page = page_of(MEDIA_RULES.rows(self.access).order_by(*_BY_SCOPE, "host"), self.request)
        folders = MEDIA_FOLDERS.rows(self.access).order_by(*_BY_SCOPE, "folder")[:_MAX_ROWS]
        limits = MEDIA_LIMITS.rows(self.access).order_by(*_BY_SCOPE)[:_MAX_ROWS]
        hosts = _platform_hosts()
        return super().get_context_data(**kwargs) | {
            **page,
            "rows": [(row, self._may(row), _is_useless(row, hosts)) for row in page["rows"]],
            "folders": [(row, self._may(row)) for row in folders],
            "limits": [(row, self._may(row)) for row in limits],
            "denials": self._denials(),
            "has_no_rule": not (hosts or MediaFolder.objects.filter(organization=None).exists()),
            "is_admin": self.access.is_superuser,
        }

    def _may(self, row: Any) -> bool:
        return self.access.may(Action.MANAGE, row)

    def _denials(self) -> list[dict[str, Any]]:
        policies = MediaPolicies()
        policies.refresh()
        rows = MEDIA_DENIALS.rows(self.access)[:_MAX_DENIALS]
        return [self._denial(row, policies) for row in rows]

    def _denial(self, row: MediaDenial, policies: MediaPolicies) -> dict[str, Any]:
        policy = policies.policy_of(row.organization_id, row.project_id)
        has_no_rule = row.reason == DenialReason.NO_RULE
        link = link_of(row.denial, row.organization_id, row.project_id)
        return {
            "row": row,
            "reason": row.why(with_address=self.access.is_superuser),
            "is_allowed": has_no_rule and policy.allows(row.denial.target),
            "link": link,
            "may_allow": link is not None and link.may_be_used_by(self.access),
        }


def _platform_hosts() -> list[str]:
    active = MediaRule.objects.filter(organization=None, is_active=True)
    return list(active.values_list("host", flat=True))


def _is_useless(row: MediaRule, platform_hosts: Iterable[str]) -> bool:
    """Return whether the platform allows none of the hosts that the row narrows to."""
    is_narrower = row.organization_id is not None and row.is_active
    return is_narrower and not any(overlaps(row.host, each) for each in platform_hosts)


class MediaFormPage(ResourcePage, FormPage):
    """A form of a rule, a folder or a number; `kind` is which of them."""

    name = "media"
    template_name = "console/media_form.html"
    resource: ClassVar[Resource[Any]] = MEDIA_RULES
    kind = "rules"
    field_of_column = {"organization": "of", "project": "of"}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"kind": self.kind}


class NewMedia(MediaFormPage):
    """`/console/media/rules/new/`, `folders/new/` and `limits/new/`."""

    def form_of(self, data: QueryDict | None) -> ScopedForm:
        if not self.access.owns_scope:
            raise PermissionDenied
        initial = {name: text for name, text in self.request.GET.items() if name in NAMED_BY_LINKS}
        return FORMS[self.kind](self.access, data, initial=initial)

    def save(self, form: ScopedForm) -> HttpResponse:
        self.resource.create(self.access, form.columns)
        return self.to_list(_SAVED)


class ChangeMedia(RowPage, MediaFormPage):
    """`/console/media/rules/<id>/` and so on."""

    def form_of(self, data: QueryDict | None) -> ScopedForm:
        require(self.access, Action.MANAGE, self.row)
        return FORMS[self.kind](self.access, data, row=self.row)

    def save(self, form: ScopedForm) -> HttpResponse:
        self.resource.change(self.access, self.row, form.columns)
        return self.to_list(_SAVED)


class RemoveMedia(ConfirmPage):
    """`/console/media/rules/<id>/remove/` and so on."""

    name = "media"
    resource = MEDIA_RULES
    does = "remove"
    questions = {
        "remove": Question(
            "Remove {row}?",
            "It applies to {row.whose}. What only it allows is refused within a second. An "
            "organisation or a project whose last rule is removed has the rules of the wider scope "
            "again.",
            "Remove",
            "{row} is removed.",
        )
    }


class TestMedia(ResourcePage, FormPage):
    """`/console/media/test/`."""

    name = "media"
    template_name = "console/media_test.html"
    resource = MEDIA_RULES

    def form_of(self, data: QueryDict | None) -> TestForm:
        return TestForm(self.access, data)

    def save(self, form: TestForm) -> HttpResponse:
        """Show the steps. Raises nothing while too many tests run, or if the model was unloaded:
        the form shows it."""
        what, ids = form.cleaned_data["what"], ids_of(form.cleaned_data["of"])
        context: dict[str, Any] = {"what": what}
        try:
            verdict = test(what, *ids, form.cleaned_data.get("model"))
        except (Conflict, ValueError) as error:
            form.add_error(None, str(error))
        else:
            context["verdict"] = verdict.seen_by(self.access)
            link = verdict.denial and link_of(verdict.denial, *ids)
            context["link"] = link
            context["may_allow"] = link and link.may_be_used_by(self.access)
        return self.render_to_response(self.get_context_data(form=form, **context))


def _pages_of(kind: str) -> list[URLPattern]:
    """Return the pages of `rules`, `folders` or `limits`."""
    address, name = f"media/{kind}/", f"media-{kind.removesuffix('s')}"
    options: dict[str, Any] = {"resource": FORMS[kind].scoped_resource}
    new = NewMedia.as_view(kind=kind, **options)
    change = ChangeMedia.as_view(kind=kind, **options)
    return [
        path(f"{address}new/", new, name=f"{name}-new"),
        path(f"{address}<int:row_id>/", change, name=name),
        path(
            f"{address}<int:row_id>/remove/", RemoveMedia.as_view(**options), name=f"{name}-remove"
        ),
    ]


urlpatterns = [
    path("media/", Media.as_view(), name="media"),
    path("media/test/", TestMedia.as_view(), name="media-test"),
    *(page for kind in FORMS for page in _pages_of(kind)),
]
