"""The console's generated pages of a resource: list, new row, form, removal."""

import re

import pytest
from django.test import Client
from pages import page, sent

from vinery_accounts.models import Membership, ModelWeight, Role, User

pytestmark = pytest.mark.django_db

WEIGHTS = "/console/model-weights/"


def test_a_title_is_all_that_a_resource_needs(root: User, client: Client) -> None:
    text = page(client, WEIGHTS)
    assert "None yet: each token" in text
    assert re.search(rf'<a href="{WEIGHTS}" aria-current="page">.*Prices and weights</a>', text)
    assert f"{WEIGHTS}new/" in text
    form = {"model": "tiny-chat", "uncached": 1, "cached": 0.5, "output": 4, "image": 1}
    assert "Give a weight from 0" in sent(client, f"{WEIGHTS}new/", form | {"output": 100_001})

    assert "tiny-chat is created." in sent(client, f"{WEIGHTS}new/", form)

    row = ModelWeight.objects.get()
    opened = f"{WEIGHTS}{row.pk}/"
    assert opened in page(client, WEIGHTS)
    shown = page(client, opened)
    assert 'value="4.0"' in shown and f"{opened}remove/" in shown
    assert 'name="model"' not in shown  # only a new row takes it
    assert "tiny-chat is changed." in sent(client, opened, form | {"output": 8})
    row.refresh_from_db()
    assert (row.output, row.cached) == (8, 0.5)
    assert "Remove: tiny-chat" in page(client, f"{opened}remove/")
    assert "tiny-chat is removed." in sent(client, f"{opened}remove/")
    assert not ModelWeight.objects.exists()


def test_roles_hold_on_generated_pages_too(member: User, client: Client) -> None:
    row = ModelWeight.objects.create(model="tiny-chat")
    Membership.objects.update(role=Role.ADMIN)
    client.force_login(member)
    form = {"model": "other", "uncached": 1, "cached": 1, "output": 1, "image": 1}

    assert "<form" not in page(client, f"{WEIGHTS}{row.pk}/")
    for address in ("new/", f"{row.pk}/", f"{row.pk}/remove/"):
        assert client.post(WEIGHTS + address, form).status_code == 403
    assert [each.model for each in ModelWeight.objects.all()] == ["tiny-chat"]
