"""Pages of records: alerts, the audit log, captured and stored texts, limit events, and the log of
requests with its saved views."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone

from vinery_accounts.access.access import Access
from vinery_accounts.alerts.deliveries import lead, reachable
from vinery_accounts.base.errors import Outcome
from vinery_accounts.base.money import short_money
from vinery_accounts.console import words
from vinery_accounts.console.charts import duration
from vinery_accounts.console.page import ERRORS, Page, UsagePage, at
from vinery_accounts.console.playground import link_of
from vinery_accounts.console.rows import Columns, Row, Rows, add_page
from vinery_accounts.models import (
    Capture,
    Currency,
    RefusedRequest,
    SavedView,
    UsageRecord,
    Webhook,
)
from vinery_accounts.resources.alerts import ALERTS
from vinery_accounts.resources.base import Conflict, columns_of
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.limits import owners_of
from vinery_accounts.resources.records import AUDIT, CAPTURES, REFUSALS, read_texts
from vinery_accounts.resources.stored import CHATS, CONVERSATIONS, RESPONSES, read_items, turns
from vinery_accounts.usage.export import Selection, of_one_index, records, since_of_newest
from vinery_accounts.usage.filters import NO_STATUS, STATUS_CLASSES

_MAX_PEOPLE: Final = 20


@at("alerts/", "alerts")
class Alerts(Rows):
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


_CHAIN: Final = (
    "Entries are never changed or deleted, and each holds the hash of the one before: an "
    "administrator verifies the whole log with the command vinery audit verify."
)
add_page(Rows, AUDIT, "audit/", "audit", note=_CHAIN)


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
        return [{"why": words.reason(row, owners[row.scope], code)} for row in rows]


# -- Requests

_ROWS: Final = 50
# Of the requests that an index finds, a page searches so many for the other filters.
_MAX_SEARCHED: Final = 25_000
_MAX_VIEWS: Final = 50
_PLACE: Final = re.compile(r"(\d{1,17})\.(\d{1,18})")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Filters(forms.Form):
    """The filters that are typed or chosen. Links set those by a person, key or project."""

    use_required_attribute = False

    search = forms.CharField(
        label="Request id",
        widget=forms.TextInput({"type": "search", "title": "Ours, or x-client-request-id"}),
    )
    outcome = forms.ChoiceField(
        choices=[("", "any"), ("errors", "errors"), *((each.value, each.label) for each in Outcome)]
    )
    status = forms.ChoiceField(
        choices=[("", "any"), *((each, each) for each in STATUS_CLASSES), (NO_STATUS, "no answer")]
    )
    error = forms.CharField(label="Error code", max_length=64)
    model = forms.CharField(max_length=255)
    endpoint = forms.CharField(max_length=64)
    end_user = forms.CharField(label="End user", max_length=64)


@at("requests/", "requests")
class Requests(UsagePage):
    """The newest first; `before` continues before a request. The page shows what the export has.
    `search` is the client's own id: our id leads to the page of the request."""

    fields = (*Filters.base_fields, "before")

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "apply" in request.GET:  # the form was sent: links have no empty filters
            query = QueryDict(mutable=True)
            for name, values in request.GET.lists():
                if name != "apply" and (kept := [each for each in values if each]):
                    is_of_errors = (name, *kept) == ("outcome", "errors")
                    query.setlist(name, list(ERRORS) if is_of_errors else kept)
            return redirect(f"{request.path}?{query.urlencode()}")
        search = self._text("search")
        if search and self.access.rows(UsageRecord).filter(request_id=search).exists():
            return redirect("console:request", search)
        return super().get(request, *args, **kwargs)

    def _text(self, name: str) -> str:
        text: str = self.request.GET.get(name, "")
        return "" if "\0" in text else text

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        rows, older = self._page()
        is_of_errors = set(self.request.GET.getlist("outcome")) == set(ERRORS)
        shown = {name: self.request.GET.get(name) for name in Filters.base_fields}
        texts = {"search": "client's id", "error": "error code", "limited": "refused by a limit"}
        own = {name: text for name in texts if (text := self._text(name))}
        chips = [(f"{texts[name]}: {own[name]}", self.address(**{name: None})) for name in own]
        return context | {
            "rows": [(row, *words.ending(row)[:2]) for row in rows],
            "more": Filters(initial=shown | ({"outcome": "errors"} if is_of_errors else {})),
            "chips": [*context["chips"], *chips],
            "older": older and self.address(before=older),
            "is_searched": older and len(rows) < _ROWS,
            "max_searched": _MAX_SEARCHED,
            "kinds": [
                ("All", self._kind(None), not (context["chips"] or chips)),
                ("Errors only", self._kind(list(ERRORS)), is_of_errors and "limited" not in own),
                ("Refused by limits", self._kind(None, "yes"), own.get("limited") == "yes"),
            ],
        }

    def _kind(self, outcome: list[str] | None, limited: str | None = None) -> str:
        return self.address(outcome=outcome, limited=limited, before=None)

    def _page(self) -> tuple[list[UsageRecord], str]:
        """Return the requests of this page, and the place before which older ones may follow."""
        since, until, older, conditions = self.period.since, self.period.until, "", []
        # Times are bounds of an index, and each bound is given once: SQLite uses the first.
        if place := _PLACE.fullmatch(self._text("before")):
            moment = _EPOCH + int(place[1]) * _MICROSECOND
            until = min(until, moment + _MICROSECOND)
            conditions.append(Q(created_at__lt=moment) | Q(id__lt=int(place[2])))
        if client_id := self._text("search"):
            # As the condition of its index.
            conditions.append(Q(client_request_id=client_id) & ~Q(client_request_id=""))

        code = self._text("error")
        is_limited = Q(outcome=Outcome.REJECTED, http_status=HTTPStatus.TOO_MANY_REQUESTS.value)
        more = {"yes": is_limited, "no": ~is_limited}.get(self._text("limited"), Q())
        more &= Q(error_code=code) if code else Q()
        visible = self.access.visible()
        asked = Selection(visible=visible, since=since, until=until, filters=self.filters)
        if more or of_one_index(asked) != asked:
            found = since_of_newest(asked, _MAX_SEARCHED, *conditions)
            if found:
                asked, older = replace(asked, since=found), _place(found, 0)
        newest = records(asked).filter(more, *conditions).order_by("-created_at", "-id")
        rows = list(newest[: _ROWS + 1])
        if len(rows) > _ROWS:
            older = _place(rows[_ROWS - 1].created_at, rows[_ROWS - 1].pk)
        return rows[:_ROWS], older


def _place(moment: datetime, row_id: int) -> str:
    return f"{(moment - _EPOCH) // _MICROSECOND}.{row_id}"


@at("usage/views/", "usage-views", name="usage")
@at("requests/views/", "views")
class SavedViews(Page):
    """Stores the filters of a page under a name, in place of an earlier view of this name, or
    removes a view. Its filters stay in the address, so that it can be saved again."""

    http_method_names = ("post",)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        query, views = request.POST.get("query", ""), self.user.saved_views.filter(page=self.name)
        address, mail_every = reverse(f"console:{self.name}"), request.POST.get("mail_every", "")
        if "remove" in request.POST:
            view = get_object_or_404(views, pk=id_of(request.POST["remove"]))
            view.delete()
            messages.success(request, f"The view {view} is removed. To undo this, save it again.")
            return redirect(f"{address}?{view.query}")
        name = request.POST.get("name", "").strip()
        about = {"name": name, "query": query, "mail_every": mail_every}
        view = SavedView(user=self.user, page=self.name, **about)
        try:
            view.full_clean(validate_constraints=False)
            if views.exclude(name=view.name).count() >= _MAX_VIEWS:
                text = f"You have {_MAX_VIEWS} views here. Remove one of them first."
                raise ValidationError(text)
        except ValidationError as error:
            messages.error(request, f"The view is not saved. {' '.join(error.messages)}")
        else:
            values: dict[str, Any] = {"query": query}
            is_same = views.filter(name=view.name, mail_every=mail_every).exists()
            if "mail_every" in request.POST and not is_same:
                values |= {"mail_every": mail_every, "mailed_at": timezone.now()}
            views.update_or_create(values, user=self.user, page=self.name, name=view.name)
            messages.success(request, f"The view {view} is saved.")
        return redirect(f"{address}?{query}")


@at("requests/<slug:request_id>/", "request")
class OneRequest(Page):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        request_id = kwargs["request_id"]
        row = get_object_or_404(self.access.rows(UsageRecord), request_id=request_id)
        limits = list(REFUSALS.rows(self.access).filter(request_id=request_id).order_by("id"))
        owners = owners_of(self.access, [each.scope for each in limits])
        capture = CAPTURES.rows(self.access).filter(request_id=request_id).first()
        (kind, ending, why), code = words.ending(row), Currency.current()
        reasons = [words.reason(each, owners[each.scope], code) for each in limits]
        passes_at = [each.created_at + timedelta(seconds=each.wait_s or 0) for each in limits]
        return super().get_context_data(**kwargs) | {
            "row": row,
            "kind": kind,
            "ending": ending,
            "why": why,
            "limits": zip(limits, reasons, passes_at, strict=True),
            "spans": list(_spans(row)),
            "parameters": json.loads(row.parameters or "{}"),
            "cost": row.cost and short_money(row.cost, code),
            "pixels": words.pixels(row.num_media_pixels),
            "capture": capture,
            **(texts_of(capture) if capture and "texts" in self.request.GET else {}),
        }


def _spans(row: UsageRecord) -> Iterator[tuple[str, str, str, str, int]]:
    """Yield the parts of a request's time: a name, the duration in words, the left end and the
    width of a bar in hundredths, and the number of a colour."""
    total_ms = row.total_ms or 0
    queue_ms, prefill_ms = row.queue_ms or 0, row.prefill_ms or 0
    first_ms = total_ms if row.first_token_ms is None else row.first_token_ms
    parts = {
        "Reading and preparing": first_ms - queue_ms - prefill_ms,
        "Queue": queue_ms,
        "Prefill": prefill_ms,
        "First token to the end": total_ms - first_ms,
    }
    left = 0.0
    for colour, (name, ms) in enumerate(parts.items(), start=1):
        if total_ms and ms > 0:
            width = min(100 * ms / total_ms, 100 - left)
            yield name, duration(ms), f"{left:.2f}", f"{max(width, 0.3):.2f}", colour
            left += width
