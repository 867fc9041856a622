"""Mails saved views of usage when their week or month has ended.

A process takes a view by moving `mailed_at` forward, which succeeds for one process only, and back
if the mail server refuses. If the process dies meanwhile, the mail is lost rather than sent twice.
"""

import logging
import smtplib
from datetime import datetime, time, timedelta

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from vinery_accounts.console.menu import zone_of
from vinery_accounts.console.page import OWN
from vinery_accounts.console.usage import Usage, UsageTable
from vinery_accounts.models import SavedView
from vinery_accounts.usage.periods import calendar_month

log = logging.getLogger(__name__)


def due_ids(now: datetime) -> list[int]:
    return [view.pk for view in _mailed() if _due(view, now)]


def mail(view_id: int, now: datetime) -> None:
    view = _mailed().filter(pk=view_id).first()
    if view is None or (period := _due(view, now)) is None:
        return
    message, same = _message(view, *period), SavedView.objects.filter(pk=view_id)
    if not same.filter(mailed_at=view.mailed_at).update(mailed_at=now, mail_error=""):
        return
    try:
        message.send()
    except (OSError, smtplib.SMTPException) as error:
        what = type(error).__name__
        log.warning("saved view %s is not mailed: %s", view_id, what)
        again = view.mailed_at if now - period[1] < timedelta(days=1) else now
        same.filter(mailed_at=now).update(mailed_at=again, mail_error=what)


def _mailed() -> QuerySet[SavedView]:
    views = SavedView.objects.filter(page=Usage.name, user__is_active=True).exclude(mail_every="")
    return (
        views.filter(user__is_email_confirmed=True).exclude(user__email="").select_related("user")
    )


def _due(view: SavedView, now: datetime) -> tuple[datetime, datetime] | None:
    # An hour after its end, all requests of a period are stored.
    here = (now - timedelta(hours=1)).astimezone(zone_of(_page(view, "").request))
    since, until = calendar_month(here, is_last=True)
    if view.mail_every == "week":
        until = datetime.combine(here - timedelta(days=here.weekday()), time(), here.tzinfo)
        since = until - timedelta(days=7)
    return None if view.mailed_at and view.mailed_at >= until else (since, until)


def _page(view: SavedView, query: str) -> UsageTable:
    page, request = UsageTable(), HttpRequest()
    request.path, request.user, request.GET = reverse("console:usage"), view.user, QueryDict(query)
    page.setup(request)
    return page


def _message(view: SavedView, since: datetime, until: datetime) -> EmailMessage:
    """Return the page for the period, with what the person may see now, as a text and a file."""
    query, last = QueryDict(view.query, mutable=True), until - timedelta(days=1)
    query.pop("granularity", None)  # of another length
    query["period"], query["zone"] = OWN, str(since.tzinfo)
    query["since"], query["until"] = (f"{each:%Y-%m-%dT%H:%M}" for each in (since, until))
    page = _page(view, query.urlencode())
    link = settings.VINERY_PUBLIC_URL + page.address()
    with timezone.override(since.tzinfo):
        context = page.get_context_data(saved=view, last=last, link=link)
        text = render_to_string("console/mailed_view.txt", context)
    subject, sheet = f"{view}: usage {since:%Y-%m-%d} to {last:%Y-%m-%d}", page.file(context)
    return EmailMessage(subject, text, to=[view.user.email], attachments=[(*sheet, "text/csv")])
