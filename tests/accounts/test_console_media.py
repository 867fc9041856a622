"""Media rules in the console: owners narrow, administrators allow, a refusal proposes its rule."""

import re
from pathlib import Path
from typing import Any

import pytest
from api.api_client import Tenant
from django.test import Client
from pages import page, sent, signed_in, statuses, text_of
from row_builders import stored_denial

from tests.tables import table
from vinery_accounts.models import AuditEntry, Role, User
from vinery_accounts.services import changes
from vinery_serving.allowlist.models import MediaDenial, MediaFolder, MediaLimit, MediaRule
from vinery_serving.media.denials import DenialReason

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


def refused(tenant: Tenant, **values: Any) -> str:
    """Store a refusal of a project's request, and return the address that allows it."""
    return f"{MEDIA}denials/{stored_denial(tenant.one, **values).pk}/allow/"


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


@table(
    "more, messages",
    [
        ({"ports": "http"}, ["Give whole numbers"]),
        ({"max_bytes": ""}, ["This field is required"]),
        ({"networks": "10.0.0.1/8"}, ["would allow every host", "10.0.0.1/8 is no network"]),
    ],
)
def test_a_wrong_value_is_shown(chief: Client, more: dict[str, Any], messages: list[str]) -> None:
    text = sent(chief, NEW_RULE, rule_form("platform", "*", **more))

    assert [each for each in messages if each not in text] == []
    assert not MediaRule.objects.exists()


def test_an_owner_narrows_sees_idle_rules_and_opens_none_of_the_platform(
    client: Client, chief: Client, ours: Tenant, bob: User
) -> None:
    text = page(client, NEW_RULE)
    assert "The whole platform" not in text
    assert "Networks" not in text
    assert "Choose an entry of the list." in sent(client, NEW_RULE, rule_form("platform"))
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

    assert "Remove b.example.org?" in page(chief, f"{address}remove/")
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


def test_a_refusal_is_allowed_with_one_click(chief: Client, client: Client, ours: Tenant) -> None:
    address = refused(ours, port=8443)
    for text in (
        "https://a.example.org:8443",
        "No rule of the platform allows it.",
        "ask an administrator",
    ):
        assert text in text_of(client.get(MEDIA))
    assert statuses(client, address, form=rule_form("platform")) == {403}

    assert address in page(chief, MEDIA)
    assert "was refused 3 times" in page(chief, address)
    form = values(chief, address)
    assert (form["of"], form["host"], form["ports"]) == ("platform", "a.example.org", "8443")
    chief.post(address, {**form, **HTTPS})

    assert parts(MediaRule.objects.get()) == ("a.example.org", [8443], ["https"])
    assert "allowed now" in page(chief, MEDIA)
    assert address not in page(chief, MEDIA)


def test_an_owner_allows_what_ours_refused(client: Client, ours: Tenant, chief: Client) -> None:
    changes.add(MediaRule(host="a.example.org"))
    changes.add(MediaRule(host="b.example.org", organization=ours.organization))
    address = refused(ours, level="organization")

    form = values(client, address)
    assert form["of"] == f"organization:{ours.organization.pk}"
    client.post(address, {**form, **HTTPS})

    assert "allowed now" in page(client, MEDIA)

    rule = MediaRule.objects.get(host="a.example.org", organization=None)
    refused(ours, reason=DenialReason.ADDRESS, rule_id=rule.pk, detail="10.1.2.3")
    assert "The address 10.1.2.3 is not public." in page(chief, MEDIA)
    text = page(client, MEDIA)
    assert "The address of the host is not public." in text
    assert "10.1.2.3" not in text


@table(
    "reason, detail, column, value",
    [
        (DenialReason.ADDRESS, "10.1.2.3", "networks", ["10.1.2.3/32"]),
        (DenialReason.CONTENT_TYPE, "image/bmp", "content_types", ["image/bmp", "image/png"]),
        (DenialReason.MAX_BYTES, "1000", "max_bytes", 2000),
        (DenialReason.MAX_PIXELS, "1000", "max_pixels", 2000),
        (DenialReason.MAX_REDIRECTS, "3", "max_redirects", 4),
        (DenialReason.TIMEOUT, "10", "timeout_s", 20.0),
    ],
)
def test_the_rule_that_refused_is_proposed_with_the_value_that_allows(
    chief: Client, ours: Tenant, reason: DenialReason, detail: str, column: str, value: Any
) -> None:
    MediaRule.objects.all().delete()
    MediaDenial.objects.all().delete()
    limits = {"content_types": ["image/png"], "max_bytes": 1000, "max_pixels": 1000}
    rule = changes.add(MediaRule(host="a.example.org", **limits))
    address = refused(ours, reason=reason, rule_id=rule.pk, detail=detail)

    assert address in page(chief, MEDIA)
    chief.post(address, {**values(chief, address), **HTTPS})

    rule.refresh_from_db()
    assert getattr(rule, column) == value
    text = page(chief, MEDIA)
    assert "allowed now" in text
    assert address not in text
    changes.change(rule, is_active=False)
    assert "allowed now" not in page(chief, MEDIA)


def test_an_inactive_rule_is_proposed_with_the_port_refused(chief: Client, ours: Tenant) -> None:
    changes.add(MediaRule(host="a.example.org", is_active=False))
    address = refused(ours, scheme="http", port=8080)

    assert page(chief, address).count("checked") == 3
    chief.post(address, {**values(chief, address), "schemes": ["https", "http"]})

    rule = MediaRule.objects.get()
    assert (rule.is_active, rule.ports) == (True, [443, 8080])


def test_a_folder_is_proposed_but_no_gone_rule(chief: Client, ours: Tenant, tmp_path: Path) -> None:
    folder = str(tmp_path.resolve())
    address = refused(ours, folder=folder)

    chief.post(address, values(chief, address))
    assert MediaFolder.objects.get().folder == folder
    assert "allowed now" in page(chief, MEDIA)

    address = refused(ours, reason=DenialReason.MAX_BYTES, rule_id=99)
    assert chief.get(address).status_code == 404
    assert address not in page(chief, MEDIA)


def result_of(client: Client, what: str, of: str = "platform") -> str:
    return sent(client, f"{MEDIA}test/", {"what": what, "of": of})


def proposed(text: str) -> str:
    found = re.search(r'href="(/console/media/test/allow/[^"]*)"', text)
    assert found is not None
    return found[1]


@pytest.mark.django_db(transaction=True)
def test_the_tester_proposes_what_allows_it(client: Client, chief: Client, ours: Tenant) -> None:
    text = result_of(client, "https://a.example.org/", f"project:{ours.one.pk}")
    assert "An administrator can allow https://a.example.org." in text
    assert "media/test/allow" not in text
    # What no rule can allow has no proposal.
    text = result_of(chief, "ftp://a.example.org/cat.png")
    assert "is refused" in text
    assert "Allow ftp" not in text and "can allow" not in text

    text = result_of(chief, "https://a.example.org:8443/cat.png?secret=1")
    assert "Allow https://a.example.org:8443" in text
    address = proposed(text)
    assert "was refused. No rule of the platform allows it." in text_of(chief.get(address))
    form = values(chief, address)
    assert (form["of"], form["host"], form["ports"]) == ("platform", "a.example.org", "8443")
    # It is for its user alone.
    for other in (client, signed_in(User.objects.create_superuser("other"))):
        assert other.get(address).status_code == 404
    for wrong in (address.partition("?")[0], f"{address[:-2]}xx"):
        assert chief.get(wrong).status_code == 404

    assert "Saved." in sent(chief, address, {**form, **HTTPS})

    assert parts(MediaRule.objects.get()) == ("a.example.org", [8443], ["https"])
    assert not MediaDenial.objects.exists()
