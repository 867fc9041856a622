"""The frame of the console: the reader, the menu, error pages and the headers of all pages."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache
from itertools import chain
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template import Library
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from vinery_accounts.access.access import Access
from vinery_accounts.alerts.quotas import num_open
from vinery_accounts.console.charts import duration
from vinery_accounts.console.words import store_outage
from vinery_accounts.limits.service import current_state
from vinery_accounts.models import Alert, Organization, Project
from vinery_accounts.models.limits import check_time_zone
from vinery_accounts.resources.base import registered
from vinery_accounts.resources.fields import id_of
from vinery_accounts.signin import passkeys

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


@dataclass(frozen=True, slots=True)
class Entry:
    """A page. `name` is that of its URL, too."""

    name: str
    title: str
    needs: str = ""  # what of `Access` opens it; empty: everyone may

    def may_open(self, access: Access) -> bool:
        return not self.needs or bool(getattr(access, self.needs))


_GROUPS: Final = {
    "Use": (
        Entry("overview", "Overview"),
        Entry("playground", "Playground"),
        Entry("usage", "Usage"),
        Entry("keys", "Keys"),
        Entry("requests", "Requests"),
        Entry("connect", "Connect"),
        Entry("refusals", "Limit events"),
    ),
    "Run": (
        Entry("models", "Models"),
        Entry("devices", "Devices", "is_superuser"),
        Entry("hosts", "Hosts", "is_superuser"),
        Entry("media", "Media", "owns_scope"),
        Entry("live", "Live"),
        Entry("alerts", "Alerts", "is_leader"),
        Entry("captures", "Captures", "is_leader"),
        Entry("stored-responses", "Stored responses", "is_leader"),
        Entry("conversations", "Conversations", "is_leader"),
        Entry("stored-chats", "Stored chats", "is_leader"),
        Entry("quarantine", "Quarantine", "is_leader"),
    ),
    "Organisation": (
        Entry("organizations", "Organisations", "is_superuser"),
        Entry("users", "All users", "is_superuser"),
        Entry("members", "Members", "has_role"),
        Entry("service-accounts", "Service accounts", "is_leader"),
        Entry("projects", "Projects", "is_leader"),
        Entry("limits", "Limits"),
        Entry("model-weights", "Prices and weights"),
        Entry("webhooks", "Webhooks", "leads_organization"),
        Entry("audit", "Audit log", "leads_organization"),
    ),
}

_UNLISTED: Final = frozenset({"currency", "invitations"})  # other pages lead to these


def menu_of(access: Access) -> dict[str, list[Entry]]:
    """Return the pages that the caller may open, by the names of groups."""
    named = {each.name for each in chain.from_iterable(_GROUPS.values())} | _UNLISTED
    others = [Entry(name, each.title) for name, each in registered().items() if each.title]
    more = {"Run": [each for each in others if each.name not in named]}
    return {
        name: [each for each in (*entries, *more.get(name, ())) if each.may_open(access)]
        for name, entries in _GROUPS.items()
    }


def may_open(access: Access, name: str) -> bool:
    entries = chain.from_iterable(_GROUPS.values())
    return all(each.may_open(access) for each in entries if each.name == name)


def frame(request: HttpRequest) -> dict[str, Callable[[], object]]:
    """Return what the frame of each page shows, if its template asks for it."""
    is_own = request.path.startswith(reverse("account_overview"))
    return {
        "menu": lambda: menu_of(access_of(request)),
        "num_open_alerts": lambda: num_open(access_of(request).rows(Alert), timezone.now()),
        # Read after the page, because reading the levels of limits notices an outage.
        "outage": lambda: store_outage(current_state(), time.time()),
        "whose": lambda: _whose(access_of(request)),
        "scope": lambda: access_of(request).scope,
        "page": lambda: "account" if is_own else "",
    }


def _whose(access: Access) -> str:
    if access.scope is not None or access.is_superuser:
        return str(access.scope or "All organisations")
    names = [each.name for each in access.rows(Organization)[:4]]
    return ", ".join(names) or "Your own usage"


ResponseT = TypeVar("ResponseT", bound=HttpResponseBase)

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def guarded(response: ResponseT) -> ResponseT:
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Cache-Control"] = "no-store, private"
    response.headers["Referrer-Policy"] = "same-origin"
    return response


def error_page(request: HttpRequest, status: int, what: str = "") -> HttpResponse:
    # After a server error the user can perhaps not be read.
    known = None if status >= 500 else request
    text = render_to_string(f"console/error_{what or status}.html", request=known)
    return guarded(HttpResponse(text, status=status))


register = Library()
register.filter(duration)


@register.simple_block_tag
def table(content: str, columns: str | Iterable[str]) -> SafeString:
    """Return a table around its rows. `columns` are the names of the columns, as a list or
    separated by `|`: `#Bytes` has figures, and a column of buttons has no name. On phones each row
    becomes a card, in which `data-name` of a cell names its column."""
    names = columns.split("|") if isinstance(columns, str) else columns
    figure = SafeString(' class="figure"')
    heads = ((figure if each[:1] == "#" else "", each.removeprefix("#")) for each in names)
    return format_html(
        '<div class="table">\n<table>\n  <thead><tr>{}</tr></thead>\n'
        "  <tbody>\n{}  </tbody>\n</table>\n</div>",
        format_html_join("", "<th{}>{}</th>", heads),
        content,
    )


@register.simple_tag
def moment(at: datetime | None, zone: tzinfo | None = None, *, seconds: bool = False) -> SafeString:
    """Return a time in the reader's zone, which shows the exact one when it is pointed at."""
    if at is None:
        return SafeString("")
    local, utc = (f"{timezone.localtime(at, each):%Y-%m-%d %H:%M:%S %Z}" for each in (zone, UTC))
    exact = local if local == utc else f"{local} ({utc})"
    html = '<time datetime="{}" title="{}">{}</time>'
    shown = local[: 19 if seconds else 16]
    return format_html(html, at.isoformat(timespec="seconds"), exact, shown)


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    html = '<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>'
    return format_html(html, static("console/icons.svg"), name)


@register.simple_tag
def state(is_active: bool, otherwise: str) -> SafeString:  # noqa: FBT001
    kind, word = ("state state-active", "active") if is_active else ("state", otherwise)
    return format_html('<span class="{}">{}</span>', kind, word)


_TABS: Final = {
    "account_overview": "Profile",
    "account_change_password": "Password",
    "mfa_index": "Two-factor authentication",
    "mfa_list_webauthn": "Passkeys",
    "usersessions_list": "Sessions",
    "console:account": "Keys and limits",
}


@register.simple_tag(takes_context=True)
def account_tabs(context: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return the title and the address of each tab, and whether the page belongs to it."""
    found = {reverse(name): title for name, title in _TABS.items()}
    path = context["request"].path
    current = max((each for each in found if path.startswith(each)), key=len, default="")
    return [(title, address, address == current) for address, title in found.items()]


@register.simple_tag(takes_context=True)
def why_no_passkeys(context: Mapping[str, Any]) -> str:
    return passkeys.why_none(context["request"])


_PROGRAMS: Final = (
    ("Edg", "OPR", "Firefox", "Chrome", "Safari", "curl"),
    ("Android", "iPhone", "iPad", "Windows", "Mac OS", "CrOS", "Linux"),
)
_WORDS: Final = {"Edg": "Edge", "OPR": "Opera", "Mac OS": "macOS", "CrOS": "ChromeOS"}


@register.filter
def device(user_agent: str) -> str:
    names = (next((each for each in known if each in user_agent), "") for known in _PROGRAMS)
    return " on ".join(_WORDS.get(name, name) for name in names if name) or "Unknown device"
