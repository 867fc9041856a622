"""The console's page of media rules: what is allowed, what was refused, and what would allow it."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, Final

from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db.models import F
from django.http import Http404, HttpResponse, QueryDict
from django.urls import path, reverse

from vinery_accounts.console.page import FormPage
from vinery_accounts.console.rows import ConfirmPage, Question, ResourcePage, RowPage, page_of
from vinery_accounts.models import User
from vinery_accounts.resources.base import Conflict, Resource, require
from vinery_accounts.services.access import Action
from vinery_serving.allowlist.denials import unstored
from vinery_serving.allowlist.forms import FORMS, ScopedForm, TestForm, ids_of, scope_value
from vinery_serving.allowlist.models import MediaDenial, MediaFolder, MediaRule
from vinery_serving.allowlist.policies import MediaPolicies
from vinery_serving.allowlist.proposals import Proposal, is_allowed_now, propose, reason_text
from vinery_serving.allowlist.resource import (
    MEDIA_DENIALS,
    MEDIA_FOLDERS,
    MEDIA_LIMITS,
    MEDIA_RULES,
)
from vinery_serving.allowlist.tester import test
from vinery_serving.media.denials import DenialReason
from vinery_serving.media.hosts import overlaps

_MAX_ROWS: Final = 200
_MAX_DENIALS: Final = 50
_BY_SCOPE: Final = (
    F("organization__name").asc(nulls_first=True),
    F("project__name").asc(nulls_first=True),
)
_RESOURCES: Final[dict[str, Resource[Any]]] = {
    "rules": MEDIA_RULES,
    "folders": MEDIA_FOLDERS,
    "limits": MEDIA_LIMITS,
}
_SIGNED: Final = (
    *("organization_id", "organization_name", "project_id", "project_name", "level", "reason"),
    *("scheme", "host", "port", "folder", "rule_id", "detail"),
)
_MAX_AGE_S: Final = 86_400
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
        is_allowed = is_allowed_now(row, policy)
        proposal = None if is_allowed else propose(row)
        return {
            "row": row,
            "reason": reason_text(row, with_address=self.access.is_superuser),
            "is_allowed": is_allowed,
            "proposal": proposal,
            "may_allow": proposal is not None and proposal.may_be_stored_by(self.access),
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

    @property
    def own_resource(self) -> Resource[Any]:
        return _RESOURCES[self.kind]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"kind": self.kind}


class NewMedia(MediaFormPage):
    """`/console/media/rules/new/`, `folders/new/` and `limits/new/`."""

    def form_of(self, data: QueryDict | None) -> ScopedForm:
        if not self.access.owns_scope:
            raise PermissionDenied
        return FORMS[self.kind](self.access, data)

    def save(self, form: ScopedForm) -> HttpResponse:
        self.own_resource.create(self.access, form.columns)
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


class AllowDenied(RowPage, MediaFormPage):
    """`/console/media/denials/<id>/allow/`: the form of the rule that would allow it."""

    resource = MEDIA_DENIALS

    @property
    def proposal(self) -> Proposal:
        """Raises `Http404` for what no rule can allow, and `PermissionDenied`."""
        proposal = propose(self.row)
        if proposal is None:
            raise Http404
        require(self.access, Action.MANAGE, proposal.row)
        return proposal

    def form_of(self, data: QueryDict | None) -> ScopedForm:
        proposal = self.proposal
        self.kind = "folders" if isinstance(proposal.row, MediaFolder) else "rules"
        row, initial = proposal.row, dict(proposal.values)
        if not proposal.is_new:
            return FORMS[self.kind](self.access, data, row=row, initial=initial)
        initial["of"] = scope_value(row.organization_id, row.project_id)
        return FORMS[self.kind](self.access, data, initial=initial)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        reason = reason_text(self.row, with_address=self.access.is_superuser)
        context = super().get_context_data(**kwargs)
        return context | {"kind": self.kind, "denial": self.row, "reason": reason}

    def save(self, form: ScopedForm) -> HttpResponse:
        proposal = self.proposal
        if proposal.is_new:
            self.own_resource.create(self.access, form.columns)
        else:
            self.own_resource.change(self.access, proposal.row, form.columns)
        return self.to_list(_SAVED)


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
            context["verdict"] = verdict.seen_by(self.access)
            if verdict.denial is not None:
                context |= self._proposed(unstored(verdict.denial, *ids))
        except (Conflict, ValueError) as error:
            form.add_error(None, str(error))
        return self.render_to_response(self.get_context_data(form=form, **context))

    def _proposed(self, row: MediaDenial) -> dict[str, Any]:
        """Return the address of the form with the rule that would allow it, if the user may."""
        proposal = propose(row)
        if proposal is None or not proposal.may_be_stored_by(self.access):
            return {"denial": row, "proposal": proposal}
        values = {name: getattr(row, name) for name in _SIGNED}
        token = signing.dumps(values, salt=_salt(self.user))
        text = f"Allow {row.what}"
        if row.reason == DenialReason.ADDRESS:  # there is a rule
            text = f"Add {row.detail} to the networks of the rule"
        address = f"{reverse('console:media-test-allow')}?refused={token}"
        return {"allow": address, "allow_text": text}


class AllowTested(AllowDenied):
    """`/console/media/test/allow/`: the same for what the tester refused. It is not stored:
    `refused`, which the server signs for the user, has its columns."""

    @cached_property
    def row(self) -> MediaDenial:
        """Raises `Http404` for columns that are too old, or of another user."""
        token, salt = self.request.GET.get("refused", ""), _salt(self.user)
        try:
            return MediaDenial(**signing.loads(token, salt=salt, max_age=_MAX_AGE_S))
        except signing.BadSignature:
            raise Http404 from None


def _salt(user: User) -> str:
    return f"tested media of {user.pk}"


_ONE: Final = {"rules": "rule", "folders": "folder", "limits": "limit"}

urlpatterns = [
    path("media/", Media.as_view(), name="media"),
    path("media/test/", TestMedia.as_view(), name="media-test"),
    path("media/test/allow/", AllowTested.as_view(), name="media-test-allow"),
    path("media/denials/<int:row_id>/allow/", AllowDenied.as_view(), name="media-allow"),
    *(
        pattern
        for kind, resource in _RESOURCES.items()
        for pattern in (
            path(
                f"media/{kind}/new/",
                NewMedia.as_view(kind=kind, resource=resource),
                name=f"media-{_ONE[kind]}-new",
            ),
            path(
                f"media/{kind}/<int:row_id>/",
                ChangeMedia.as_view(kind=kind, resource=resource),
                name=f"media-{_ONE[kind]}",
            ),
            path(
                f"media/{kind}/<int:row_id>/remove/",
                RemoveMedia.as_view(resource=resource),
                name=f"media-{_ONE[kind]}-remove",
            ),
        )
    ),
]
