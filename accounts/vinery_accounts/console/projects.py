"""Projects: the list, new ones, and a page for each with its settings."""

from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect

from vinery_accounts.console.page import FormPage
from vinery_accounts.console.rows import ConfirmPage, Question, ResourcePage, RowPage, page_of
from vinery_accounts.models import Organization, Project
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.organizations import PROJECTS
from vinery_accounts.services.access import Access, Action

_CAPTURES: Final = ("capture_hours", "capture_redactions")


class Projects(ResourcePage):
    """`/console/projects/`."""

    name = "projects"
    template_name = "console/projects.html"
    resource = PROJECTS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        working = Q(api_keys__revoked_at=None, api_keys__id__isnull=False)
        rows = PROJECTS.rows(self.access).annotate(
            num_keys=Count("api_keys", filter=working, distinct=True)
        )
        page = page_of(rows.order_by("organization__name", "name"), self.request)
        shown = [
            {"project": row, "may_open": self.access.leads(row.organization_id, row.pk)}
            for row in page["rows"]
        ]
        context = {**page, "rows": shown, "may_make": led_organizations(self.access).exists()}
        return super().get_context_data(**kwargs) | context


def led_organizations(access: Access) -> Any:
    """Return the active organisations in which the user may create projects."""
    rows = access.rows(Organization).filter(is_active=True).order_by("name")
    led = [row.pk for row in rows if access.leads(row.pk)]
    return rows.filter(pk__in=led)


class NewProject(FormPage):
    """`/console/projects/new/`."""

    name = "projects"
    template_name = "console/project_form.html"

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        """Return the form. Raises `PermissionDenied` for a user who may create no project."""
        organizations = led_organizations(self.access)
        if not organizations.exists():
            raise PermissionDenied
        names = ("organization", "name")
        return ResourceForm(PROJECTS, names, data, {"organization": organizations})

    def save(self, form: ResourceForm) -> HttpResponse:
        project = PROJECTS.create(self.access, form.columns)
        messages.success(self.request, f"The project {project.name} is created.")
        return redirect("console:project", project.pk)


class ProjectPage(RowPage, FormPage):
    """`/console/projects/<id>/`."""

    name = "projects"
    template_name = "console/project.html"
    resource = PROJECTS

    def form_of(self, data: QueryDict | None) -> ResourceForm:
        may_capture = self.access.may(Action.CAPTURE, self.row)
        names = ("name", "hashes_end_users", *(_CAPTURES if may_capture else ()))
        initial = {name: getattr(self.row, name) for name in names}
        return ResourceForm(PROJECTS, names, data, initial=initial)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        project: Project = self.row
        return super().get_context_data(**kwargs) | {
            "may_change": self.access.may(Action.MANAGE, project),
            "num_members": project.memberships.count(),
            "num_keys": project.api_keys.filter(revoked_at=None).count(),
            "may_limit": self.access.rows_to_limit(Project).filter(pk=project.pk).exists(),
        }

    def save(self, form: ResourceForm) -> HttpResponse:
        PROJECTS.change(self.access, self.row, form.changed_columns)
        messages.success(self.request, "The project is changed.")
        return redirect("console:project", self.row.pk)


class ActOnProject(ConfirmPage):
    """`/console/projects/<id>/remove/`, `deactivate/` and `activate/`."""

    name = "projects"
    resource = PROJECTS
    questions = {
        "remove": Question(
            "Remove {row}?",
            "Its roles, limits and logged prompts are deleted. Usage records stay. A project with "
            "keys cannot be removed, even when all of them are revoked: deactivate it instead.",
            "Remove",
            "{row} is removed.",
        ),
        "deactivate": Question(
            "Deactivate {row}?",
            "Its keys are refused within a second, and running requests end. This can be undone.",
            "Deactivate",
            "{row} is deactivated.",
        ),
        "activate": Question(
            "Activate {row}?",
            "Its keys work again.",
            "Activate",
            "{row} is active.",
            is_danger=False,
        ),
    }
