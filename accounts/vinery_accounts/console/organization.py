"""Pages of an organisation: its projects, its webhooks, and where a role holds."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.http import HttpResponse, QueryDict
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils.safestring import mark_safe

from vinery_accounts.access.access import Access
from vinery_accounts.console.page import at
from vinery_accounts.console.rows import (
    GRACES,
    ButtonPage,
    ChangeRow,
    ConfirmPage,
    ListPage,
    NewRow,
    Question,
    show_secret,
)
from vinery_accounts.models import Delivery, DeliveryState, Organization, Project, Webhook
from vinery_accounts.resources.alerts import WEBHOOKS
from vinery_accounts.resources.base import Issued
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.organizations import PROJECTS

# -- Where a role holds

_MAX_CHOICES: Final = 200
_KINDS: Final[dict[str, type[Organization | Project]]] = {
    "organization": Organization,
    "project": Project,
}


class ScopeField(forms.Field):
    """A choice among the organisations and projects that the user leads."""

    widget = forms.Select

    def __init__(
        self,
        access: Access,
        label: str = "Where",
        help_text: str = "A role in an organisation holds in all of its projects.",
        choices: Sequence[tuple[str, Any]] | None = None,
    ) -> None:
        super().__init__(label=label, help_text=help_text)
        self._access = access
        assert isinstance(self.widget, forms.Select)
        self.widget.choices = scope_choices(access) if choices is None else choices

    def to_python(self, value: Any) -> Organization | Project | None:
        kind, _, row_id = (value or "").partition(":")
        pk = id_of(row_id)
        if not value or kind not in _KINDS or pk is None:
            return None
        row = self._access.rows(_KINDS[kind]).filter(pk=pk).first()
        if row is None:
            raise forms.ValidationError("Choose an entry of the list.")
        return row


def scope_choices(
    access: Access, may_choose: Callable[[int, int | None], bool] | None = None
) -> list[tuple[str, Any]]:
    """Return the choices, a group for each organisation: by default all that the user leads."""
    may = may_choose or access.leads
    projects: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for project in access.rows(Project).order_by("name")[:_MAX_CHOICES]:
        if may(project.organization_id, project.pk):
            choice = f"project:{project.pk}", f"Project {project.name}"
            projects[project.organization_id].append(choice)
    return [
        (organization.name, [*_whole(organization, may), *projects[organization.pk]])
        for organization in access.rows(Organization).order_by("name")[:_MAX_CHOICES]
    ]


def _whole(
    organization: Organization, may: Callable[[int, int | None], bool]
) -> list[tuple[str, str]]:
    if not may(organization.pk, None):
        return []
    return [(f"organization:{organization.pk}", f"All of {organization.name}")]


# -- Projects


def led_organizations(access: Access) -> Any:
    rows = access.rows(Organization).filter(is_active=True).order_by("name")
    led = [row.pk for row in rows if access.leads(row.pk)]
    return rows.filter(pk__in=led)


@at("projects/", "projects")
class Projects(ListPage):
    template_name = "console/projects.html"
    resource = PROJECTS
    ordering = ("organization__name", "name")

    def queryset(self) -> QuerySet[Project]:
        working = Q(api_keys__revoked_at=None, api_keys__id__isnull=False)
        num_keys = Count("api_keys", filter=working, distinct=True)
        rows: QuerySet[Project] = super().queryset().annotate(num_keys=num_keys)
        return rows

    def shown(self, row: Project) -> dict[str, Any]:
        return {"project": row, "may_open": self.access.leads(row.organization_id, row.pk)}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        may_make = led_organizations(self.access).exists()
        return super().get_context_data(**kwargs) | {"may_make": may_make}


@at("projects/new/", "project-new")
class NewProject(NewRow):
    resource = PROJECTS
    heading = "Create a project"
    names = ("organization", "name")
    done = "The project {row.name} is created."

    def offered(self) -> dict[str, QuerySet[Any]]:
        """Raises `PermissionDenied` for a user who may create no project."""
        organizations = led_organizations(self.access)
        if not organizations.exists():
            raise PermissionDenied
        return {"organization": organizations}


@at("projects/<int:row_id>/", "project")
class ProjectPage(ChangeRow):
    template_name = "console/project.html"
    resource = PROJECTS
    names = ("name", "hashes_end_users", "capture_hours", "capture_redactions")
    done = "The project is changed."

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        project: Project = self.row
        return super().get_context_data(**kwargs) | {
            "num_members": project.memberships.count(),
            "num_keys": project.api_keys.filter(revoked_at=None).count(),
            "may_limit": self.access.rows_to_limit(Project).filter(pk=project.pk).exists(),
        }


@at("projects/<int:row_id>/", "project", "remove", "deactivate", "activate")
class ActOnProject(ConfirmPage):
    resource = PROJECTS
    questions = {
        "remove": Question(
            "Remove {row}?",
            "Its roles, limits and logged prompts are deleted. Usage records stay. A project with "
            "keys cannot be removed, even when all of them are revoked: deactivate it instead.",
            "{row} is removed.",
        ),
        "deactivate": Question(
            "Deactivate {row}?",
            "Its keys are refused within a second, and running requests end. This can be undone.",
            "{row} is deactivated.",
        ),
        "activate": Question(
            "Activate {row}?",
            "Its keys work again.",
            "{row} is active.",
            is_danger=False,
        ),
    }


# -- Webhooks

_MAX_DELIVERIES: Final = 20


@at("webhooks/", "webhooks")
class Webhooks(ListPage):
    template_name = "console/webhooks.html"
    resource = WEBHOOKS
    ordering = ("name",)

    def queryset(self) -> QuerySet[Webhook]:
        newest = Delivery.objects.filter(webhook=OuterRef("pk")).order_by("-id")
        state, error = (Subquery(newest.values(name)[:1]) for name in ("state", "error"))
        rows: QuerySet[Webhook] = super().queryset()
        return rows.annotate(last_state=state, last_error=error)


_COPY: Final = (
    "<strong>Copy this secret now.</strong> It is shown once. Your receiver verifies signatures "
    'with it, as <a href="https://www.standardwebhooks.com" rel="noreferrer">Standard Webhooks</a> '
    "specifies."
)


@at("webhooks/new/", "webhook-new")
class NewWebhook(NewRow):
    resource = WEBHOOKS
    heading = "Create a webhook"
    names = ("organization", "name", "url")

    def offered(self) -> dict[str, QuerySet[Any]]:
        return {"organization": led_organizations(self.access)}

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        form = super().form_of(data)
        if not self.access.is_superuser:  # without one, a webhook is the platform's
            form.fields["organization"].required = True
        return form

    def issued(self, new: Issued) -> HttpResponse:
        return show_secret(self, new, self.row_address(new.row), mark_safe(_COPY))


@at("webhooks/<int:row_id>/", "webhook")
class WebhookPage(ChangeRow):
    template_name = "console/webhook.html"
    resource = WEBHOOKS
    names = ("name", "url", "is_active")
    done = "The webhook is changed."

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        webhook: Webhook = self.row
        found = Delivery.objects.filter(webhook=webhook).select_related("alert")
        return super().get_context_data(**kwargs) | {
            "deliveries": found.order_by("-id")[:_MAX_DELIVERIES],
            "has_failed": found.filter(state=DeliveryState.FAILED).exists(),
            "graces": GRACES,
        }


@at("webhooks/<int:row_id>/", "webhook", "test", "retry", "rotate")
class ActOnWebhook(ButtonPage):
    resource = WEBHOOKS

    def back_address(self) -> str:
        return reverse("console:webhook", args=[self.row.pk])

    def issued(self, new: Issued) -> HttpResponse:
        return show_secret(self, new, self.back_address(), mark_safe(_COPY))

    def report(self, result: dict[str, Any], done: str) -> None:
        if "num_messages" in result:
            number = result["num_messages"]
            text = f"{number} message{pluralize(number)} will be sent again within a minute."
            messages.success(self.request, text)
        elif result["is_delivered"]:
            messages.success(self.request, "The test was delivered.")
        else:
            messages.error(self.request, f"The test was not delivered. {result['error']}")


@at("webhooks/<int:row_id>/", "webhook", "remove")
class RemoveWebhook(ConfirmPage):
    resource = WEBHOOKS
    questions = {
        "remove": Question(
            "Remove the webhook {row}?",
            "{row.url} gets no more messages, and the list of its deliveries is deleted.",
            "The webhook {row} is removed.",
        )
    }
