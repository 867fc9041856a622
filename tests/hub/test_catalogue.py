"""The catalogue is whole, names what fits a machine, and can be compared with a hub."""

import re

import pytest

from tests.fakes.hub import FakeHub, Fault
from tests.hub.models import TINY_CHAT
from vinery_serving.hub import catalogue as catalogue_module
from vinery_serving.hub.catalogue import CatalogueModel, catalogue, check, find
from vinery_serving.hub.client import Hub
from vinery_serving.hub.errors import HubUnavailable
from vinery_serving.hub.machine import Machine

GB = 10**9
TASKS = {"chat", "completion", "vision", "embeddings", "rerank"}
TINY = CatalogueModel(
    name="tiny",
    task="chat",
    parameters=0.005,
    precision="int8",
    size_gb=0.0057,
    licence="apache-2.0",
    context=2048,
    kv_kb=2.6,
    abilities=("tools",),
    repository="acme/tiny-chat",
)


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of one model."""
    monkeypatch.setattr(catalogue_module, "catalogue", lambda: (TINY,))


def test_every_entry_is_whole() -> None:
    for model in catalogue():
        assert model.task in TASKS
        assert set(model.abilities) <= {"tools", "thinking", "vision"}
        assert ("vision" in model.abilities) == (model.task == "vision")
        assert model.shipped or re.fullmatch(r"OpenVINO/[\w.-]+-ov", model.repository)
        assert model.size_gb > 0 and model.context > 0 and model.licence


def test_names_are_unique_and_every_task_has_a_model() -> None:
    names = [each.name for each in catalogue()]

    assert len(set(names)) == len(names)
    assert {each.task for each in catalogue()} == TASKS


def test_sizes_agree_with_parameters_and_precision() -> None:
    least = {"int4": 0.4, "int8": 0.9, "fp16": 1.8}
    for model in catalogue():
        assert model.size_gb >= least[model.precision] * model.parameters


def test_the_shipped_models_are_among_them() -> None:
    shipped = {each.name: each for each in catalogue() if each.shipped}

    assert set(shipped) == {"tiny-chat", "tiny-vision", "tiny-embed", "tiny-rerank"}
    for name, model in shipped.items():
        size_bytes = sum(each.stat().st_size for each in (TINY_CHAT.parent / name).iterdir())
        assert size_bytes == pytest.approx(model.size_bytes, rel=0.3)


def test_a_small_machine_gets_the_small_models() -> None:
    small = Machine(memory_bytes=4 * GB, free_disk_bytes=100 * GB)
    fitting = {each.name for each in catalogue() if each.fits(small)}

    assert {"tiny-chat", "qwen3-0.6b", "bge-base-en"} <= fitting
    assert not {"qwen3-8b", "gpt-oss-20b"} & fitting


def test_a_full_disk_leaves_the_shipped_ones() -> None:
    full = Machine(memory_bytes=64 * GB, free_disk_bytes=0)

    assert all(each.shipped for each in catalogue() if each.fits(full))


def test_a_name_finds_its_entry() -> None:
    found = find("qwen3-8b")

    assert found and found.repository == "OpenVINO/Qwen3-8B-int4-ov"
    assert find("OpenVINO/Qwen3-8B-int4-ov") is None


@pytest.mark.usefixtures("one")
def test_an_entry_that_the_hub_has_is_in_order(hub: FakeHub) -> None:
    hub.add_folder("acme/tiny-chat", TINY_CHAT, cardData={"license": "apache-2.0"})

    (checked,) = check(Hub(hub.endpoint))

    assert (checked.name, checked.problem) == ("tiny", "")


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize(
    ("files", "licence", "problem"),
    [
        ({"openvino_model.xml": b"x", "openvino_model.bin": b"x"}, "apache-2.0", "names 0.0057"),
        ({"model.safetensors": b"x"}, "apache-2.0", "no OpenVINO model"),
        ({}, "mit", "Its licence is mit"),
    ],
)
def test_an_entry_that_differs_is_reported(
    hub: FakeHub, files: dict[str, bytes], licence: str, problem: str
) -> None:
    if files:
        hub.add("acme/tiny-chat", files, cardData={"license": licence})
    else:
        hub.add_folder("acme/tiny-chat", TINY_CHAT, cardData={"license": licence})

    (checked,) = check(Hub(hub.endpoint))

    assert problem in checked.problem


@pytest.mark.usefixtures("one")
def test_an_entry_that_the_hub_lacks_is_reported(hub: FakeHub) -> None:
    (checked,) = check(Hub(hub.endpoint))

    assert "has no repository acme/tiny-chat" in checked.problem


@pytest.mark.usefixtures("one")
def test_a_hub_that_does_not_answer_ends_the_check(hub: FakeHub) -> None:
    hub.add_folder("acme/tiny-chat", TINY_CHAT)
    hub.fault("api", Fault(status=500))

    with pytest.raises(HubUnavailable):
        list(check(Hub(hub.endpoint)))
