"""Pages of records: alerts, the audit log, requests in quarantine and limit events."""

import json
from collections.abc import Sequence
from typing import Any, Final

from django import forms
from django.conf import settings
from django.db.models import Q
from django.template.defaultfilters import pluralize
from django.utils.html import format_html, format_html_join

from vinery_accounts.access.access import Access
from vinery_accounts.alerts.deliveries import lead, reachable
from vinery_accounts.console.page import at
from vinery_accounts.console.playground import link_of
from vinery_accounts.console.rows import Columns, Row, Rows, add_page
from vinery_accounts.console.words import reason
from vinery_accounts.models import AuditEntry, Capture, Currency, RefusedRequest, Webhook
from vinery_accounts.resources.alerts import ALERTS
from vinery_accounts.resources.base import Conflict, columns_of
from vinery_accounts.resources.forms import text_of
from vinery_accounts.resources.limits import owners_of
from vinery_accounts.resources.records import AUDIT, CAPTURES, REFUSALS, read_texts
from vinery_accounts.resources.stored import CHATS, CONVERSATIONS, RESPONSES, read_items, turns

_MAX_PEOPLE: Final = 20


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

    def columns(self) -> Columns:
        return {**self.resource.columns, "changed": _changes}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        found = self.listed().order_by("action").values_list("action", flat=True).distinct()
        choices = [("", "any"), *((each, each) for each in found)]
        context["form"].fields["action"].widget = forms.Select(choices=choices)
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
    add_page(StoredThread, each, f"{each.path}/<int:row_id>/", f"{each.path}-row")


@at("refusals/", "refusals")
class Refusals(Rows):
    """Limit events, each with a sentence about its reason."""

    resource = REFUSALS
    title = "Limit events"
    note = "What is left of each limit is under Limits."

    def may_open(self, row: RefusedRequest) -> bool:
        return False

    def columns(self) -> Columns:
        return columns_of("at=created_at user=username key=key_name model why request_id")

    def extras(self, rows: Sequence[RefusedRequest]) -> list[dict[str, str]]:
        owners = owners_of(self.access, [row.scope for row in rows])
        code = Currency.current()
        return [{"why": reason(row, owners[row.scope], code)} for row in rows]
