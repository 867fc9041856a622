"""Pages of records: alerts, the audit log, requests in quarantine and limit events."""

import json
from typing import Any, Final

from django import forms
from django.conf import settings
from django.db.models import Count, Q
from django.template.defaultfilters import pluralize
from django.utils.html import format_html, format_html_join

from vinery_accounts.access.access import Access
from vinery_accounts.alerts.deliveries import lead, reachable
from vinery_accounts.console.generated import Columns, Row, Rows
from vinery_accounts.console.page import UsagePage, at, value_of
from vinery_accounts.console.playground import link_of
from vinery_accounts.console.words import reason
from vinery_accounts.limits.rules import in_words
from vinery_accounts.models import AuditEntry, Capture, Currency, Webhook
from vinery_accounts.resources.alerts import ALERTS
from vinery_accounts.resources.base import Conflict
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.forms import text_of
from vinery_accounts.resources.limits import owners_of
from vinery_accounts.resources.records import AUDIT, CAPTURES, REFUSALS, SEARCH_HELP, read_texts
from vinery_accounts.resources.stored import CHATS, CONVERSATIONS, RESPONSES, read_items, turns
from vinery_accounts.usage.filters import Dimension, Effect, among

_ROWS: Final = 50
_MAX_PEOPLE: Final = 20
_MOST: Final = 5


@at("alerts/", "alerts")
class Alerts(Rows):
    """Alerts about quotas, and their receivers."""

    template_name = "console/alerts.html"
    resource = ALERTS

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | receivers(self.access)


def receivers(access: Access) -> dict[str, Any]:
    """Return the active webhooks that the user may see, and the users who get e-mails about limits
    in what the user leads, as `people_for` in `alerts/quotas.py` does."""
    webhooks = access.rows(Webhook).filter(is_active=True).order_by("name")
    people = reachable().filter(_readers(access)).order_by("email")
    found = list(people[: _MAX_PEOPLE + 1]) if settings.VINERY_HAS_EMAIL else []
    return {
        "webhooks": webhooks,
        "people": found[:_MAX_PEOPLE],
        "has_more_people": len(found) > _MAX_PEOPLE,
        "has_email": settings.VINERY_HAS_EMAIL,
        "may_make_webhooks": access.leads_organization,
    }


def _readers(access: Access) -> Q:
    if access.is_superuser:
        return Q(is_superuser=True) | lead(Q())
    organizations = [pk for pk in access.organizations if access.leads(pk)]
    projects = [pk for pk in access.projects if access.leads(None, pk)]
    return lead(Q(organization__in=organizations, project=None) | Q(project__in=projects))


def _changes(entry: AuditEntry) -> str:
    states = (entry.before or {}, entry.after or {})
    names = sorted({*states[0], *states[1]})
    if not names:
        return ""

    def values(name: str) -> str:
        return " → ".join(str(text_of(x[name])) for x in states if x.get(name) is not None)

    facts = format_html_join("", "<dt>{}</dt><dd>{}</dd>", ((k, values(k)) for k in names))
    text = '<details><summary>{} value{}</summary><dl class="facts">{}</dl></details>'
    return format_html(text, len(names), pluralize(len(names)), facts)


@at("audit/", "audit")
class AuditLog(Rows):
    resource = AUDIT
    note = (
        "Entries are never changed or deleted, and each holds the hash of the one before: an "
        "administrator verifies the whole log with the command vinery audit verify."
    )
    inputs = {
        "actor": {"size": "14", "placeholder": "alice"},
        "action": {},
        "search": {"size": "14", "type": "search", "title": SEARCH_HELP},
        "from": {"type": "datetime-local"},
        "to": {"type": "datetime-local"},
        "without_sign_ins": {},
    }

    def columns(self) -> Columns:
        return {**self.resource.columns, "changed": _changes}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        found = self.listed().order_by("action").values_list("action", flat=True).distinct()
        choices = [("", "any"), *((each, each) for each in found)]
        context["form"].fields["action"].widget = forms.Select(choices=choices)
        context["form"]["without_sign_ins"].label = "Without sign-ins"
        return context


@at("captures/<int:row_id>/", "captures-row")
class CapturedRequest(Row):
    template_name = "console/capture.html"
    resource = CAPTURES

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | texts_of(self.row)


def texts_of(capture: Capture) -> dict[str, Any]:
    """Return what `console/texts.html` shows. Reading the texts is an entry of the audit log."""
    try:
        texts = read_texts(capture)
    except Conflict as error:
        return {"unreadable": str(error)}
    found = {"Request": _pretty(texts.body), "Answer": _pretty(texts.answer)}
    return {"texts": found, "playground": link_of(texts.body, capture.endpoint, capture.project_id)}


def _pretty(text: bytes) -> str:
    """Return JSON with line breaks, and streams or cut texts as they are."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text.decode("utf-8", "replace")


class StoredThread(Row):
    """A response with what came before it, a conversation or a chat, read as a thread."""

    template_name = "console/thread.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        try:
            items = read_items(self.row)
        except Conflict as error:
            return context | {"unreadable": str(error)}
        name = "messages" if self.resource is CHATS else "input"
        request = json.dumps({"model": getattr(self.row, "model", None), name: items}).encode()
        playground = link_of(request, "responses", self.row.project_id)
        return context | {"turns": turns(items), "playground": playground}


for each in (RESPONSES, CONVERSATIONS, CHATS):
    page: Any = type("Thread", (StoredThread,), {"resource": each})
    at(f"{each.path}/<int:row_id>/", f"{each.path}-row")(page)


@at("refusals/", "refusals")
class Refusals(UsagePage):
    """The newest first; `before=17` continues before that row."""

    dimensions = frozenset(Dimension) - {
        *(Dimension.ENDPOINT, Dimension.OUTCOME, Dimension.STATUS, Dimension.END_USER)
    }

    def follows(self, name: str, value: str) -> bool:
        match name:
            case "before" | "limit":
                return not value or id_of(value) is not None
            case "effect":
                return value in ("", *Effect.values)
        return False

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        matching = self._matching()
        before = id_of(self.request.GET.get("before", ""))
        rows = matching if before is None else matching.filter(pk__lt=before)
        found = list(rows.order_by("-id")[: _ROWS + 1])
        shown = found[:_ROWS]
        columns = ("user_id", "username", "limit_id", "scope", "metric", "window")
        sums = matching.order_by().values(*columns).annotate(num_events=Count("id"))
        most = list(sums.order_by("-num_events")[:_MOST])
        most = most if len(most) > 1 else []
        scopes = [*(row.scope for row in shown), *(row["scope"] for row in most)]
        owners = owners_of(self.access, scopes)
        asked, currency = self.request.GET.get("effect", ""), Currency.current()
        return super().get_context_data(**kwargs) | {
            "rows": [(row, reason(row, owners[row.scope], currency)) for row in shown],
            "older": self.address(before=str(shown[-1].pk)) if len(found) > _ROWS else "",
            "most": [self._sum(row, owners[row["scope"]]) for row in most],
            "effects": [
                (label, self.address(effect=value or None, before=None), value == asked)
                for value, label in (("", "all"), *Effect.choices)
            ],
        }

    def _matching(self) -> Any:
        bounds = {"created_at__gte": self.period.since, "created_at__lt": self.period.until}
        rows: Any = REFUSALS.rows(self.access).filter(**bounds)
        for dimension, values in self.filters.items():
            rows = rows.filter(among(dimension, values))
        limit_id, effect = id_of(self.request.GET.get("limit", "")), self.request.GET.get("effect")
        if limit_id is not None:
            rows = rows.filter(limit_id=limit_id)
        if effect in Effect.values:
            rows = REFUSALS.filters().narrow(rows, "effect", effect)
        return rows

    def _sum(self, row: dict[str, Any], owner: str) -> dict[str, Any]:
        user, limit = value_of(row["user_id"]), str(row["limit_id"] or "")
        return {
            **row,
            "limit": f"{in_words(row['metric'], row['window'])} of {owner}",
            "address": self.address(user=user, limit=limit or None, before=None),
        }
