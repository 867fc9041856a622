"""Every change of users, projects, limits and weights: checked, stored and audited in one step.

The API, the console, the admin and the commands all call these functions, so every change is in
the audit log. Keys have a module of their own, `keys/lifecycle`, which calls these.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet, UniqueConstraint
from django.utils import timezone

from vinery_accounts.access import audit
from vinery_accounts.access.access import Access, Action
from vinery_accounts.base.actors import current_actor
from vinery_accounts.base.limit_table import Metric
from vinery_accounts.models import (
    OWNERS,
    ApiKey,
    Capture,
    Currency,
    Invitation,
    Limit,
    Membership,
    Organization,
    Project,
    Role,
    ScopedRow,
    User,
)
from vinery_accounts.models.stored import expire, follow_days

RowT = TypeVar("RowT", bound=Model)


def add(row: RowT, action: str = "create") -> RowT:
    """Store a new row. Raises `ValidationError` for values that are not valid."""
    _prepare(row, vars(row))
    with audit.writing():
        row.full_clean()
        check(row)
        row.save(force_insert=True)
        audit.record(action, row, after=audit.snapshot(row))
    return row


def change(row: RowT, action: str = "update", **values: object) -> RowT:
    """Set fields of a stored row. Raises `ValidationError` for values that are not valid. The audit
    log gets the fields that differ. If none does, nothing is written."""
    return _store(row, action, values, is_checked=True)


def switch(row: RowT, action: str, **values: object) -> RowT:
    """Set fields whose values are valid for any row, without validating them. So a row that no
    longer passes validation can still be paused, revoked or deactivated."""
    return _store(row, action, values, is_checked=False)


def _store(row: RowT, action: str, values: Mapping[str, object], *, is_checked: bool) -> RowT:
    for name, value in values.items():
        setattr(row, name, value)
    if is_checked:
        _prepare(row, values)
    with audit.writing():
        stored = type(row)._default_manager.get(pk=row.pk)
        # The attribute with a field's plain value: the id of a foreign key.
        columns = {name: getattr(row._meta.get_field(name), "attname", name) for name in values}
        changed = [
            name
            for name, column in columns.items()
            if getattr(row, column) != getattr(stored, column)
        ]
        if not changed:
            return row
        if is_checked:
            # Errors of other fields do not block this change.
            others = {field.name for field in row._meta.fields} - set(changed)
            row.full_clean(exclude=others, validate_constraints=False)
            _check_constraints(row, changed)
        check(row, stored)
        stamps = [field.name for field in row._meta.fields if getattr(field, "auto_now", False)]
        row.save(update_fields=[*changed, *stamps])
        if isinstance(row, Project) and "capture_hours" in changed:
            Capture.stored.follow_hours(row.pk, row.capture_hours)
        if isinstance(row, Membership):
            _pause_keys_without_role(row)
        if isinstance(row, User) and "is_superuser" in changed:
            _pause_keys_beyond_role(row, row.api_keys.all())
        before = audit.snapshot(stored)
        named = {columns[name] for name in changed} & before.keys()
        audit.record_change(action, row, {column: before[column] for column in named})
    if isinstance(row, Project) and "response_days" in changed:
        follow_days(row.pk, row.response_days or 0)
    return row


def _prepare(row: Model, names: Iterable[str]) -> None:
    """Let a row do slow work for its checks before the transaction, in which other changes wait."""
    if (prepare := getattr(row, "prepare", None)) is not None:
        prepare(names)


def remove(row: Model) -> None:
    """Delete a row with its keys, roles, webhooks, limits and captures, each deletion audited.
    Stored responses, conversations and chats expire at once, and a periodic task removes them.
    Usage records have no foreign keys, and stay. Raises `ValidationError` for a row that others
    need."""
    with audit.writing():
        check_removable(row)
        owned = owned_rows(row)
        for each in (*owned, row):
            audit.record("delete", each, before=audit.snapshot(each))
        for each in owned:
            if isinstance(each, Limit):
                each.delete()
        row_id = row.pk
        older = ApiKey.objects.filter(replaced_by=row).first() if isinstance(row, ApiKey) else None
        row.delete()
        if isinstance(row, ApiKey) and older is not None:
            # The older key stays bound by the limits of the key that replaced both.
            older.refresh_from_db()
            switch(older, "update", replaced_by=row.replaced_by)
        if isinstance(row, Membership):
            _pause_keys_without_role(row)
        # After the project: a transaction that stores a capture locks the project first.
        if isinstance(row, Project):
            Capture.stored.filter(project_id=row_id).delete()
    # Nobody finds what a project had: the task that removes it sees that the project is gone.
    if isinstance(row, User):
        expire(Q(user_id=row_id))


def owned_rows(row: Model) -> list[Model]:
    """Return the rows that are deleted with a row, limits first."""
    owned = list(_owned_rows(row))
    return [*_find_limits([row, *owned]), *owned]


def _owned_rows(row: Model) -> Iterator[Model]:
    if isinstance(row, User):
        yield from row.api_keys.select_related("project")
    if isinstance(row, User | Organization | Project):
        yield from row.memberships.select_related("user", "project", "organization")
    if isinstance(row, Organization | Project):
        yield from row.invitations.select_related("project", "organization")
    if isinstance(row, Organization):
        yield from row.webhooks.all()
    if isinstance(row, Organization | Project):
        yield from _scoped_rows(row)


def _scoped_rows(row: Organization | Project) -> Iterator[Model]:
    relations: Any = row._meta.get_fields(include_hidden=True)
    for relation in relations:
        table = relation.related_model
        if relation.auto_created and isinstance(table, type) and issubclass(table, ScopedRow):
            yield from table._default_manager.filter(**{relation.field.name: row})


def _find_limits(rows: Iterable[Model]) -> Iterator[Limit]:
    """The limits of these rows. Without foreign keys, the database does not delete them. Limits of
    a model stay: they belong to the name, and the name may be served again."""
    for row in rows:
        for scope, model in OWNERS.items():
            if isinstance(row, model):
                yield from Limit.objects.filter(scope=scope, scope_id=row.pk)


def _pause_keys_without_role(membership: Membership) -> None:
    keys = ApiKey.objects.filter(
        owner=membership.user_id, project__organization=membership.organization_id
    )
    if membership.project_id is not None:
        keys = keys.filter(project=membership.project_id)
    _pause_keys_beyond_role(membership.user, keys)


def _pause_keys_beyond_role(owner: User, keys: QuerySet[ApiKey]) -> None:
    access = Access.when_active([owner])[owner.pk]
    for key in keys.filter(paused_at=None, revoked_at=None).select_related("project"):
        if not access.may(Action.MANAGE, key):
            switch(key, "pause", paused_at=timezone.now())


# -- Users and roles


def add_user(
    username: str,
    *,
    password: str | None = None,
    email: str = "",
    is_email_confirmed: bool = True,
    is_service: bool = False,
    scope: Organization | Project | None = None,
    role: str = Role.MEMBER,
) -> User:
    """Store a new user with a role in an organisation or a project. Without a password the user
    cannot sign in by password. Raises `ValidationError`, also for a weak password."""
    user = User(
        username=username,
        email=email,
        is_email_confirmed=is_email_confirmed or not email,
        is_service=is_service,
    )
    if password is not None:
        _check_password(password, user)
    user.set_password(password)
    with audit.writing():
        add(user)
        if scope is not None:
            add(membership_of(user, scope, role))
    return user


def membership_of(user: User, scope: Organization | Project, role: str) -> Membership:
    if isinstance(scope, Project):
        return Membership(
            user=user, organization_id=scope.organization_id, project=scope, role=role
        )
    return Membership(user=user, organization=scope, role=role)


def known_membership(user: User, scope: Organization | Project) -> Membership | None:
    if isinstance(scope, Project):
        return user.memberships.filter(project=scope).first()
    return user.memberships.filter(organization=scope, project=None).first()


def set_role(user: User, scope: Organization | Project, role: str) -> Membership:
    with audit.writing():
        known = known_membership(user, scope)
        return add(membership_of(user, scope, role)) if known is None else change(known, role=role)


INVITATION_LIFETIME: Final = timedelta(days=14)
MAX_INVITATIONS: Final = 500
"""How many open invitations an organisation may have."""


def invite(username: str, scope: Organization | Project, role: str) -> Invitation:
    """Offer a role to the user of this name, whether or not such a user exists. The invitation
    replaces an earlier one of this name to the same scope. Raises `ValidationError` if the
    organisation has too many."""
    offered = membership_of(User(), scope, role)
    now = timezone.now()
    invitations = Invitation.objects.filter(organization=offered.organization_id)
    same = {"username": username, "project": offered.project_id}
    with audit.writing():
        invitations.filter(expires_at__lte=now).delete()
        for earlier in invitations.filter(**same):
            remove(earlier)
        if invitations.count() >= MAX_INVITATIONS:
            text = f"There are {MAX_INVITATIONS} open invitations. Withdraw some first."
            raise ValidationError({"username": text})
        return add(
            Invitation(
                username=username,
                organization_id=offered.organization_id,
                project=offered.project,
                role=role,
                invited_by=current_actor().name[:150],
                expires_at=now + INVITATION_LIFETIME,
            )
        )


def accept(invitation: Invitation) -> Membership:
    """Give the invited user the role. Raises `ValidationError` for an invitation that was withdrawn
    meanwhile, and for an organisation that would lose its last owner."""
    user = User.objects.get(username=invitation.username)
    with audit.writing():
        if not Invitation.objects.filter(pk=invitation.pk).exists():
            raise ValidationError("The invitation was withdrawn.")
        membership = set_role(user, invitation.scope, invitation.role)
        remove(invitation)
    return membership


def set_active(row: RowT, is_active: bool) -> RowT:  # noqa: FBT001
    return switch(row, "activate" if is_active else "deactivate", is_active=is_active)


def new_password() -> str:
    return secrets.token_urlsafe(15)


def set_password(user: User, password: str) -> None:
    """Raises `ValidationError` for a weak password, and for a service account."""
    _check_password(password, user)
    with audit.writing():
        user.set_password(password)
        user.save(update_fields=["password"])
        audit.record("password", user)


def _check_password(password: str, user: User) -> None:
    if user.is_service:
        raise ValidationError({"password": "A service account does not sign in."})
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise ValidationError({"password": error.messages}) from None


# -- Where users and keys belong by default

_FIRST: Final = "default"


def first_project() -> Project:
    """The default project: the oldest. Creates `default` in the organisation `default` if there is
    no project."""
    oldest = Project.objects.select_related("organization").order_by("id").first()
    if oldest is not None:
        return oldest
    organization = Organization.objects.filter(name=_FIRST).first()
    if organization is None:
        organization = add(Organization(name=_FIRST))
    return add(Project(organization=organization, name=_FIRST))


def home_project(user: User) -> Project:
    """The project of this user's keys when none is named: the first of the user's memberships. A
    person without a membership joins the organisation of `first_project`."""
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
        set_role(user, project.organization, role)
    return project


# -- Rules that need more than one row


def check(row: Model, stored: Model | None = None) -> None:
    """Raises `ValidationError` for a row that conflicts with other rows. `stored` is the row before
    the change, None for a new row."""
    match row:
        case Limit() if stored is None:
            if row.scope in OWNERS and row.owner() is None:
                raise ValidationError({"scope_id": f"There is no {row.scope} {row.scope_id}."})
            if row.metric == Metric.COST and not Currency.current():
                text = "Nothing has a cost before an administrator has set the currency."
                raise ValidationError({"metric": text})
        case Currency() if stored is None and Currency.objects.exists():
            raise ValidationError("There is a currency already: change it.")
        case Membership() | Invitation() | ScopedRow():
            if row.project is not None and row.project.organization_id != row.organization_id:
                raise ValidationError({"project": "This project is in another organisation."})
            if isinstance(row, Membership) and row.role != Role.OWNER and stored is not None:
                _check_leaves_an_owner(stored)
        case ApiKey():
            known = stored.allowed_endpoints if isinstance(stored, ApiKey) else None
            if row.allowed_endpoints != known:
                _check_endpoints(row)
            _check_admin_scope(row, stored if isinstance(stored, ApiKey) else None)
        case User() if isinstance(stored, User):
            if not (row.is_superuser and row.is_active):
                _check_is_not_the_last_superuser(stored)


def _check_endpoints(key: ApiKey) -> None:
    known = settings.VINERY_KEY_ENDPOINTS
    for name in key.allowed_endpoints:
        if name not in known:
            message = f"There is no endpoint {name}. There are: {', '.join(known)}."
            raise ValidationError({"allowed_endpoints": message})


def _check_admin_scope(key: ApiKey, stored: ApiKey | None) -> None:
    """Raises `ValidationError` for an admin key of an owner who is no administrator, and for a
    change that makes a key an admin key: others may already know its secret."""
    if stored is not None:
        if key.is_for_administration != stored.is_for_administration:
            message = "The scope `admin` is given when a key is created, and stays: create a key."
            raise ValidationError({"scopes": message})
    elif key.is_for_administration and not (key.owner.is_superuser and key.owner.is_active):
        message = f"Only administrators of the platform have admin keys: {key.owner} is none."
        raise ValidationError({"scopes": message})


def check_removable(row: Model) -> None:
    match row:
        case Organization() if row.projects.exists():
            raise ValidationError(f"{row} has projects: remove them first, or deactivate it.")
        case Project() if row.api_keys.exists():
            raise ValidationError(
                f"{row} has keys, and revoked keys count too: remove them first, such as with "
                "`vinery key remove`, or deactivate the project."
            )
        case User():
            if row.pk == current_actor().user_id:
                raise ValidationError("You cannot remove yourself. Ask another administrator.")
            _check_is_not_the_last_superuser(row)
            for membership in row.memberships.select_related("user", "organization"):
                _check_leaves_an_owner(membership)
        case Membership():
            _check_leaves_an_owner(row)
        case Currency() if Limit.objects.filter(metric=Metric.COST).exists():
            raise ValidationError("There are limits of the cost: remove them first.")


def _check_leaves_an_owner(row: Model) -> None:
    if not isinstance(row, Membership) or row.project_id or row.role != Role.OWNER:
        return
    others = Membership.objects.filter(
        organization_id=row.organization_id, project=None, role=Role.OWNER
    ).exclude(pk=row.pk)
    if not others.exists():
        raise ValidationError(
            {"role": f"{row.user} is the last owner of {row.organization}: name another first."}
        )


def is_last_superuser(user: User) -> bool:
    if not (user.is_superuser and user.is_active):
        return False
    return not User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk).exists()


def _check_is_not_the_last_superuser(user: User) -> None:
    if is_last_superuser(user):
        raise ValidationError({"is_active": f"{user} is the last administrator: name another."})


def _check_constraints(row: Model, changed: Iterable[str]) -> None:
    touched = set(changed)
    for constraint in row._meta.constraints:
        if isinstance(constraint, UniqueConstraint) and touched & set(constraint.fields):
            constraint.validate(type(row), row)
