"""Media rules in the console: owners narrow, administrators allow, a refusal proposes its rule."""

from __future__ import annotations

import re
from typing import Any

import pytest
from api.api_client import Tenant, make_tenant
from django.test import Client
from django.utils import timezone
from pages import signed_in, text_of

from vinery_accounts.models import AuditEntry, Role, User
from vinery_accounts.services import changes
from vinery_serving.allowlist.denials import Count, Refused, store_denials
from vinery_serving.allowlist.models import MediaDenial, MediaFolder, MediaLimit, MediaRule
from vinery_serving.media.denials import Denial, DenialReason

pytestmark = pytest.mark.django_db

MEDIA = "/console/media/"
NEW_RULE = f"{MEDIA}rules/new/"
NUMBERS = {"max_bytes": 1000, "max_pixels": 1000, "max_redirects": 1, "timeout_s": "2.5"}


@pytest.fixture
def ours() -> Tenant:
    return make_tenant("ours")


@pytest.fixture
def root() -> Client:
    return signed_in(User.objects.create_superuser("root"))


@pytest.fixture
def owner(ours: Tenant, alice: User) -> Client:
    changes.set_role(alice, ours.organization, Role.OWNER)
    return signed_in(alice)


def rule_form(of: str, host: str = "a.example.org", **more: Any) -> dict[str, Any]:
    return {"of": of, "host": host, "schemes": ["https"], "is_active": "on", **NUMBERS, **more}


def values(text: str) -> dict[str, str]:
    """Return the values of the inputs of a page, by name."""
    inputs = re.findall(r"<input [^>]*>", text)
    found = {}
    for each in inputs:
        name, value = re.search(r'name="(.*?)"', each), re.search(r'value="(.*?)"', each)
        is_box = 'type="checkbox"' in each
        if name and (not is_box or "checked" in each):
            found[name[1]] = value[1] if value else ("on" if is_box else "")
    chosen = re.search(r'<option value="([^"]*)" selected', text)
    return {**found, **({"of": chosen[1]} if chosen else {})}


def refused(tenant: Tenant, reason: DenialReason = DenialReason.NO_RULE, **more: Any) -> int:
    """Store a refusal of a project's request, and return its id."""
    where = (
        {"scheme": "https", "host": "a.example.org", "port": 443} if "folder" not in more else {}
    )
    denial = Denial(reason, **{"level": "platform", **where, **more})
    now = timezone.now()
    whose = Refused(tenant.organization.pk, tenant.one.pk, denial)
    store_denials({whose: Count(3, now, now, denial.detail, denial.rule_id)})
    return MediaDenial.objects.latest("pk").pk


def test_without_a_rule_the_page_explains_that_nothing_is_allowed(
    root: Client, owner: Client
) -> None:
    assert "Nothing is allowed until a rule allows it." in text_of(root.get(MEDIA))
    assert "Allow the first host" in text_of(root.get(MEDIA))
    assert "Administrators write these rules" in text_of(owner.get(MEDIA))
    assert "Allow the first host" not in text_of(owner.get(MEDIA))
    assert "Nothing was refused." in text_of(owner.get(MEDIA))


def test_an_administrator_allows_a_host_which_is_shown_in_punycode(root: Client) -> None:
    form = rule_form("platform", "Bücher.example", ports="8443, 443", note="pictures")

    page = text_of(root.post(NEW_RULE, form, follow=True))

    assert "Saved. It is in force within a second." in page
    assert "xn--bcher-kva.example" in page
    assert "Nothing is allowed until" not in page
    rule = MediaRule.objects.get()
    assert (rule.scope, rule.ports, rule.timeout_s) == ("platform", [443, 8443], 2.5)
    assert AuditEntry.objects.get(action="media_rule.create").actor == "root"


def test_a_wrong_value_is_shown_at_its_field(root: Client) -> None:
    page = text_of(root.post(NEW_RULE, rule_form("platform", "*", ports="http")))
    assert "Give numbers from 1 to 65535" in page

    page = text_of(root.post(NEW_RULE, rule_form("platform", "*", max_bytes="")))
    assert "This field is required" in page

    page = text_of(root.post(NEW_RULE, rule_form("platform", "*", networks="10.0.0.1/8")))
    assert "would allow every host" in page
    assert "10.0.0.1/8 is no network" in page
    assert not MediaRule.objects.exists()


def test_an_owner_narrows_and_sees_where_a_rule_has_no_effect(
    owner: Client, root: Client, ours: Tenant
) -> None:
    page = text_of(owner.get(NEW_RULE))
    assert "The whole platform" not in page
    assert "Networks" not in page

    owner.post(NEW_RULE, rule_form(f"organization:{ours.organization.pk}"))
    assert "no effect: the platform does not allow it" in text_of(owner.get(MEDIA))

    root.post(NEW_RULE, rule_form("platform", "*.example.org"))
    assert "no effect" not in text_of(owner.get(MEDIA))


def test_an_owner_stores_no_rule_of_the_platform(owner: Client) -> None:
    page = text_of(owner.post(NEW_RULE, rule_form("platform")))

    assert "Choose an entry of the list." in page
    assert not MediaRule.objects.exists()


@pytest.mark.parametrize("role", [Role.ADMIN, Role.MEMBER])
def test_the_page_is_for_owners_and_administrators(ours: Tenant, bob: User, role: Role) -> None:
    changes.set_role(bob, ours.organization, role)
    client = signed_in(bob)

    assert client.get(MEDIA).status_code == 403
    assert client.get(NEW_RULE).status_code == 403


def test_a_rule_is_changed_and_removed(root: Client) -> None:
    rule = changes.add(MediaRule(host="a.example.org", networks=["10.0.0.0/8"]))
    address = f"{MEDIA}rules/{rule.pk}/"
    form = values(text_of(root.get(address)))
    assert (form["host"], form["networks"]) == ("a.example.org", "10.0.0.0/8")

    root.post(address, {**form, "schemes": ["https"], "host": "b.example.org"})
    rule.refresh_from_db()
    assert (rule.host, rule.networks) == ("b.example.org", ["10.0.0.0/8"])

    assert "Remove b.example.org?" in text_of(root.get(f"{address}remove/"))
    root.post(f"{address}remove/")
    assert not MediaRule.objects.exists()


def test_an_owner_changes_no_rule_of_the_platform(owner: Client) -> None:
    rule = changes.add(MediaRule(host="a.example.org"))

    assert owner.get(f"{MEDIA}rules/{rule.pk}/").status_code == 403
    assert owner.post(f"{MEDIA}rules/{rule.pk}/remove/").status_code == 403
    assert MediaRule.objects.exists()


def test_folders_and_numbers_have_forms_too(owner: Client, ours: Tenant) -> None:
    of = f"project:{ours.two.pk}"
    sizes = {"max_bytes": 1000, "max_pixels": 1000}
    owner.post(f"{MEDIA}folders/new/", {"of": of, "folder": "/srv/a", "is_active": "on", **sizes})
    owner.post(f"{MEDIA}limits/new/", {"of": of, "max_media": 2})

    page = text_of(owner.get(MEDIA))
    assert "/srv/a" in page
    assert MediaFolder.objects.get().project == MediaLimit.objects.get().project == ours.two
    number = MediaLimit.objects.get()
    owner.post(f"{MEDIA}limits/{number.pk}/", {"max_media": 5})
    number.refresh_from_db()
    assert number.max_media == 5


def test_a_refusal_is_shown_with_its_reason_and_allowed_with_one_click(
    root: Client, owner: Client, ours: Tenant
) -> None:
    number = refused(ours, port=8443)
    page = text_of(owner.get(MEDIA))
    assert "https://a.example.org:8443" in page
    assert "No rule of the platform allows it." in page
    assert "ask an administrator" in page

    address = f"{MEDIA}denials/{number}/allow/"
    assert address in text_of(root.get(MEDIA))
    text = text_of(root.get(address))
    assert "was refused 3 times" in text
    form = values(text)
    assert (form["of"], form["host"], form["ports"]) == ("platform", "a.example.org", "8443")
    root.post(address, {**form, "schemes": ["https"]})

    rule = MediaRule.objects.get()
    assert (rule.host, rule.ports, rule.schemes) == ("a.example.org", [8443], ["https"])
    assert "allowed now" in text_of(root.get(MEDIA))
    assert address not in text_of(root.get(MEDIA))


def test_an_owner_allows_what_their_organisation_refused(owner: Client, ours: Tenant) -> None:
    changes.add(MediaRule(host="a.example.org"))
    changes.add(MediaRule(host="b.example.org", organization=ours.organization))
    number = refused(ours, level="organization")

    form = values(text_of(owner.get(f"{MEDIA}denials/{number}/allow/")))
    assert form["of"] == f"organization:{ours.organization.pk}"
    owner.post(f"{MEDIA}denials/{number}/allow/", {**form, "schemes": ["https"]})

    assert "allowed now" in text_of(owner.get(MEDIA))


def test_the_address_of_a_refused_host_is_for_administrators_alone(
    root: Client, owner: Client, ours: Tenant
) -> None:
    rule = changes.add(MediaRule(host="a.example.org"))
    refused(ours, DenialReason.ADDRESS, rule_id=rule.pk, detail="10.1.2.3")

    assert "The address 10.1.2.3 is not public." in text_of(root.get(MEDIA))
    page = text_of(owner.get(MEDIA))
    assert "The address of the host is not public." in page
    assert "10.1.2.3" not in page


def test_an_owner_cannot_allow_what_the_platform_refused(owner: Client, ours: Tenant) -> None:
    address = f"{MEDIA}denials/{refused(ours)}/allow/"

    assert owner.get(address).status_code == 403
    assert owner.post(address, rule_form("platform")).status_code == 403
    assert not MediaRule.objects.exists()


@pytest.mark.parametrize(
    ("reason", "detail", "column", "value"),
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
    root: Client, ours: Tenant, reason: DenialReason, detail: str, column: str, value: Any
) -> None:
    rule = changes.add(
        MediaRule(
            host="a.example.org", content_types=["image/png"], max_bytes=1000, max_pixels=1000
        )
    )
    number = refused(ours, reason, rule_id=rule.pk, detail=detail)

    address = f"{MEDIA}denials/{number}/allow/"
    assert address in text_of(root.get(MEDIA))
    root.post(address, {**values(text_of(root.get(address))), "schemes": ["https"]})

    rule.refresh_from_db()
    assert getattr(rule, column) == value
    assert "allowed now" in text_of(root.get(MEDIA))
    assert address not in text_of(root.get(MEDIA))
    changes.change(rule, is_active=False)
    assert "allowed now" not in text_of(root.get(MEDIA))


def test_an_inactive_rule_is_proposed_again_with_the_scheme_and_port_of_the_refusal(
    root: Client, ours: Tenant
) -> None:
    changes.add(MediaRule(host="a.example.org", is_active=False))
    number = refused(ours, scheme="http", port=8080)

    address = f"{MEDIA}denials/{number}/allow/"
    text = text_of(root.get(address))
    root.post(address, {**values(text), "schemes": ["https", "http"]})

    rule = MediaRule.objects.get()
    assert (rule.is_active, rule.ports) == (True, [443, 8080])
    assert text.count("checked") == 3


def test_a_refused_folder_is_proposed(root: Client, ours: Tenant, tmp_path: Any) -> None:
    folder = str(tmp_path.resolve())
    number = refused(ours, folder=folder)

    address = f"{MEDIA}denials/{number}/allow/"
    root.post(address, values(text_of(root.get(address))))

    assert MediaFolder.objects.get().folder == folder
    assert "allowed now" in text_of(root.get(MEDIA))


def test_a_refusal_whose_rule_is_gone_has_no_button(root: Client, ours: Tenant) -> None:
    number = refused(ours, DenialReason.MAX_BYTES, rule_id=99)

    assert root.get(f"{MEDIA}denials/{number}/allow/").status_code == 404
    assert f"denials/{number}" not in text_of(root.get(MEDIA))


# -- The tester


def result_of(client: Client, what: str, of: str = "platform") -> str:
    return text_of(client.post(f"{MEDIA}test/", {"what": what, "of": of}))


def proposed(text: str) -> str:
    found = re.search(r'href="(/console/media/test/allow/[^"]*)"', text)
    assert found is not None
    return found[1]


@pytest.mark.django_db(transaction=True)
def test_the_tester_proposes_the_rule_that_would_allow_what_it_refused(root: Client) -> None:
    page = result_of(root, "https://a.example.org:8443/cat.png?secret=1")
    assert "Allow https://a.example.org:8443" in page
    address = proposed(page)
    text = text_of(root.get(address))
    assert "was refused. No rule of the platform allows it." in text
    form = values(text)
    assert (form["of"], form["host"], form["ports"]) == ("platform", "a.example.org", "8443")

    assert "Saved." in text_of(root.post(address, {**form, "schemes": ["https"]}, follow=True))

    rule = MediaRule.objects.get()
    assert (rule.host, rule.ports, rule.schemes) == ("a.example.org", [8443], ["https"])
    assert not MediaDenial.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_proposal_of_the_tester_is_for_its_user_alone(root: Client, owner: Client) -> None:
    address = proposed(result_of(root, "https://a.example.org/"))
    other = signed_in(User.objects.create_superuser("other"))

    for client in (owner, other):
        assert client.get(address).status_code == 404
    assert root.get(address.partition("?")[0]).status_code == 404
    assert root.get(f"{address[:-2]}xx").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_the_tester_names_who_can_allow_what_the_platform_refuses(
    owner: Client, ours: Tenant
) -> None:
    page = result_of(owner, "https://a.example.org/", f"project:{ours.one.pk}")

    assert "An administrator can allow https://a.example.org." in page
    assert "media/test/allow" not in page


@pytest.mark.django_db(transaction=True)
def test_what_no_rule_can_allow_has_no_proposal(root: Client) -> None:
    page = result_of(root, "ftp://a.example.org/cat.png")

    assert "is refused" in page
    assert "Allow ftp" not in page and "can allow" not in page
