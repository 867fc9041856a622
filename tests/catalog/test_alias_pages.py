"""Administrators give models other names in the console."""

import pytest
from django.test import Client

from tests.catalog.conftest import LIST, error_at, page, text_of
from tests.tables import table
from vinery_serving.models.models import ModelAlias, ServedModel

pytestmark = pytest.mark.django_db
NEW = f"{LIST}aliases/new/"


def test_names_are_divided_changed_removed_and_added(root: Client, chat: ServedModel) -> None:
    other = ServedModel.objects.create(name="other", folder=chat.folder)
    root.post(NEW, {"name": "mixed", "targets": "chat=90, other=10"})
    alias = ModelAlias.objects.get()
    assert alias.targets == {"chat": 90, "other": 10}
    link = f"{LIST}aliases/{alias.pk}/"
    assert link in text_of(root.get(LIST))
    assert 'value="chat=90, other=10"' in text_of(root.get(link))

    root.post(link, {"name": "mixed", "targets": "other"})
    alias.refresh_from_db()
    assert alias.targets == {"other": 1}
    assert "Its models stay." in text_of(root.get(f"{link}remove/"))
    root.post(f"{link}remove/")
    assert not ModelAlias.objects.exists()
    assert ServedModel.objects.filter(pk=other.pk).exists()

    assert f"{NEW}?model=chat" in page(root, chat)
    assert 'name="targets" value="chat"' in text_of(root.get(NEW, {"model": "chat"}))

    text = text_of(root.post(NEW, {"name": "gpt-*", "targets": "chat"}, follow=True))
    assert "gpt-* is an alias now." in text
    assert ModelAlias.objects.get().targets == {"chat": 1}


@table(
    "name, targets, field, sentence",
    [
        ("chat", "chat", "name", "A model is served under this name."),
        ("x", "chat=many", "targets", "Write chat=90: a weight is a whole number."),
        ("x", "chat\0=1", "targets", "Use letters, digits"),
    ],
)
def test_a_wrong_value_is_explained_beside_its_field(
    root: Client, chat: ServedModel, name: str, targets: str, field: str, sentence: str
) -> None:
    text = text_of(root.post(NEW, {"name": name, "targets": targets}))
    assert sentence in error_at(text, field)
    assert not ModelAlias.objects.exists()
