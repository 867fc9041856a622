"""Who may see and do what: everything that a page, an API or a report shows goes through here.

    viewer   looks at everything in the organisation or the project that the role is in
    member   also makes keys of their own there, and manages these
    admin    also manages projects, all keys, service accounts, and the limits below their own
             place: of the projects, keys and users of an organisation, of the keys of a project
    owner    also members, and the organisation itself
    superuser  everything; and nobody else removes people and organisations

A limit binds those whom it is set for, so it is set from above: that of an organisation by
a superuser, that of a project by an admin of its organisation. So is what a project keeps of
its requests' texts, and the same people read it. A key with the manage scope may what its owner
may, in its project alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self, TypeVar, cast

from django.db.models import Model, Q, QuerySet

from accounts.base.limit_table import CALENDAR_WINDOWS, Metric, Window
from accounts.models import (
    Alert,
    ApiKey,
    AuditEntry,
    Capture,
    KeyReminder,
    Limit,
    LimitScope,
    Membership,
    ModelWeight,
    Organization,
    Project,
    RefusedRequest,
    Role,
    Scope,
    UsageRecord,
    User,
    Webhook,
)
from accounts.usage.filters import EVERYTHING, Visible, restriction

RowT = TypeVar("RowT", bound=Model)

_RANKS: Final[Mapping[str, int]] = {
    Role.VIEWER: 1,
    Role.MEMBER: 2,
    Role.ADMIN: 3,
    Role.OWNER: 4,
}
_ABOVE_ALL: Final = 5
_BIND_EVERYBODY: Final = Q(scope__in=(LimitScope.PLATFORM, LimitScope.MODEL))


# An organisation, a project in it or None for all of it, and the role there.
_Role = tuple[int, int | None, str]


class Action(StrEnum):
    """What is done to a row. A row that is not saved yet is asked about as if it were."""

    VIEW = "view"
    MANAGE = "manage"  # make, change, remove
    STOP = "stop"  # pause or revoke a key
    RESUME = "resume"  # let a paused key open the door again
    SWITCH = "switch"  # activate or deactivate an organisation
    REMOVE = "remove"  # remove an organisation or a user; the rest goes with MANAGE
    CAPTURE = "capture"  # say what a project keeps of its requests' texts


@dataclass(frozen=True, slots=True)
class Access:
    """Of one person, or of one key."""

    user_id: int | None
    is_superuser: bool = False
    # Roles that hold in a whole organisation, and in a single project.
    organizations: Mapping[int, str] = field(default_factory=dict)
    projects: Mapping[int, str] = field(default_factory=dict)
    # Organisations of which at least a part is known.
    known_organizations: frozenset[int] = frozenset()
    is_of_key: bool = False
    # The project of a key whose owner leads the organisation, which a key alone does not know.
    captured_projects: frozenset[int] = frozenset()

    @classmethod
    def of(cls, user: Any) -> Self:
        """Of a user, signed in or not: one query, or none for a superuser."""
        if not user.is_authenticated or not user.is_active:
            return cls(None)
        return cls.when_active([user])[user.pk]

    @classmethod
    def when_active(cls, users: Iterable[User]) -> dict[int, Self]:
        """What people may, or will again if they are deactivated now: by their ids, with one
        query for all, or none for superusers."""
        people = {user.pk: user for user in users}
        places: defaultdict[int, list[_Role]] = defaultdict(list)
        asked = [pk for pk, user in people.items() if not user.is_superuser]
        if asked:
            rows = Membership.objects.filter(user__in=asked).order_by()
            columns = ("user_id", "organization_id", "project_id", "role")
            for pk, organization, project, role in rows.values_list(*columns):
                places[pk].append((organization, project, role))
        return {pk: cls._with(user, places[pk]) for pk, user in people.items()}

    @classmethod
    def _with(cls, user: User, places: Iterable[_Role]) -> Self:
        if user.is_superuser:
            return cls(user.pk, is_superuser=True)
        organizations: dict[int, str] = {}
        projects: dict[int, str] = {}
        known = set()
        for organization, project, role in places:
            known.add(organization)
            if project is None:
                organizations[organization] = role
            else:
                projects[project] = role
        return cls(
            user.pk,
            organizations=organizations,
            projects=projects,
            known_organizations=frozenset(known),
        )

    @classmethod
    def of_key(cls, key: ApiKey) -> Self:
        """What a key's owner may in the key's project."""
        owner = cls.of(key.owner)
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

    # -- What one sees

    def visible(self) -> Visible | None:
        """Whose rows of the books; None is everybody's."""
        if self.is_superuser:
            return None
        return Visible(
            organizations=frozenset(self.organizations),
            projects=frozenset(self.projects),
            users=self._oneself,
        )

    def rows(self, model: type[RowT]) -> QuerySet[RowT]:
        """The rows of a table of this room that may be seen."""
        rows = cast(QuerySet[RowT], cast(Any, model).objects.all())
        return rows if self.is_superuser else rows.filter(self._condition(model))

    def organizations_seen(self) -> QuerySet[Organization]:
        """Those with a role in them, or in one of their projects."""
        return self.rows(Organization)

    def projects_seen(self) -> QuerySet[Project]:
        """All of an organisation, or single ones."""
        return self.rows(Project)

    def keys_seen(self) -> QuerySet[ApiKey]:
        """One's own, and those of projects that are seen."""
        return cast("QuerySet[ApiKey]", self.rows(ApiKey))

    def quotas_seen(self) -> QuerySet[Limit]:
        """Limits that can be used up, of those whose use one may know: everybody knows the
        limits of the platform and of models, and administrators how full these are."""
        is_for_ever = Q(window=Window.NONE) & ~Q(metric=Metric.CONCURRENCY)
        is_quota = Q(window__in=CALENDAR_WINDOWS) | is_for_ever
        limits = self.rows(Limit).filter(is_quota)
        return limits if self.is_superuser else limits.exclude(_BIND_EVERYBODY)

    def rows_to_limit(self, model: type[RowT]) -> QuerySet[RowT]:
        """The rows of a table of owners for which one may set limits: what `may` says of each
        limit, as a query."""
        rows = self.rows(model)
        if self.is_superuser:
            return rows
        led_projects = {
            place for place, role in self.projects.items() if _RANKS[role] >= _RANKS["admin"]
        }
        is_led = Q(organization_id__in=self._led)
        if model is Project:
            return rows.filter(is_led)
        if model is ApiKey:
            of_led = Q(project__organization_id__in=self._led)
            return rows.filter(of_led | Q(project_id__in=led_projects))
        if model is User:
            places = Membership.objects.order_by()
            is_led |= Q(project_id__in=led_projects)
            inside, outside = places.filter(is_led), places.exclude(is_led)
            return rows.filter(
                pk__in=inside.values("user_id"), is_superuser=False, is_staff=False
            ).exclude(Q(pk__in=outside.values("user_id")) | Q(pk=self.user_id))
        return rows.none()

    def _condition(self, model: type[Model]) -> Q:
        by_project = Q(project_id__in=self.projects)
        if model is Organization:
            return Q(pk__in=self.known_organizations)
        if model is Project:
            return Q(organization_id__in=self.organizations) | Q(pk__in=self.projects)
        if model is Membership:
            in_place = Q(organization_id__in=self.organizations) | by_project
            return in_place | Q(user_id__in=self._oneself)
        if model is User:
            members = Membership.objects.filter(
                Q(organization_id__in=self.organizations) | by_project
            )
            return Q(pk=self.user_id) | Q(pk__in=members.order_by().values("user_id"))
        if model is ApiKey:
            in_place = Q(project__organization_id__in=self.organizations) | by_project
            return in_place | Q(owner_id__in=self._oneself)
        if model in (UsageRecord, RefusedRequest):
            return restriction(EVERYTHING, self.visible())
        if model is Limit:
            return self._limits_condition()
        if model is Alert:
            limits = self._limits_condition() & ~_BIND_EVERYBODY
            known = Limit.objects.filter(limits).order_by().values("pk")
            return Q(organization_id__in=self.organizations) | Q(limit_id__in=known)
        if model is KeyReminder:
            seen = self.rows(ApiKey).order_by().values("pk")
            return Q(organization_id__in=self.organizations) | Q(key_id__in=seen)
        if model is Webhook:
            return Q(organization_id__in=self._led)
        if model is AuditEntry:
            return Q(organization_id__in=self._led) | Q(actor_id__in=self._oneself)
        if model is Capture:
            led = Project.objects.filter(organization_id__in=self._led).order_by()
            return Q(project_id__in=led.values("pk")) | Q(project_id__in=self.captured_projects)
        if model is ModelWeight:
            return Q() if self.user_id is not None else Q(pk__in=())
        raise TypeError(f"nobody has said who may see {model.__name__}")

    def _limits_condition(self) -> Q:
        """Limits of what is seen. Those of models and of the platform bind everybody, and
        everybody may know them."""
        if self.user_id is None:
            return Q(pk__in=())

        def of(scope: LimitScope, model: type[Model]) -> Q:
            return Q(scope=scope, scope_id__in=self.rows(model).order_by().values("pk"))

        return (
            _BIND_EVERYBODY
            | of(LimitScope.ORGANIZATION, Organization)
            | of(LimitScope.PROJECT, Project)
            | of(LimitScope.USER, User)
            | of(LimitScope.KEY, ApiKey)
        )

    @property
    def _led(self) -> set[int]:
        """Organisations of which one is an admin or more."""
        return {place for place in self.organizations if self.rank_at(place) >= _RANKS["admin"]}

    @property
    def _oneself(self) -> frozenset[int]:
        """Whose rows are seen wherever they are. A key sees its project, and no more."""
        return frozenset() if self.user_id is None or self.is_of_key else frozenset({self.user_id})

    # -- What one does

    def rank_at(self, organization_id: int | None, project_id: int | None = None) -> int:
        """How much one may there: 0 for nothing, up from viewers."""
        if self.is_superuser:
            return _ABOVE_ALL
        roles = (
            self.organizations.get(organization_id or 0),
            self.projects.get(project_id or 0),
        )
        return max(_RANKS.get(role or "", 0) for role in roles)

    def may(self, action: Action, row: Model) -> bool:
        """Whether this may be done to a row."""
        if self.is_superuser:
            return True
        if self.user_id is None:
            return False
        if action is Action.VIEW:
            return self.rows(type(row)).filter(pk=row.pk).exists()
        match row:
            case Organization():
                return action is Action.MANAGE and self._leads(Role.OWNER, row.pk)
            case Project() if action is Action.CAPTURE:
                return row.organization_id in self._led or row.pk in self.captured_projects
            case Capture():
                return self.rows(Capture).filter(pk=row.pk).exists()
            case Project():
                return self._leads(Role.ADMIN, row.organization_id, row.pk)
            case Membership():
                return self._leads(Role.OWNER, row.organization_id, row.project_id)
            case User() if action is Action.REMOVE:
                return False  # an owner deactivates them: what they have elsewhere stays
            case User():
                least = Role.ADMIN if row.is_service else Role.OWNER
                return self._leads_person(least, row)
            case ApiKey():
                return self._may_with_key(action, row)
            case Limit():
                return self._may_limit(row)
            case Webhook():
                return row.organization_id in self._led
        return False

    def may_act_as(self, key: ApiKey, owner: Access | None = None) -> bool:
        """Whether one may hold the secret of this key, which manages in its owner's name.
        `owner` is what the owner may, for whoever asks about many keys."""
        if self.is_superuser or Scope.MANAGE not in key.scopes:
            return True
        place = key.project.organization_id, key.project_id
        if key.owner_id == self.user_id:
            theirs = self
        else:
            theirs = owner or Access.when_active([key.owner])[key.owner_id]
        # What a project keeps of texts is not for whoever leads the project alone.
        is_less = theirs.may(Action.CAPTURE, key.project) and not self.may(
            Action.CAPTURE, key.project
        )
        return not is_less and self.rank_at(*place) >= theirs.rank_at(*place)

    def _leads(self, least: Role, organization_id: int | None, project_id: Any = None) -> bool:
        return self.rank_at(organization_id, project_id) >= _RANKS[least]

    def _leads_person(self, least: Role, person: User) -> bool:
        """Whether one leads everywhere where this person is: else whoever leads one
        organisation could lock people out of another one."""
        if person.pk == self.user_id or person.is_superuser or person.is_staff:
            return False
        places = Membership.objects.filter(user=person).order_by()
        ranks = [
            self.rank_at(*place) for place in places.values_list("organization_id", "project_id")
        ]
        return bool(ranks) and min(ranks) >= _RANKS[least]

    def _may_with_key(self, action: Action, key: ApiKey) -> bool:
        place = key.project.organization_id, key.project_id
        if self._leads(Role.ADMIN, *place):
            return True
        if key.owner_id != self.user_id:
            return False
        if self.is_of_key and not self.rank_at(*place):
            return False
        # Who has lost their role still stops what runs in their name.
        if action is Action.STOP:
            return True
        if not self._leads(Role.MEMBER, *place):
            return False
        return action is not Action.RESUME or self._has_paused(key)

    def _has_paused(self, key: ApiKey) -> bool:
        """What others have stopped is theirs to resume."""
        entries = AuditEntry.objects.filter(target_kind="key", target_id=str(key.pk))
        last = entries.filter(action="key.pause").order_by("-number").first()
        return last is not None and last.actor_id == self.user_id

    def _may_limit(self, limit: Limit) -> bool:
        match limit.scope:
            case LimitScope.PROJECT:
                project = Project.objects.filter(pk=limit.scope_id).first()
                return project is not None and self._leads(Role.ADMIN, project.organization_id)
            case LimitScope.KEY:
                keys = ApiKey.objects.select_related("project")
                key = keys.filter(pk=limit.scope_id).first()
                return key is not None and self._leads(
                    Role.ADMIN, key.project.organization_id, key.project_id
                )
            case LimitScope.USER:
                person = User.objects.filter(pk=limit.scope_id).first()
                return person is not None and self._leads_person(Role.ADMIN, person)
        return False
