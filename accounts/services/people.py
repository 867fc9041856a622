"""Where people belong, and how a new installation begins."""

from __future__ import annotations

from accounts.models import Membership, Organization, Project, Role, User
from accounts.services import changes

_FIRST = "default"


def first_project() -> Project:
    """That of a new installation: where everything goes that names no project. Made, with
    its organisation, when there is none."""
    oldest = Project.objects.select_related("organization").order_by("id").first()
    if oldest is not None:
        return oldest
    organization = Organization.objects.filter(name=_FIRST).first()
    if organization is None:
        organization = changes.add(Organization(name=_FIRST))
    return changes.add(Project(organization=organization, name=_FIRST))


def home_project(user: User) -> Project:
    """Where keys of this user go when no project is named: the first of theirs."""
    for membership in user.memberships.select_related("project__organization").order_by("id"):
        if membership.project is not None:
            return membership.project
        projects = Project.objects.filter(organization=membership.organization_id)
        project = projects.select_related("organization").order_by("id").first()
        if project is not None:
            return project
    project = first_project()
    if not user.is_service:
        role = Role.OWNER if user.is_superuser else Role.MEMBER
        join(user, project.organization, role)
    return project


def join(user: User, organization: Organization, role: Role) -> Membership:
    """Let the user have this role, in place of another, in the whole organisation."""
    return changes.set_role(user, organization, role)
