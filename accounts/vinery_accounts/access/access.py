"""Permissions: which rows a user or a key may see, and which actions are allowed.

    viewer     sees everything in the organisation or the project of the role
    member     also creates keys of their own there, and manages them
    admin      also manages projects, all keys, service accounts, and limits: of the projects,
               keys and users of an organisation, or of the keys of a project
    owner      also manages members, and narrows which media may be sent
    superuser  does everything; only superusers remove users, and change organisations

A limit is set from above: a superuser sets the limits of an organisation, an admin of the
organisation sets the limits of the projects. The same admins decide which texts of requests a
project keeps, and which responses it stores, and read both. A key with the manage scope has the
owner's permissions, in its project only.

A key with the admin scope and a superuser as owner has the permissions of superusers but two: such
a key creates, changes, rotates and resumes no admin key, and changes no superusers and no staff.
Otherwise a stolen admin key could outlive its revocation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self, TypeVar, cast

from django.db.models import Model, Q, QuerySet

from vinery_accounts.access import served
from vinery_accounts.base.limit_table import CALENDAR_WINDOWS, Metric, Window
from vinery_accounts.models import (
    OWNERS,
    Alert,
    ApiKey,
    AuditEntry,
    Capture,
    Currency,
    Invitation,
    Limit,
    LimitScope,
    Membership,
    ModelWeight,
    Organization,
    Project,
    QuarantinedRequest,
    RefusedRequest,
    Role,
    Scope,
    ScopedRow,
    UsageRecord,
    User,
    Webhook,
)
from vinery_accounts.models.stored import OwnedRow
from vinery_accounts.usage.filters import Conditions, Dimension, restriction

RowT = TypeVar("RowT", bound=Model)

_RANKS: Final[Mapping[str, int]] = {Role.VIEWER: 1, Role.MEMBER: 2, Role.ADMIN: 3, Role.OWNER: 4}
_ABOVE_ALL: Final = 5


# The id of the organisation, the id of one project or None for all projects, and the role.
_Role = tuple[int, int | None, str]


class Action(StrEnum):
    VIEW = "view"
    MANAGE = "manage"  # create, change, remove
    STOP = "stop"  # pause or revoke a key
    RESUME = "resume"  # resume a paused key
    SWITCH = "switch"  # activate or deactivate an organisation
    REMOVE = "remove"  # remove an organisation, a user or a key; MANAGE covers other rows
    CAPTURE = "capture"  # choose which texts of requests a project keeps
    ANSWER = "answer"  # accept an invitation


@dataclass(frozen=True, slots=True)
class Access:
    """The permissions of one user, or of one key."""

    user_id: int | None
    is_superuser: bool = False
    # Roles that hold in a whole organisation, and in a single project.
    organizations: Mapping[int, str] = field(default_factory=dict)
    projects: Mapping[int, str] = field(default_factory=dict)
    # Organisations where the user has a role, or has a role in a project.
    known_organizations: frozenset[int] = frozenset()
    is_of_key: bool = False
    # The project of a key whose owner is an admin of the organisation.
    captured_projects: frozenset[int] = frozenset()
    scope: Organization | Project | None = None
    """What the caller looks at: rows elsewhere are left out. It gives no permission."""

    @classmethod
    def of(cls, user: Any) -> Self:
        """The permissions of a user, signed in or not. One query, or none for a superuser."""
        if not user.is_authenticated or not user.is_active:
            return cls(None)
        return cls.when_active([user])[user.pk]

    @classmethod
    def when_active(cls, users: Iterable[User]) -> dict[int, Self]:
        """The permissions of users by their ids, as if all were active. At most one query."""
        people = {user.pk: user for user in users}
        roles: defaultdict[int, list[_Role]] = defaultdict(list)
        asked = [pk for pk, user in people.items() if not user.is_superuser]
        if asked:
            rows = Membership.objects.filter(user__in=asked).order_by()
            columns = ("user_id", "organization_id", "project_id", "role")
            for pk, organization, project, role in rows.values_list(*columns):
                roles[pk].append((organization, project, role))
        return {
            pk: cls(
                pk,
                is_superuser=user.is_superuser,
                organizations={id_: role for id_, project, role in roles[pk] if project is None},
                projects={id_: role for _, id_, role in roles[pk] if id_ is not None},
                known_organizations=frozenset(id_ for id_, *_ in roles[pk]),
            )
            for pk, user in people.items()
        }

    @classmethod
    def of_key(cls, key: ApiKey) -> Self:
        """The owner's permissions: in the key's project only, unless the key is an admin key."""
        owner = cls.of(key.owner)
        if key.is_for_administration and owner.is_superuser:
            return cls(owner.user_id, is_superuser=True, is_of_key=True)
        organization = key.project.organization_id
        rank = owner.rank_at(organization, key.project_id)
        role = max(
            (role for role in _RANKS if _RANKS[role] <= rank), key=_RANKS.__getitem__, default=None
        )
        return cls(
            owner.user_id,
            projects={} if role is None else {key.project_id: role},
            known_organizations=frozenset() if role is None else frozenset({organization}),
            is_of_key=True,
            captured_projects=frozenset(
                {key.project_id} if owner.rank_at(organization) >= _RANKS[Role.ADMIN] else ()
            ),
        )

    def within(self, scope: Organization | Project) -> Self:
        """The same permissions, and of the visible rows those of this scope alone."""
        return replace(self, scope=scope)

    # -- Rows that are visible

    def visible(self) -> Conditions | None:
        """Whose usage records are visible; None for all of them."""
        if self.scope is not None:
            return self._visible_within(self.scope)
        if self.is_superuser:
            return None
        owners = {
            Dimension.ORGANIZATION: frozenset(self.organizations),
            Dimension.PROJECT: frozenset(self.projects),
            Dimension.USER: self._oneself,
        }
        return {dimension: ids for dimension, ids in owners.items() if ids}

    def _visible_within(self, scope: Organization | Project) -> Conditions:
        """The usage of the scope that a role shows. A caller's own rows elsewhere are left out."""
        if isinstance(scope, Organization) and self.rank_at(scope.pk):
            return {Dimension.ORGANIZATION: frozenset({scope.pk})}
        if isinstance(scope, Organization):
            own = scope.projects.filter(pk__in=self.projects)
            found = frozenset(own.order_by().values_list("pk", flat=True))
        else:
            is_seen = self.rank_at(scope.organization_id, scope.pk)
            found = frozenset({scope.pk} if is_seen else ())
        return {Dimension.PROJECT: found} if found else {}

    def rows(self, model: type[RowT]) -> QuerySet[RowT]:
        rows = cast(QuerySet[RowT], cast(Any, model).objects.all())
        if not self.is_superuser:
            rows = rows.filter(self._condition(model))
        return rows if self.scope is None else rows.filter(self._is_within(self.scope, model))

    def _is_within(self, scope: Organization | Project, model: type[Model]) -> Q:
        """The rows that an owner of the scope sees. Webhooks and entries of the audit log belong to
        organisations."""
        whole = scope.pk if isinstance(scope, Organization) else scope.organization_id
        is_whole = isinstance(scope, Organization) or model in (AuditEntry, Webhook)
        there = Access(
            self.user_id,
            organizations={whole: Role.OWNER} if is_whole else {},
            projects={} if is_whole else {scope.pk: Role.OWNER},
            known_organizations=frozenset({whole}),
            is_of_key=True,
            captured_projects=frozenset() if is_whole else frozenset({scope.pk}),
        )
        return there._condition(model)

    def project_ids(self) -> set[int]:
        return set(self.rows(Project).values_list("pk", flat=True))

    def quotas_seen(self) -> QuerySet[Limit]:
        """Limits that can be used up, and whose use is visible. Limits of the platform and of
        models are visible to all users, but only superusers see how much of them is used. A limit
        of end users has a separate use for each end user."""
        is_for_ever = Q(window=Window.NONE) & ~Q(metric=Metric.CONCURRENCY)
        is_quota = Q(window__in=CALENDAR_WINDOWS) | is_for_ever
        limits = Limit.objects.filter(is_quota).exclude(scope=LimitScope.END_USER)
        sees_all = self.is_superuser and self.scope is None
        return limits if sees_all else limits.filter(self._owned_limits())

    def rows_to_limit(self, model: type[RowT]) -> QuerySet[RowT]:
        """The users, projects or keys whose limits the caller may manage."""
        rows = self.rows(model)
        if self.is_superuser:
            return rows
        led_projects = {
            project for project, role in self.projects.items() if _RANKS[role] >= _RANKS["admin"]
        }
        is_led = Q(organization_id__in=self._led)
        if model is Project:
            return rows.filter(is_led)
        if model is ApiKey:
            of_led = Q(project__organization_id__in=self._led)
            return rows.filter(of_led | Q(project_id__in=led_projects))
        if model is User:
            memberships = Membership.objects.order_by()
            is_led |= Q(project_id__in=led_projects)
            inside, outside = memberships.filter(is_led), memberships.exclude(is_led)
            return rows.filter(
                pk__in=inside.values("user_id"), is_superuser=False, is_staff=False
            ).exclude(Q(pk__in=outside.values("user_id")) | Q(pk=self.user_id))
        return rows.none()

    def led_organizations(self) -> QuerySet[Organization]:
        """The active organisations in which the caller may create rows."""
        rows = self.rows(Organization).filter(is_active=True).order_by("name")
        return rows if self.is_superuser else rows.filter(pk__in=self._led)

    def _condition(self, model: type[Model]) -> Q:
        by_project = Q(project_id__in=self.projects)
        if model is Organization:
            return Q(pk__in=self.known_organizations)
        if model is Project:
            return Q(organization_id__in=self.organizations) | Q(pk__in=self.projects)
        if model is Membership:
            in_scope = Q(organization_id__in=self.organizations) | by_project
            return in_scope | Q(user_id__in=self._oneself)
        if model is Invitation:
            invited = User.objects.filter(pk__in=self._oneself).values("username")
            return self._owned | Q(username__in=invited)
        if model is User:
            members = Membership.objects.filter(
                Q(organization_id__in=self.organizations) | by_project
            )
            return Q(pk=self.user_id) | Q(pk__in=members.order_by().values("user_id"))
        if model is ApiKey:
            in_scope = Q(project__organization_id__in=self.organizations) | by_project
            return in_scope | Q(owner_id__in=self._oneself)
        if model in (UsageRecord, RefusedRequest, QuarantinedRequest):
            return restriction({}, self.visible())
        if model is Limit:
            bind_all = Q(scope=LimitScope.PLATFORM) | (
                Q(scope=LimitScope.MODEL) & self._visible_models()
            )
            return bind_all | self._owned_limits() if self.user_id is not None else Q(pk__in=())
        if model is Alert:
            known = Limit.objects.filter(self._owned_limits()).order_by().values("pk")
            return Q(organization_id__in=self.organizations) | Q(limit_id__in=known)
        if model is Webhook:
            return Q(organization_id__in=self._led)
        if model is AuditEntry:
            return Q(organization_id__in=self._led) | Q(actor_id__in=self._oneself)
        if model is Capture or issubclass(model, OwnedRow):
            led = Project.objects.filter(organization_id__in=self._led).order_by()
            # Values: the database then knows how many of its rows they have.
            return Q(project_id__in={*led.values_list("pk", flat=True), *self.captured_projects})
        if model is Currency:
            return Q() if self.user_id is not None else Q(pk__in=())
        if model is ModelWeight:
            return self._visible_models() if self.user_id is not None else Q(pk__in=())
        if issubclass(model, ScopedRow):
            holds_here = Q(organization_id__in=self.known_organizations, project=None)
            inside = Q(organization_id__in=self.organizations) | by_project
            found = Q(organization=None) | holds_here | inside
            return found if self.user_id is not None else Q(pk__in=())
        raise TypeError(f"no rule for the visibility of {model.__name__}")

    def _owned_limits(self) -> Q:
        condition = Q(pk__in=())
        for scope, model in OWNERS.items():
            seen = self.rows(model).order_by().values("pk")
            condition |= Q(scope=scope, scope_id__in=seen)
        return condition

    def _visible_models(self) -> Q:
        """Before the first model, any name is visible."""
        found = served.served_to(None)
        names = [each.name for each in served.visible_models(self, found)]
        return Q(model__in=names) if found else Q()

    @property
    def _led(self) -> set[int]:
        return {pk for pk in self.organizations if self.rank_at(pk) >= _RANKS["admin"]}

    @property
    def _owned(self) -> Q:
        """Rows with an organisation and a project, where the caller gives and takes roles."""
        owned = [pk for pk in self.organizations if self.rank_at(pk) >= _RANKS[Role.OWNER]]
        projects = [pk for pk, role in self.projects.items() if role == Role.OWNER]
        return Q(organization_id__in=owned) | Q(project_id__in=projects)

    @property
    def _oneself(self) -> frozenset[int]:
        """The caller, whose rows are visible in any project; empty for a key."""
        return frozenset() if self.user_id is None or self.is_of_key else frozenset({self.user_id})

    # -- Actions that are permitted

    def leads(
        self, organization_id: int | None, project_id: int | None = None, least: Role = Role.ADMIN
    ) -> bool:
        return self.rank_at(organization_id, project_id) >= _RANKS[least]

    @property
    def has_role(self) -> bool:
        return self.is_superuser or bool(self.known_organizations)

    @property
    def is_leader(self) -> bool:
        roles = {*self.organizations.values(), *self.projects.values()}
        return self.is_superuser or any(_RANKS[role] >= _RANKS[Role.ADMIN] for role in roles)

    @property
    def leads_organization(self) -> bool:
        return self.is_superuser or bool(self._led)

    @property
    def owns_scope(self) -> bool:
        roles = {*self.organizations.values(), *self.projects.values()}
        return self.is_superuser or Role.OWNER in roles

    def rank_at(self, organization_id: int | None, project_id: int | None = None) -> int:
        """The rank of the caller's role there: 0 for no role, then from viewer to superuser."""
        if self.is_superuser:
            return _ABOVE_ALL
        roles = (self.organizations.get(organization_id or 0), self.projects.get(project_id or 0))
        return max(_RANKS.get(role or "", 0) for role in roles)

    def may(self, action: Action, row: Model) -> bool:
        if action is Action.ANSWER:
            return isinstance(row, Invitation) and self._is_named(row.username)
        if self.is_superuser:
            return not self.is_of_key or _may_with_admin_key(action, row)
        if self.user_id is None:
            return False
        if action is Action.VIEW or isinstance(row, Capture | OwnedRow):
            return self.rows(type(row)).filter(pk=row.pk).exists()
        match row:
            case Project() if action is Action.CAPTURE:
                return row.organization_id in self._led or row.pk in self.captured_projects
            case Project():
                return self.leads(row.organization_id, row.pk)
            case Invitation() if action is Action.REMOVE and self._is_named(row.username):
                return True
            case Membership() | Invitation():
                return self.leads(row.organization_id, row.project_id, Role.OWNER)
            case User() if action is Action.REMOVE:
                return False  # owners deactivate users, who may belong to other organisations too
            case User():
                least = Role.ADMIN if row.is_service else Role.OWNER
                return self._outranks(least, row)
            case ApiKey():
                return self._may_with_key(action, row)
            case Limit():
                owners = OWNERS.get(row.scope)
                return owners is not None and (
                    self.rows_to_limit(owners).filter(pk=row.scope_id).exists()
                )
            case Webhook():
                return row.organization_id in self._led
            case ScopedRow() if row.organization_id is not None:
                return self.leads(row.organization_id, row.project_id, Role.OWNER)
        return False

    def may_act_as(self, key: ApiKey, owner: Access | None = None) -> bool:
        """Whether the caller may learn the secret of this key, which acts as its owner. `owner`:
        the owner's permissions, for a caller that checks many keys."""
        if key.is_for_administration:
            return self.is_superuser and not self.is_of_key
        if self.is_superuser or Scope.MANAGE not in key.scopes:
            return True
        scope = key.project.organization_id, key.project_id
        if key.owner_id == self.user_id:
            owner_access = self
        else:
            owner_access = owner or Access.when_active([key.owner])[key.owner_id]
        # An admin of the project alone may not decide about captures.
        is_less = owner_access.may(Action.CAPTURE, key.project) and not self.may(
            Action.CAPTURE, key.project
        )
        return not is_less and self.rank_at(*scope) >= owner_access.rank_at(*scope)

    def _outranks(self, least: Role, person: User) -> bool:
        """Whether the caller has this rank wherever the person has a role. Otherwise an owner of
        one organisation could lock users out of another organisation."""
        if person.pk == self.user_id or person.is_superuser or person.is_staff:
            return False
        scopes = Membership.objects.filter(user=person).order_by()
        ranks = [
            self.rank_at(*scope) for scope in scopes.values_list("organization_id", "project_id")
        ]
        return bool(ranks) and min(ranks) >= _RANKS[least]

    def _may_with_key(self, action: Action, key: ApiKey) -> bool:
        scope = key.project.organization_id, key.project_id
        if action is Action.REMOVE or (key.is_for_administration and action is not Action.STOP):
            return False
        if self.leads(*scope):
            return True
        if key.owner_id != self.user_id:
            return False
        if self.is_of_key and not self.rank_at(*scope):
            return False
        # A key's owner may still stop the key without a role.
        if action is Action.STOP:
            return True
        if not self.leads(*scope, Role.MEMBER):
            return False
        return action is not Action.RESUME or self._has_paused(key)

    def _is_named(self, username: str) -> bool:
        return User.objects.filter(pk__in=self._oneself, username=username).exists()

    def _has_paused(self, key: ApiKey) -> bool:
        """Whether the caller paused the key: nobody else may resume it."""
        entries = AuditEntry.objects.filter(target_kind="key", target_id=str(key.pk))
        last = entries.filter(action="key.pause").order_by("-number").first()
        return last is not None and last.actor_id == self.user_id


def _may_with_admin_key(action: Action, row: Model) -> bool:
    match row:
        case ApiKey() if row.is_for_administration:
            return action in (Action.VIEW, Action.STOP)
        case User() if row.is_superuser or row.is_staff:
            return action is Action.VIEW
    return True
