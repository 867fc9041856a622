"""Administrators find models of a hub and of the catalogue, judge and pull them in the console."""

import threading

import pytest
from django.test import Client

from tests.conftest import until
from tests.fakes.hub import FakeHub, Fault
from tests.models.hub.conftest import hub as hub
from tests.models.hub.models import checkpoint_files, openvino_files
from tests.models.rows.conftest import ADD, LIST, TINY_CHAT, text_of
from tests.tables import table
from vinery_accounts.access import changes
from vinery_accounts.models import Currency, ModelWeight
from vinery_serving.models import pulls, registry
from vinery_serving.models.hub.client import Hub, search
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.machine import Machine
from vinery_serving.models.job_rows import ModelJob
from vinery_serving.models.models import ServedModel

pytestmark = pytest.mark.django_db
HUB = f"{ADD}hub/"
NAME = "acme/tiny"
GB = 10**9


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that fits each model of the tests, whatever this one has."""
    large = Machine(memory_bytes=16 * GB, free_disk_bytes=100 * GB)
    monkeypatch.setattr(pulls, "machine_for", lambda _device: large)


@pytest.fixture
def tiny(hub: FakeHub) -> FakeHub:
    hub.add(
        NAME, openvino_files(), tags=["openvino"], downloads=1234, pipeline_tag="text-generation"
    )
    return hub


# -- Searching


def test_a_search_lists_what_matches_and_asked_checkpoints(root: Client, tiny: FakeHub) -> None:
    tiny.add("acme/other", openvino_files(), tags=["openvino"])

    text = text_of(root.get(HUB, {"q": "TINY"}))
    assert NAME in text and "1,234" in text
    assert "acme/other" not in text

    tiny.add("acme/tiny-checkpoint", checkpoint_files(), tags=["transformers"])
    assert "acme/tiny-checkpoint" not in text_of(root.get(HUB, {"q": "tiny"}))
    assert "acme/tiny-checkpoint" in text_of(root.get(HUB, {"q": "tiny", "all": "on"}))

    assert "No repository matches." in text_of(root.get(HUB, {"q": "nothing"}))

    assert "no revision v2" in text_of(root.get(HUB, {"q": NAME, "revision": "v2"}))
    text = text_of(root.get(HUB, {"q": NAME, "include": "*.gguf"}))
    assert "No file of acme/tiny matches *.gguf" in text


@table("body", [b"[{}]", b"[1]", b"{", b'[{"id": "a", "downloads": "many"}]'])
def test_an_answer_that_is_no_list_of_models_is_refused(tiny: FakeHub, body: bytes) -> None:
    tiny.fault("api", Fault(body=body))

    with pytest.raises(PullFailed, match="no list of models"):
        search(Hub(tiny.endpoint), "tiny")


# -- Questions


def test_questions_have_a_deadline_a_number_and_the_errors_of_the_asker() -> None:
    ended = threading.Event()
    with pytest.raises(HubUnavailable, match="did not answer within"):
        pulls.ask(ended.wait, within_s=0.01)
    ended.set()

    ended = threading.Event()
    for _ in range(pulls.MAX_QUESTIONS):
        with pytest.raises(HubUnavailable, match="did not answer"):
            pulls.ask(ended.wait, within_s=0.01)

    with pytest.raises(HubUnavailable, match="Too many"):
        pulls.ask(lambda: 1)
    ended.set()
    until(_may_ask)
    with pytest.raises(ValueError, match="x"):
        pulls.ask(lambda: int("x"))


def _may_ask() -> bool:
    try:
        return pulls.ask(lambda: True)
    except HubUnavailable:
        return False


# -- Checking and pulling


def test_a_name_is_judged_before_anything_is_fetched(root: Client, tiny: FakeHub) -> None:
    text = text_of(root.get(HUB, {"q": NAME}))
    assert "It will load." in text
    assert "Qwen3ForCausalLM" in text and "of 16.0 GB" in text
    assert 'name="name" value="tiny"' in text
    assert tiny.fetches("openvino_model.bin") == []

    form = {"name": "mine", "option.max_running": "many"}
    assert "max_running must be" in text_of(root.post(f"{HUB}?q={NAME}", form))

    tiny.add("acme/pickle", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    address = f"{HUB}?q=acme/pickle"
    text = text_of(root.get(address))
    assert "It will not load." in text and "Fetch and serve" not in text
    assert "can run any code" in text_of(root.post(address, {"name": "pickle"}))
    assert not ServedModel.objects.exists()


def test_a_pull_replaces_a_served_model_on_request_only(root: Client, tiny: FakeHub) -> None:
    registry.add_model(TINY_CHAT, name="mine")

    text = text_of(root.post(f"{HUB}?q={NAME}", {"name": "mine"}))
    assert "Another model is served under this name." in text
    assert not ModelJob.objects.exists()

    registry.add_model(TINY_CHAT, name="tiny")
    text = text_of(root.post(f"{HUB}?q={NAME}", {"name": ""}))  # that of the repository
    assert "Another model is served under this name." in text

    root.post(f"{HUB}?q={NAME}", {"name": "mine", "replaces": "on"})
    assert ModelJob.objects.get().model.folder == str(TINY_CHAT)

    form = {"name": "own", "is_loaded": "on", "option.max_running": "4"}
    response = root.post(f"{HUB}?q={NAME}&revision=main&device=CPU", form, follow=True)
    job = ModelJob.objects.get(model__name="own")
    assert job.model.options == {"max_running": 4}
    assert (job.kind, job.parameters["repository"]) == ("pull", NAME)
    assert response.redirect_chain[-1][0] == f"{LIST}{job.model_id}/"
    assert "Pulling own." in text_of(response)


# -- The catalogue


def test_the_catalogue_shows_what_fits_and_serves_shipped_models_with_a_click(root: Client) -> None:
    entry = next(each for each in pulls.catalogue.catalogue() if not each.shipped)
    text = text_of(root.get(ADD))
    assert "tiny-chat" in text
    assert "too large" not in text.replace("too large for this machine", "")
    assert "<span" in text_of(root.get(ADD, {"all": "on"}))
    assert ">tiny-vision<" not in text_of(root.get(ADD, {"task": "chat"})).replace("\n", "")

    response = root.post(ADD, {"name": "tiny-vision"}, follow=True)
    assert response.redirect_chain[-1][0] == f"{LIST}{ServedModel.objects.get().pk}/"
    ServedModel.objects.create(name="mine", source={"repository": entry.repository})
    text = text_of(root.get(ADD, {"all": "on"}))
    assert "tiny-vision is served as tiny-vision" in text
    assert f"{entry.name} is served as mine" in text
    assert 'value="tiny-vision"' not in text and 'value="tiny-chat"' in text
    again = text_of(root.post(ADD, {"name": "tiny-vision"}, follow=True))
    assert "A model is served as tiny-vision already." in again


def test_with_a_currency_a_new_model_and_one_without_prices_lead_to_its_prices(
    root: Client,
) -> None:
    address = "/console/model-weights/new/?model=tiny-vision"
    assert address not in text_of(root.post(ADD, {"name": "tiny-vision"}, follow=True))
    ServedModel.objects.all().delete()
    changes.add(Currency(code="EUR"))

    assert address in text_of(root.post(ADD, {"name": "tiny-vision"}, follow=True))
    assert 'value="tiny-vision"' in text_of(root.get(address))
    assert address in text_of(root.get(LIST))
    changes.add(ModelWeight(model="tiny-vision"))
    assert address not in text_of(root.get(LIST))
