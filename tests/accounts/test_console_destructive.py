"""What takes something away says so before, and says how to undo it or that nothing does."""

from typing import Any, Final

import pytest
from api.api_client import Keys
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import get_resolver
from pages import page, sent, text_of
from row_builders import stored_limit

from vinery_accounts.access import changes
from vinery_accounts.console.page import urlpatterns
from vinery_accounts.console.rows import ConfirmPage
from vinery_accounts.models import Project, User
from vinery_accounts.resources.base import registered

pytestmark = pytest.mark.django_db

TEXT: Final = ConfirmPage.text  # that of pages without one of their own


def test_each_action_has_a_page_that_asks_with_a_sentence_of_its_own() -> None:
    assert get_resolver().url_patterns  # imports all pages
    views = {each.name: each.callback for each in urlpatterns}
    texts: dict[str, Any] = {}
    for name, callback in views.items():
        if issubclass(callback.view_class, ConfirmPage) and callback.view_class.text is TEXT:
            view = callback.view_class(**callback.view_initkwargs)
            assert len(view.text().split()) > 3, name
            of = (view.does, view.resource.path)
            assert view.does != "remove" or texts.setdefault(view.text(), of) == of, name
    for path, resource in registered().items():
        wanted = {f"{path}-{verb}" for verb in {"remove"} & resource.verbs if resource.title}
        of_rows = [each for each in resource.actions if not each.is_of_list]
        wanted |= {f"{path}-{each.name}" for each in of_rows if resource.title}
        assert wanted <= views.keys()


def test_a_confirmation_counts_what_goes_or_stops_with_the_row(
    root: User, alice: User, new_key: Keys, client: Client
) -> None:
    key = new_key().key
    stored_limit("user", alice.pk)
    user, project = f"/console/users/{alice.pk}/", f"/console/projects/{key.project_id}/"

    asked = page(client, f"{user}remove/")
    assert f"Remove: {alice}" in asked and "csrfmiddlewaretoken" in asked
    assert "This also removes 1 limit, 1 API key and 1 membership." in asked
    for each in (user, project):
        asked = page(client, f"{each}deactivate/")
        assert "until it is activated again" in asked and "This stops 1 API key." in asked
    assert "This stops" not in page(client, f"{user}activate/")
    assert "is deactivated." in sent(client, f"{project}deactivate/")
    assert not Project.objects.get(pk=key.project_id).is_active
    assert "is active." in sent(client, f"{project}activate/")

    # What cannot be removed is not asked about.
    refused = text_of(client.get(f"{project}remove/", follow=True))
    assert "has keys, and revoked keys count too" in refused and "Remove</button>" not in refused
    with pytest.raises(ValidationError, match="has keys"):
        changes.remove(key.project)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(root)
    assert strict.post(f"{user}remove/").status_code == 403
