"""The reader of a page: permissions, the organisation or project that is looked at, time zone."""

from contextlib import suppress
from typing import Final
from zoneinfo import ZoneInfo

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from vinery_accounts.access.access import Access
from vinery_accounts.models import Organization, Project
from vinery_accounts.models.limits import check_time_zone
from vinery_accounts.resources.fields import id_of

SCOPE: Final = "scope"  # the entry of the session: `organization:3` or `project:7`
_KINDS: Final[dict[str, type[Organization | Project]]] = {
    "organization": Organization,
    "project": Project,
}
_ZONE_COOKIE: Final = "zone"  # the zone of the browser. The script of each page sets it.


def access_of(request: HttpRequest) -> Access:
    """Return the permissions, read once, of the rows in what the reader looks at."""
    known = vars(request)
    if "_vinery_access" not in known:
        # A request that was refused early has neither user nor session.
        access = Access.of(getattr(request, "user", AnonymousUser()))
        chosen = getattr(request, "session", {}).get(SCOPE, "") if access.user_id else ""
        scope = scope_named(access, chosen)
        known["_vinery_access"] = access if scope is None else access.within(scope)
    found: Access = known["_vinery_access"]
    return found


def scope_named(access: Access, text: str) -> Organization | Project | None:
    """Return what `project:7` names, if the caller may see it."""
    kind, _, row_id = text.partition(":")
    pk = id_of(row_id)
    if kind not in _KINDS or pk is None:
        return None
    return access.rows(_KINDS[kind]).filter(pk=pk).first()


def zone_of(request: HttpRequest) -> ZoneInfo:
    """Return the zone that the person has chosen, else that of the browser."""
    for name in (getattr(request.user, "time_zone", ""), request.COOKIES.get(_ZONE_COOKIE, "")):
        with suppress(ValidationError):
            check_time_zone(name)
            return ZoneInfo(name)
    return ZoneInfo("UTC")
