"""Every link of a page leads to a page, for each role: no link leads to "You may not do this"."""

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urljoin, urlsplit

import pytest
from django.test import Client
from isolation_tenants import OURS, OWN_ID, fill

from vinery_accounts.models import User

pytestmark = pytest.mark.django_db

_ROOT = "/console/"
# Signing out ends the walk; documents are no pages of the console.
_ELSEWHERE = re.compile(r"/(?!console/)|/console/.*\.csv|.*/log/?$|.*download")
_MAX_PAGES = 400


def test_every_link_leads_to_a_page_that_the_person_may_open() -> None:
    users = fill(OURS, OWN_ID).users
    users["outsider"] = User.objects.create_user("outsider")
    users["superuser"] = User.objects.create_superuser("superuser")
    bad: list[str] = []
    for role in ("owner", "project admin", "member", "outsider", "superuser"):
        client = Client(raise_request_exception=False)
        client.force_login(users[role])
        found = list(_walk(client))
        assert len(found) > 5
        bad += [f"{role} on {page}: {to} {status}" for to, page, status in found if status != 200]

    assert not bad, "\n".join(bad)


def _walk(client: Client) -> Iterator[tuple[str, str, int]]:
    """Yield each address, the page with the link to it, and the status."""
    seen, queue = {_kind(_ROOT)}, [(_ROOT, "")]
    while queue:
        address, found_on = queue.pop(0)
        response = client.get(address, follow=True)
        yield address, found_on, response.status_code
        if response.status_code != 200 or response.streaming:
            continue
        text = response.content.decode()
        for link in re.findall(r'<a [^>]*?href="([^"#]+)', text):
            there = urljoin(address, unescape(link))
            parts = urlsplit(there)
            if parts.netloc or _ELSEWHERE.match(parts.path) or _kind(there) in seen:
                continue
            seen.add(_kind(there))
            assert len(seen) < _MAX_PAGES
            queue.append((there, address))


def _kind(address: str) -> str:
    """Return the address without the values of its query: one page of a kind is enough."""
    parts = urlsplit(address)
    names = sorted({pair.partition("=")[0] for pair in parts.query.split("&")})
    return f"{parts.path}?{names}"
