"""`vinery model check`, `vinery model pull` and `vinery catalog`."""

from tests.accounts.commands.conftest import Vinery
from tests.fakes.hub import FakeHub
from tests.models.hub.conftest import hub as hub
from tests.models.hub.models import TINY_CHAT, checkpoint_files
from tests.tables import table
from vinery_serving.models.job_rows import ModelJob
from vinery_serving.models.models import ServedModel


def test_search_prints_what_matches(vinery_: Vinery, hub: FakeHub) -> None:
    hub.add("acme/tiny", {}, tags=["openvino"], downloads=5)
    hub.add("acme/tiny-checkpoint", {})

    assert "checkpoint" not in vinery_("model", "search", "tiny").out
    assert "acme/tiny-checkpoint" in vinery_("model", "search", "tiny", "--all").out


def test_check_prints_the_verdict_and_its_figures(vinery_: Vinery, hub: FakeHub) -> None:
    hub.add_folder("acme/tiny", TINY_CHAT, cardData={"license": "mit"})

    result = vinery_("model", "check", "acme/tiny")

    assert result.status == 0
    assert "loads:    yes" in result.out
    assert "KV cache of 2,048 tokens" in result.out

    # The check of a model that will not load has status one.
    hub.add("acme/pickle", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    result = vinery_("model", "check", "acme/pickle", "--json")
    assert (result.status, '"answer": "no"' in result.out) == (1, True)


def test_pull_begins_a_job(vinery_: Vinery, hub: FakeHub) -> None:
    hub.add_folder("acme/tiny", TINY_CHAT)

    result = vinery_("model", "pull", "acme/tiny", "--yes", "--no-wait", "--no-serve")

    job = ModelJob.objects.get()
    assert f"Pulling tiny. Progress: vinery job show {job.pk}" in result.out
    assert job.model.is_loaded is False


def test_pull_adds_a_shipped_model_and_reports_a_missing_one(vinery_: Vinery, hub: FakeHub) -> None:
    result = vinery_("model", "pull", "tiny-chat", "--name", "mine", "--no-serve")

    assert "mine ships with Vinery" in result.out
    assert ServedModel.objects.get().folder == str(TINY_CHAT)

    result = vinery_("model", "pull", "acme/none", "--yes")

    assert (result.status, "has no repository acme/none" in result.err) == (1, True)


@table("word", ["--fits", "--json"])
def test_the_catalogue_is_listed(vinery_: Vinery, word: str) -> None:
    result = vinery_("catalog", "list", "--task", "chat", word)

    assert "tiny-chat" in result.out
    assert "bge-base-en" not in result.out


def test_the_catalogue_is_compared_with_a_hub(vinery_: Vinery, hub: FakeHub) -> None:
    result = vinery_("catalog", "check", "--endpoint", hub.endpoint)

    assert result.status == 1
    assert "has no repository OpenVINO/Qwen3-8B-int4-ov" in result.out


def test_a_checkpoint_is_pulled_for_a_chosen_precision(vinery_: Vinery, hub: FakeHub) -> None:
    hub.add("acme/tiny-checkpoint", checkpoint_files())
    hub.add_folder("acme/tiny", TINY_CHAT)
    pull = ("model", "pull", "--yes", "--no-wait", "--precision", "fp16")

    assert vinery_(*pull, "acme/tiny-checkpoint").status == 0
    assert ModelJob.objects.get().parameters["precision"] == "fp16"
    result = vinery_(*pull, "acme/tiny")
    assert (result.status, "A precision is for a checkpoint of a hub" in result.err) == (1, True)
