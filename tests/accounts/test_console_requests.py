"""The log of requests: what it shows to whom, its pages, saved views, and one request's page."""

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from django.utils import timezone
from pages import page, sent, signed_in, store, used
from row_builders import captured, logged, stored_refusal

from vinery_accounts.access import changes
from vinery_accounts.captures.store import store_captured
from vinery_accounts.console import records
from vinery_accounts.models import Project, Role, SavedView, User
from vinery_accounts.usage.entries import Outcome

pytestmark = pytest.mark.django_db

BAD_FIELD: dict[str, Any] = {
    "outcome": Outcome.REJECTED,
    "http_status": 400,
    "error_code": "invalid_value",
    "error_message": "temperature must be at most 2.",
    "error_param": "temperature",
}


def listed(text: str) -> list[str]:
    """The ids of the requests of a page, in its order."""
    return re.findall(r'href="/console/requests/(\w+)/"><time', text)


def test_a_member_sees_the_own_requests_and_an_administrator_all(
    alice: User, bob: User, root: User
) -> None:
    store(used(alice, "r1", 9), used(alice, "r2", 5, **BAD_FIELD), used(bob, "r3", 7))

    text = page(signed_in(alice), "/console/requests/")
    assert listed(text) == ["r2", "r1"]
    assert "temperature must be at most 2." in text
    assert signed_in(alice).get("/console/requests/r3/").status_code == 404

    assert listed(page(signed_in(root), "/console/requests/")) == ["r2", "r3", "r1"]
    assert listed(page(signed_in(root), f"/console/requests/?user={bob.pk}")) == ["r3"]
    assert listed(page(signed_in(root), "/console/requests/?error=invalid_value")) == ["r2"]


def test_the_form_leaves_empty_fields_out_of_the_address(alice: User) -> None:
    store(used(alice, "r1", **BAD_FIELD), used(alice, "r2", client_request_id="mine"))
    client = signed_in(alice)

    response = client.get("/console/requests/?apply=1&model=&outcome=errors&period=7d&search=")
    errors = "outcome=rejected&outcome=failed&outcome=interrupted"
    assert response.headers["Location"] == f"/console/requests/?{errors}&period=7d"
    assert listed(page(client, response.headers["Location"])) == ["r1"]

    assert listed(page(client, "/console/requests/?search=mine")) == ["r2"]
    found = client.get("/console/requests/?search=r1")
    assert found.headers["Location"] == "/console/requests/r1/"


def test_older_requests_are_searched_in_parts(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_ROWS", 2)
    monkeypatch.setattr(records, "_MAX_SEARCHED", 3)
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    # Three of one moment, and newer ones.
    store(*(used(alice, f"r{number}", 9, **BAD_FIELD) for number in range(3)))
    store(*(used(alice, f"m{number}", 8 - number) for number in range(7)))
    client, address, pages = signed_in(alice), "/console/requests/?error=invalid_value", []

    while address:
        text = page(client, address)
        pages.append(listed(text))
        older = re.search(r'href="([^"]+)">(?:Search o|O)lder ones', text)
        address = older[1].replace("&amp;", "&") if older else ""

    assert [each for shown in pages for each in shown] == ["r2", "r1", "r0"]
    assert max(map(len, pages)) == 2
    assert [] in pages  # only the newest were searched


def test_a_refused_request_says_which_limit_and_which_field(alice: User) -> None:
    refused = {"outcome": Outcome.REJECTED, "http_status": 429, "error_code": "insufficient_quota"}
    whose = {"user_id": alice.pk, "username": alice.username}
    store(used(alice, "r1", **BAD_FIELD), used(alice, "r2", **refused))
    stored_refusal("r2", scope=f"user:{alice.pk}", amount=200, level=200, wait_s=60, **whose)
    client = signed_in(alice)

    text = page(client, "/console/requests/r1/")
    assert "<code>temperature</code>" in text
    assert "temperature must be at most 2." in text
    text = page(client, "/console/requests/r2/")
    assert "200 of 200 tokens per day of the user alice were used" in text
    assert "It would have been allowed 60 s later. That was <time" in text


def test_a_request_shows_the_parameters_that_the_client_sent(alice: User) -> None:
    parameters = {"stop": 2, "stream": True, "temperature": 0.7, "user": "…", "seed": 12345}
    store(used(alice, "r1", parameters=json.dumps(parameters)), used(alice, "r2"))
    client = signed_in(alice)

    text = page(client, "/console/requests/r1/")
    shown = dict(re.findall(r"<dt><code>(.+?)</code></dt><dd>(.+?)</dd>", text))
    assert shown == {name: str(value) for name, value in parameters.items()} | {"stream": "true"}
    assert "Parameters" not in page(client, "/console/requests/r2/")


def test_the_timeline_has_the_parts_of_the_time(alice: User) -> None:
    times = {"queue_ms": 20.0, "prefill_ms": 30.0, "first_token_ms": 60.0, "total_ms": 100.0}
    store(used(alice, "r1", **times))

    bars = re.findall(
        r' x="(.*?)" y="0" width="(.*?)"', page(signed_in(alice), "/console/requests/r1/")
    )

    assert bars == [("0.00", "10.00"), ("10.00", "20.00"), ("30.00", "30.00"), ("60.00", "40.00")]


def test_views_are_saved_replaced_and_removed_by_their_person(alice: User, bob: User) -> None:
    store(used(alice, "r1", **BAD_FIELD))
    client = signed_in(alice)
    for query in ("status=5xx", "status=4xx"):
        sent(client, "/console/requests/views/", {"name": " bad ", "query": query})

    (view,) = SavedView.objects.all()
    assert (view.name, view.query, view.user) == ("bad", "status=4xx", alice)
    text = page(client, "/console/requests/?status=4xx")
    assert re.search(r'href="\?status=4xx" aria-current="page">bad</a>', text)

    assert "bad" not in page(signed_in(bob), "/console/requests/")
    remove = {"remove": view.pk}
    assert signed_in(bob).post("/console/requests/views/", remove).status_code == 404
    assert "is not saved" in sent(client, "/console/requests/views/", {"name": "", "query": ""})
    assert "is removed" in sent(client, "/console/requests/views/", remove)
    assert not SavedView.objects.exists()


def test_kept_texts_are_read_on_demand_and_opened_in_the_playground(
    alice: User, search: Project
) -> None:
    changes.change(search, capture_hours=1)
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "The secret?"}]},
        ],
    }
    store_captured([captured(search, "r1", json.dumps(body).encode())])
    whose = {"project_id": search.pk, "organization_id": search.organization_id}
    store(used(alice, "r1", **whose))
    changes.set_role(alice, search.organization, Role.ADMIN)
    client = signed_in(alice)

    assert "The secret?" not in page(client, "/console/requests/r1/")
    text = page(client, "/console/requests/r1/?texts=read")
    assert "The secret?" in text
    assert logged(target_kind="capture") == ["capture.read"]
    found = re.search(r'href="/console/playground/#(.*?)"', text)
    assert found is not None
    shared = json.loads(unquote(found[1]))
    assert shared == {"request": body, "project": str(search.pk)}
