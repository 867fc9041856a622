"""Where a role holds, as a choice of a form: an organisation, or one of its projects."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from django import forms

from vinery_accounts.models import Organization, Project
from vinery_accounts.resources.fields import id_of
from vinery_accounts.services.access import Access

_MAX_CHOICES: Final = 200
_KINDS: Final[dict[str, type[Organization | Project]]] = {
    "organization": Organization,
    "project": Project,
}


class ScopeField(forms.Field):
    """A choice among the organisations and projects that the user leads."""

    widget = forms.Select

    def __init__(self, access: Access) -> None:
        super().__init__(
            label="Where", help_text="A role in an organisation holds in all of its projects."
        )
        self._access = access
        assert isinstance(self.widget, forms.Select)
        self.widget.choices = scope_choices(access)

    def to_python(self, value: Any) -> Organization | Project | None:
        """Return the row. Raises ValidationError for one that the user may not see."""
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
    """Return the choices, one group for each organisation: by default what the user leads."""
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
