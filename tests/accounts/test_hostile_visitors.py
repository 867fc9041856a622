"""Hostile visitors of pages: redirects to elsewhere, forged forms, passwords guessed by other
spellings of a name, names that are HTML or have line ends."""

import re
from itertools import islice
from urllib.parse import urlencode

import pytest
from django.test import Client
from isolation_probes import answer, reads, routes, searches, searches_of_admin
from isolation_tenants import Tenant, fill
from pages import signed_in
from signin_helpers import person, sign_in, signed_in_name

from tests.tables import table
from vinery_accounts.models import User

pytestmark = pytest.mark.django_db

ELSEWHERE = [
    *("//evil.example/", "///evil.example/", "https:evil.example", "https:///evil.example"),
    *("/\\evil.example/", "\\\\evil.example", "\t//evil.example/", "javascript:alert(1)"),
    "https://testserver@evil.example/",
]
SPELLINGS = [
    *("ALICE", " alice", "alice ", "alice\t", "alice\0", "\u00a0alice", "al\u200bice"),
    *("al\u0131ce", "\uff41\uff4c\uff49\uff43\uff45"),
]
FIRST_ID = 5_000_001
# Without a slash, which names of organisations and projects may not have.
HTML = "\"'><script>alert(1)<img src=x onerror=alert(1)>"


@pytest.fixture
def alice() -> User:
    """Alice, who can sign in."""
    return person("alice")


@table("target", ELSEWHERE)
def test_sign_in_and_sign_out_lead_nowhere_else(client: Client, alice: User, target: str) -> None:
    assert sign_in(client, "alice", next=target).url.startswith("/console/")
    left = client.post("/accounts/logout/", {"next": target})

    assert left.status_code == 302
    assert re.match("/[a-z]", left.url) or left.url == "/"


def test_no_page_takes_a_form_without_its_token() -> None:
    visitor = Client(enforce_csrf_checks=True, raise_request_exception=False)
    visitor.force_login(User.objects.create_superuser("root"))
    pages = routes(("console/", "admin/", "accounts/"))

    answers = {page.path(FIRST_ID): visitor.post(page.path(FIRST_ID)) for page in pages}

    assert len(answers) > 100
    assert {path: each for path, each in answers.items() if each.status_code != 403} == {}


def test_no_page_of_the_admin_is_shown_to_an_owner_who_is_not_staff(acme: Tenant) -> None:
    client = signed_in(acme.users["owner"])
    pages = [page.path(FIRST_ID) for page in routes(("admin/",)) if "jsi18n" not in page.template]

    shown = {path for path in pages if client.get(path).status_code == 200}

    assert len(pages) > 60
    assert shown == set()


@pytest.fixture
def administrator() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root", first_name=HTML))
    return client


@pytest.mark.stores
@table("row_id", ["9" * 30, "-1", "word", "%00", "_5F"])
def test_no_page_fails_for_an_odd_id(administrator: Client, row_id: str) -> None:
    pages = [page for page in routes(("console/", "admin/", "accounts/", "api/")) if page.has_id]

    answers = {page.template: administrator.get(page.path(row_id)) for page in pages}

    assert len(pages) > 80
    assert [path for path, each in answers.items() if each.status_code >= 500] == []


@pytest.fixture
def acme() -> Tenant:
    return fill("acme", FIRST_ID)


@pytest.mark.stores
@table("value", ["9" * 30, "word", "\0"])
def test_no_page_fails_for_an_odd_query(administrator: Client, acme: Tenant, value: str) -> None:
    """Queries of lists with filters, and of forms with initial values."""
    names = ("model", "endpoint", "organization", "project", "user", "key", "before", "scope")
    query = urlencode(dict.fromkeys(names, value))
    forms = [page for page in routes(("console/", "admin/")) if not page.has_id]
    paths = [
        *(f"{page.path()}?{query}" for page in forms if "logout" not in page.template),
        *(probe.path for probe in searches_of_admin(value, value)),
    ]

    failed = [path for path in paths if administrator.get(path).status_code >= 500]

    assert len(paths) > 50
    assert failed == []


def test_no_spelling_of_a_name_gives_more_attempts(alice: User) -> None:
    for number in range(5):
        sign_in(Client(REMOTE_ADDR=f"198.51.100.{number}"), "alice", "wrong")

    headers = {"x-forwarded-for": "192.0.2.1", "forwarded": "for=192.0.2.1"}
    for number, spelling in enumerate(SPELLINGS):
        client = Client(REMOTE_ADDR=f"198.51.100.{77 + number}")
        sign_in(client, spelling, headers=headers)
        assert signed_in_name(client) == "", spelling


def test_names_are_text_on_every_page(administrator: Client) -> None:
    """Names of rows and in searches, on all pages of the URL configuration."""
    fill("acme", FIRST_ID, HTML)
    found = [
        route
        for route in routes(("console/", "admin/", "accounts/"))
        if not route.template.endswith(".csv")  # a download, which browsers do not render
    ]
    probes = [
        *reads(found, FIRST_ID),
        *searches(found, FIRST_ID, HTML),
        *islice(searches_of_admin(FIRST_ID, HTML), 3),  # all have the same form for it
    ]

    pages = [(probe.path, answer(administrator, probe)) for probe in probes]

    shown = [(path, text) for path, (status, text) in pages if status == 200]
    assert [path for path, (status, _) in pages if status >= 500] == []
    assert [path for path, text in shown if "<script>alert" in text or "<img src=x" in text] == []
    escaped = [path for path, text in shown if "&lt;script&gt;" in text]
    assert {path.split("/")[1] for path in escaped} == {"accounts", "admin", "console"}
    assert len(escaped) > 40
