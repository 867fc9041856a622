"""Media rules in the console: owners narrow, administrators allow, a refusal links to its rule."""

import re
from html import unescape
from typing import Any

import pytest
from api.api_client import Tenant
from django.test import Client
from pages import page, sent, signed_in, text_of
from row_builders import stored_denial

from vinery_accounts.access import changes
from vinery_accounts.models import AuditEntry, Role, User
from vinery_serving.media.rules import DenialReason
from vinery_serving.media.tables.models import MediaFolder, MediaLimit, MediaRule

pytestmark = pytest.mark.django_db

MEDIA = "/console/media/"
NEW_RULE = f"{MEDIA}rules/new/"
NUMBERS = {"max_bytes": 1000, "max_pixels": 1000, "max_redirects": 1, "timeout_s": "2.5"}
HTTPS = {"schemes": ["https"]}


@pytest.fixture
def chief() -> Client:
    return signed_in(User.objects.create_superuser("root"))


@pytest.fixture
def client(owner: User) -> Client:
    """A client of the owner of ours."""
    return signed_in(owner)


def rule_form(of: str, host: str = "a.example.org", **more: Any) -> dict[str, Any]:
    return {"of": of, "host": host, "is_active": "on", **HTTPS, **NUMBERS, **more}


def values(client: Client, address: str) -> dict[str, str]:
    """Return the values of the inputs of a page, by name."""
    text, found = text_of(client.get(address)), {}
    for each in re.findall(r"<input [^>]*>", text):
        name, value = re.search(r'name="(.*?)"', each), re.search(r'value="(.*?)"', each)
        is_box = 'type="checkbox"' in each
        if name and (not is_box or "checked" in each):
            found[name[1]] = value[1] if value else ("on" if is_box else "")
    chosen = re.search(r'<option value="([^"]*)" selected', text)
    return {**found, **({"of": chosen[1]} if chosen else {})}


def link_in(text: str, label: str) -> str:
    """Return the address of the only link with this label or text."""
    (address,) = re.findall(rf'href="([^"]*)"(?: aria-label="{label}"|>{label}<)', text)
    return unescape(address)


def parts(rule: MediaRule) -> tuple[str, list[int], list[str]]:
    return rule.host, rule.ports, rule.schemes


def test_the_page_explains_that_no_rule_allows_a_host(chief: Client, client: Client) -> None:
    for_chief, for_owner = (text_of(each.get(MEDIA)) for each in (chief, client))

    assert "Nothing is allowed until a rule allows it." in for_chief
    assert "Allow the first host" in for_chief
    assert "Administrators write these rules" in for_owner
    assert "Allow the first host" not in for_owner
    assert "Nothing was refused." in for_owner

    text = sent(chief, NEW_RULE, rule_form("platform", "Bücher.example", ports="8443, 443"))

    assert "Saved. It is in force within a second." in text
    assert "xn--bcher-kva.example" in text
    assert "Nothing is allowed until" not in text
    rule = MediaRule.objects.get()
    assert (rule.scope, rule.ports, rule.timeout_s) == ("platform", [443, 8443], 2.5)
    assert AuditEntry.objects.get(action="media_rule.create").actor == "root"


def test_an_owner_narrows_sees_idle_rules_and_opens_none_of_the_platform(
    client: Client, chief: Client, ours: Tenant, bob: User
) -> None:
    text = page(client, NEW_RULE)
    assert "The whole platform" not in text
    assert "Networks" not in text
    assert "Select a valid choice." in sent(client, NEW_RULE, rule_form("platform"))
    assert not MediaRule.objects.exists()

    client.post(NEW_RULE, rule_form(f"organization:{ours.organization.pk}"))
    assert "no effect: the platform does not allow it" in text_of(client.get(MEDIA))

    chief.post(NEW_RULE, rule_form("platform", "*.example.org"))
    assert "no effect" not in text_of(client.get(MEDIA))

    for role in (Role.ADMIN, Role.MEMBER):
        changes.set_role(bob, ours.organization, role)
        assert [signed_in(bob).get(each).status_code for each in (MEDIA, NEW_RULE)] == [403, 403]
    address = f"{MEDIA}rules/{changes.add(MediaRule(host='a.example.org')).pk}/"

    assert client.get(address).status_code == 403
    assert client.post(f"{address}remove/").status_code == 403
    assert MediaRule.objects.filter(host="a.example.org", organization=None).exists()


def test_a_rule_is_changed_and_removed(chief: Client) -> None:
    rule = changes.add(MediaRule(host="a.example.org", networks=["10.0.0.0/8"]))
    address = f"{MEDIA}rules/{rule.pk}/"
    form = values(chief, address)
    assert (form["host"], form["networks"]) == ("a.example.org", "10.0.0.0/8")

    chief.post(address, {**form, **HTTPS, "host": "b.example.org"})
    rule.refresh_from_db()
    assert (rule.host, rule.networks) == ("b.example.org", ["10.0.0.0/8"])

    assert "Remove: b.example.org" in page(chief, f"{address}remove/")
    chief.post(f"{address}remove/")
    assert not MediaRule.objects.exists()


def test_folders_and_numbers_have_forms_too(client: Client, ours: Tenant) -> None:
    of = {"of": f"project:{ours.two.pk}"}
    folder = {"folder": "/srv/a", "is_active": "on", "max_bytes": 1000, "max_pixels": 1000}
    client.post(f"{MEDIA}folders/new/", of | folder)
    client.post(f"{MEDIA}limits/new/", of | {"max_media": 2})

    assert "/srv/a" in page(client, MEDIA)
    assert MediaFolder.objects.get().project == MediaLimit.objects.get().project == ours.two
    number = MediaLimit.objects.get()
    client.post(f"{MEDIA}limits/{number.pk}/", {"max_media": 5})
    number.refresh_from_db()
    assert number.max_media == 5


def test_a_refusal_links_to_the_form_of_the_rule_that_would_allow_it(
    chief: Client, client: Client, ours: Tenant
) -> None:
    stored_denial(ours.one, port=8443)
    for text in (
        "https://a.example.org:8443",
        "no rule allows it (platform)",
        "ask an administrator",
    ):
        assert text in text_of(client.get(MEDIA))

    address = link_in(page(chief, MEDIA), "Allow: https://a.example.org:8443")
    form = values(chief, address)
    assert (form["of"], form["host"], form["ports"]) == ("platform", "a.example.org", "8443")
    chief.post(address, {**form, **HTTPS})

    assert parts(MediaRule.objects.get()) == ("a.example.org", [8443], ["https"])
    assert "allowed now" in page(chief, MEDIA)
    assert "Allow: " not in page(chief, MEDIA)

    form = values(chief, f"{NEW_RULE}?host=b.example&networks=0.0.0.0/0&max_bytes=1&of=other")
    assert (form["host"], form["networks"], form["max_bytes"]) == ("b.example", "", "20971520")


def test_an_owner_allows_what_ours_refused_and_a_stored_rule_is_linked(
    client: Client, ours: Tenant, chief: Client
) -> None:
    rule = changes.add(MediaRule(host="a.example.org"))
    changes.add(MediaRule(host="b.example.org", organization=ours.organization))
    stored_denial(ours.one, level="organization")

    address = link_in(page(client, MEDIA), "Allow: https://a.example.org")
    form = values(client, address)
    assert form["of"] == f"organization:{ours.organization.pk}"
    client.post(address, {**form, **HTTPS})

    assert "allowed now" in page(client, MEDIA)

    stored_denial(ours.one, reason=DenialReason.ADDRESS, rule_id=rule.pk, detail="10.1.2.3")
    text = page(chief, MEDIA)
    assert "the address is not public (platform, 10.1.2.3)" in text
    address = link_in(text, "Change the rule: https://a.example.org")
    assert address == f"{MEDIA}rules/{rule.pk}/"
    text = page(client, MEDIA)
    assert "the address is not public (platform)" in text
    assert "10.1.2.3" not in text
