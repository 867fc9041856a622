"""Who is no administrator sees names and states of models, and finds no page of one."""

import pytest
from django.test import Client

from tests.fakes.hub import FakeHub
from tests.models.hub.conftest import hub as hub
from tests.models.rows.conftest import ADD, LIST, address, text_of
from vinery_serving.models import job_requests
from vinery_serving.models.job_requests import Tune
from vinery_serving.models.job_rows import ModelJob
from vinery_serving.models.models import ModelAlias, ServedModel

pytestmark = pytest.mark.django_db
NEW = f"{LIST}aliases/new/"
# Of all forms.
FIELDS = {"name": "x", "folder": "/etc", "what": "/etc", "targets": "chat", "time_limit_s": "60"}
OF_A_MODEL = (
    *("settings/", "load/", "unload/", "remove/", "bench/", "tune/", "apply-tuning/", "self-test/"),
)


def test_a_user_finds_no_page_of_a_model_is_led_nowhere_and_changes_nothing(
    alice: Client, chat: ServedModel, hub: FakeHub
) -> None:
    alias = ModelAlias.objects.create(name="other", targets={"chat": 1})
    job = job_requests.tune(chat, Tune(time_limit_s=30))
    before = ServedModel.objects.values().get()
    of_alias, job_page = f"{LIST}aliases/{alias.pk}/", f"{LIST}jobs/{job.pk}/"

    hidden = [address(chat, rest) for rest in OF_A_MODEL]
    hidden += [f"{job_page}cancel/", f"{of_alias}remove/"]
    only_read = [f"{of}log/{rest}" for of in (address(chat), job_page) for rest in ("", "?after=")]
    only_read += [address(chat, rest) for rest in ("", "speed/", "history/")]
    refused = [NEW, of_alias, ADD, f"{ADD}folder/", f"{ADD}file/", f"{ADD}convert/"]
    refused.append(f"{ADD}hub/?q=acme/tiny")
    for paths, statuses in ((hidden, (404, 404)), (only_read, (404, 405)), (refused, (403, 403))):
        for path in paths:
            got = (alice.get(path).status_code, alice.post(path, FIELDS).status_code)
            assert got == statuses, path
    assert ServedModel.objects.values().get() == before
    assert ModelAlias.objects.values_list("targets").get() == ({"chat": 1},)
    assert ModelJob.objects.values_list("pk", "asked").get() == (job.pk, job.asked)
    assert hub.requests == []

    text = text_of(alice.get(LIST))
    assert "chat" in text and "Ready" in text
    for word in (address(chat), f"aliases/{alias.pk}", NEW, "Add a model"):
        assert word not in text
