"""Saved views of usage come by mail when their week or month has ended, once, to those who may."""

import smtplib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from pages import page, sent, signed_in, store
from usage_builders import settlement

from tests.tables import table
from vinery_accounts import mailed_views, tasks
from vinery_accounts.models import SavedView, User

pytestmark = pytest.mark.django_db

# A Monday, which is the first of a month, too.
MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def saved(user: User, query: str = "", every: str = "week", **more: Any) -> SavedView:
    User.objects.filter(pk=user.pk).update(email="her@example.com", is_email_confirmed=True)
    more = {"name": "ours", "page": "usage", "mailed_at": MONDAY - timedelta(days=20)} | more
    return SavedView.objects.create(user=user, query=query, mail_every=every, **more)


def used_at(user: User, request_id: str, at: datetime, **more: Any) -> None:
    whose = {"user_id": user.pk, "username": user.username}
    store(settlement(request_id, started_at=at, **whose, **more))


ENDED = {"mailed_at": MONDAY - HOUR}
DONE = {"mailed_at": MONDAY}
NEW_YORK = {"time_zone": "America/New_York"}
TOKYO = {"time_zone": "Asia/Tokyo"}


@table(
    "every, columns, person, hours, is_due",
    [
        pytest.param("week", {}, {}, 2, True, id="a week"),
        pytest.param("week", ENDED, {}, 1, True, id="mailed before the end"),
        pytest.param("week", ENDED, {}, 0.5, False, id="perhaps not yet complete"),
        pytest.param("week", DONE, {}, 30, False, id="mailed after the end"),
        pytest.param("week", DONE, {}, 169, True, id="the next week"),
        pytest.param("month", DONE, {}, 169, False, id="the month goes on"),
        pytest.param("month", DONE, {}, 721, True, id="the next month"),
        pytest.param("month", ENDED, NEW_YORK, 4, False, id="later in New York"),
        pytest.param("month", ENDED, NEW_YORK, 5, True, id="ended in New York"),
        pytest.param("month", {"mailed_at": MONDAY - 10 * HOUR}, TOKYO, -8, True, id="Tokyo"),
        pytest.param("", {}, {}, 2, False, id="no mail"),
        pytest.param("week", {"page": "requests"}, {}, 2, False, id="another page"),
        pytest.param("week", {}, {"email": ""}, 2, False, id="no address"),
        pytest.param("week", {}, {"is_email_confirmed": False}, 2, False, id="unconfirmed"),
        pytest.param("week", {}, {"is_active": False}, 2, False, id="inactive"),
    ],
)
def test_a_view_is_due_when_its_week_or_month_has_ended_for_its_person(
    every: str, columns: Any, person: Any, hours: float, is_due: bool, alice: User
) -> None:
    SavedView.objects.all().delete()
    mail.outbox.clear()
    view, now = saved(alice, every=every, **columns), MONDAY + hours * HOUR
    User.objects.filter(pk=alice.pk).update(**{"is_active": True, "time_zone": ""} | person)

    assert mailed_views.due_ids(now) == [view.pk] * is_due
    for _ in range(2):  # never twice
        mailed_views.mail(view.pk, now)
        assert len(mail.outbox) == is_due
        assert mailed_views.due_ids(now) == []


def test_the_mail_has_the_week_with_the_rights_of_its_person(
    alice: User, bob: User, settings: Any
) -> None:
    settings.VINERY_PUBLIC_URL = "https://llm.example"
    for at, name in ((-HOUR, "of-sunday"), (-168 * HOUR, "of-monday"), (HOUR, "after")):
        used_at(alice, name, MONDAY + at, model=name)
    used_at(alice, "before", MONDAY - 169 * HOUR, model="before")
    used_at(bob, "other", MONDAY - HOUR, model="secret")
    # Filters by a key and a user that are gone, and by nonsense, beside a right one.
    view = saved(alice, "by=model&granularity=minute&period=1h&nonsense=1&by2=none")
    gone = saved(alice, "key=987654&user=123456&since=x", name="gone")

    mailed_views.mail(view.pk, MONDAY + 2 * HOUR)
    (message,) = mail.outbox
    assert isinstance(message, EmailMessage)
    assert message.to == ["her@example.com"]
    assert message.subject == "ours: usage 2026-05-25 to 2026-05-31"
    assert "Requests: 2\n" in message.body
    ((name, sheet, kind),) = message.attachments
    assert (name, kind) == ("usage-by-model.csv", "text/csv")
    for text in (message.body, sheet):
        assert "of-sunday" in text
        assert "of-monday" in text
        assert not any(each in text for each in ("after", "before", "secret"))
    (link,) = (line for line in message.body.splitlines() if line.startswith("https"))
    assert page(signed_in(alice), link.removeprefix("https://llm.example")).count("of-sunday")

    mailed_views.mail(gone.pk, MONDAY + 2 * HOUR)
    assert "Only key: number 987654" in mail.outbox[-1].body
    assert "There were no requests." in mail.outbox[-1].body


def test_a_refused_mail_is_tried_again_for_a_day(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = saved(alice)

    def refuse(_: EmailMessage) -> None:
        raise smtplib.SMTPServerDisconnected

    with monkeypatch.context() as away:
        away.setattr(EmailMessage, "send", refuse)
        mailed_views.mail(view.pk, MONDAY + 2 * HOUR)
    mailed_views.mail(view.pk, MONDAY + 3 * HOUR)
    assert len(mail.outbox) == 1

    monkeypatch.setattr(EmailMessage, "send", refuse)
    mailed_views.mail(view.pk, MONDAY + 200 * HOUR)
    assert mailed_views.due_ids(MONDAY + 201 * HOUR) == []


def test_a_person_chooses_at_a_saved_view_whether_it_is_mailed(alice: User, settings: Any) -> None:
    settings.VINERY_HAS_EMAIL = True
    client, views = signed_in(alice), "/console/usage/views/"
    named = {"name": "ours", "query": "by=user"}
    assert "is saved" in sent(client, views, named)
    assert "no confirmed e-mail address" in page(client, "/console/usage/")
    User.objects.update(email="her@example.com", is_email_confirmed=True)
    assert '<select name="mail_every">' in page(client, "/console/usage/")

    sent(client, views, named | {"mail_every": "week"})
    chosen = SavedView.objects.get()
    assert mailed_views.due_ids(datetime.now(UTC)) == [], "the first mail is of a whole period"
    text = sent(client, views, {"name": "ours", "query": "by=key"})
    assert 'value="week" selected' in text
    kept = SavedView.objects.get()
    assert (kept.mail_every, kept.mailed_at) == ("week", chosen.mailed_at)
    assert "is not saved" in sent(client, views, named | {"mail_every": "hour"})

    SavedView.objects.update(mailed_at=MONDAY - timedelta(days=90))
    settings.VINERY_HAS_EMAIL = False
    assert "This server sends no mail" in page(client, "/console/usage/")
    tasks.sweep_mailed_views()
    assert mail.outbox == []
