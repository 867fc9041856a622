"""Rows of the platform, of an organisation or of one project, which other apps have tables of.

Access, changes and the audit log treat all of these tables alike, and know none of them.
"""

from typing import Final

from django.core.exceptions import ValidationError
from django.db import models

from vinery_accounts.models.people import Organization, Project


class ScopedRow(models.Model):
    """A row that holds for the platform, for an organisation or for one of its projects."""

    organization = models.ForeignKey(
        Organization,
        on_delete=models.CASCADE,
        related_name="+",
        null=True,
        blank=True,
        verbose_name="organisation",
        help_text="Empty: for the whole platform.",
    )
    project = models.ForeignKey(
        Project,
        on_delete=models.CASCADE,
        related_name="+",
        null=True,
        blank=True,
        help_text="Empty: for the whole organisation.",
    )

    class Meta:
        abstract = True

    @property
    def scope(self) -> str:
        """`platform`, `organization` or `project`."""
        if self.project_id is not None:
            return "project"
        return "platform" if self.organization_id is None else "organization"

    @property
    def whose(self) -> str:
        return str(self.project or self.organization or "the platform")

    def clean(self) -> None:
        if self.project_id is not None and self.organization_id is None:
            raise ValidationError({"organization": "Name the organisation of the project, too."})


def unique_in_scope(name: str, *columns: str, message: str) -> list[models.BaseConstraint]:
    """Return the constraints for one row with these columns in each scope: NULLs of a table are
    all different, so each scope has a constraint of its own."""
    return [
        models.UniqueConstraint(
            fields=[*scope, *columns],
            condition=condition,
            name=f"{name}_{kind}",
            violation_error_message=message,
        )
        for kind, scope, condition in _SCOPES
    ]


_SCOPES: Final = (
    ("platform", (), models.Q(organization=None)),
    ("organization", ("organization",), models.Q(project=None, organization__isnull=False)),
    ("project", ("project",), models.Q(project__isnull=False)),
)
