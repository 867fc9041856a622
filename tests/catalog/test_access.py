"""Who is no administrator sees names and states of models, and finds no page of one."""

import pytest
from django.test import Client

from tests.catalog.conftest import ADD, LIST, address, text_of
from tests.fakes.hub import FakeHub
from tests.hub.conftest import hub as hub
from vinery_serving.catalog import speed_requests
from vinery_serving.catalog.aliases import ModelAlias
from vinery_serving.catalog.jobs import ModelJob
from vinery_serving.catalog.models import ServedModel

pytestmark = pytest.mark.django_db
NEW = f"{LIST}aliases/new/"
# Of all forms.
FIELDS = {"name": "x", "folder": "/etc", "what": "/etc", "targets": "chat", "time_limit_s": "60"}
OF_A_MODEL = ("", "load/", "unload/", "remove/", "bench/", "tune/", "apply-tuning/", "self-test/")


def test_a_user_finds_no_page_of_a_model_is_led_nowhere_and_changes_nothing(
    alice: Client, chat: ServedModel, hub: FakeHub
) -> None:
    alias = ModelAlias.objects.create(name="other", targets={"chat": 1})
    job = speed_requests.begin_tuning(chat, time_limit_s=30)
    before = ServedModel.objects.values().get()
    of_alias = f"{LIST}aliases/{alias.pk}/"

    for path in (
        *(address(chat, rest) for rest in OF_A_MODEL),
        *(address(chat, "log/"), address(chat, "log/?after=")),
        *(f"{LIST}jobs/{job.pk}/{rest}" for rest in ("cancel/", "log/", "log/?after=")),
        *(NEW, of_alias, f"{of_alias}remove/"),
        *(ADD, f"{ADD}folder/", f"{ADD}file/", f"{ADD}convert/", f"{ADD}hub/?q=acme/tiny"),
    ):
        assert alice.get(path).status_code in (403, 404), path
        assert alice.post(path, FIELDS).status_code in (403, 404, 405), path

    assert ServedModel.objects.values().get() == before
    assert ModelAlias.objects.values_list("targets").get() == ({"chat": 1},)
    assert ModelJob.objects.values_list("pk", "asked").get() == (job.pk, job.asked)
    assert hub.requests == []

    text = text_of(alice.get(LIST))

    assert "chat" in text and "Ready" in text
    for hidden in (address(chat), f"aliases/{alias.pk}", NEW, "Add a model"):
        assert hidden not in text
