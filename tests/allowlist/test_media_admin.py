"""Media rules in Django's admin."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from vinery_accounts.access import changes
from vinery_accounts.models import AuditEntry, Organization, Role, User
from vinery_serving.media.rules import Denial, DenialReason
from vinery_serving.media.tables.denials import Count, store_denials
from vinery_serving.media.tables.models import MediaDenial, MediaRule

ADD = "admin:media_mediarule_add"
CHANGE = "admin:media_mediarule_change"
FORM = {"host": "a.example.org", "schemes": ["https"], "ports": "443, 8443"}
FORM |= {"content_types": "image/png", "networks": "10.0.0.0/8", "max_bytes": "1000"}
FORM |= {"max_pixels": "1000", "max_redirects": "3", "timeout_s": "10", "is_active": "on"}


@pytest.fixture
def root(db: None, client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_an_administrator_adds_and_changes_a_rule_but_no_wrong_host(root: Client) -> None:
    response = root.post(reverse(ADD), {**FORM, "host": "*"})
    assert "would allow every host" in response.content.decode()
    assert not MediaRule.objects.exists()

    response = root.post(reverse(ADD), FORM, follow=True)
    assert response.status_code == 200
    rule = MediaRule.objects.get()
    assert (rule.ports, rule.networks, rule.scope) == ([443, 8443], ["10.0.0.0/8"], "platform")

    page = root.get(reverse(CHANGE, args=[rule.pk])).content.decode()
    assert 'value="443, 8443"' in page

    root.post(reverse(CHANGE, args=[rule.pk]), {**FORM, "ports": ""})
    rule.refresh_from_db()
    assert rule.ports == []
    assert AuditEntry.objects.filter(target_kind="media_rule").count() == 2


@pytest.fixture
def organization(db: None, client: Client) -> Organization:
    """Log in a member of staff who owns this organisation."""
    organization = changes.add(Organization(name="ours"))
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="media"))
    changes.set_role(staff, organization, Role.OWNER)
    client.force_login(staff)
    return organization


def test_owners_change_their_own_rules_alone(client: Client, organization: Organization) -> None:
    own = {**FORM, "networks": "", "organization": str(organization.pk)}
    client.post(reverse(ADD), own)
    assert MediaRule.objects.get().organization == organization

    page = client.post(reverse(ADD), {**FORM, "networks": ""}).content.decode()
    assert "Your role does not allow this" in page
    assert MediaRule.objects.count() == 1


def test_the_address_of_a_refused_host_is_for_administrators_alone(
    client: Client, organization: Organization
) -> None:
    now = timezone.now()
    url = {"scheme": "https", "host": "a.example", "port": 443}
    denial = Denial(DenialReason.ADDRESS, "platform", **url, detail="10.1.2.3")
    store_denials({(organization.pk, 0, denial): Count(2, now, now, denial)})
    number = MediaDenial.objects.get().pk
    pages = (
        reverse("admin:media_mediadenial_changelist"),
        reverse("admin:media_mediadenial_change", args=[number]),
    )

    texts = [client.get(page).content.decode() for page in pages]
    assert "The address of the host is not public." in texts[0]
    assert not any("10.1.2.3" in text for text in texts)
    client.force_login(User.objects.create_superuser("root"))
    for page in pages:
        assert "10.1.2.3" in client.get(page).content.decode()
