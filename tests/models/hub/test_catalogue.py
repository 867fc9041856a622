"""The catalogue is whole, names what fits a machine, and can be compared with a hub."""

import re
from typing import Any

import pytest

from tests.fakes.hub import FakeHub, Fault
from tests.models.hub.models import TINY_CHAT
from vinery_serving.models.hub import catalogue as catalogue_module
from vinery_serving.models.hub.catalogue import CatalogueModel, catalogue, check, find
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import HubUnavailable
from vinery_serving.models.hub.machine import Machine

GB = 10**9
TASKS = {"chat", "completion", "vision", "embeddings", "rerank"}
_TINY: dict[str, Any] = {"name": "tiny", "task": "chat", "parameters": 0.005, "precision": "int8"}
_TINY |= {"size_gb": 0.0057, "licence": "apache-2.0", "context": 2048, "kv_kb": 2.6}
TINY = CatalogueModel(**_TINY, abilities=("tools",), repository="acme/tiny-chat")


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of one model."""
    monkeypatch.setattr(catalogue_module, "catalogue", lambda: (TINY,))


def test_every_entry_is_whole_with_its_own_name_and_size_also_the_shipped() -> None:
    for model in catalogue():
        assert model.task in TASKS
        assert set(model.abilities) <= {"tools", "thinking", "vision"}
        assert ("vision" in model.abilities) == (model.task == "vision")
        assert model.shipped or re.fullmatch(r"OpenVINO/[\w.-]+-ov", model.repository)
        assert model.size_gb > 0 and model.context > 0 and model.licence

    names = [each.name for each in catalogue()]

    assert len(set(names)) == len(names)
    assert {each.task for each in catalogue()} == TASKS

    least = {"int4": 0.4, "int8": 0.9, "fp16": 1.8}
    for model in catalogue():
        assert model.size_gb >= least[model.precision] * model.parameters

    shipped = {each.name: each for each in catalogue() if each.shipped}

    assert set(shipped) == {"tiny-chat", "tiny-vision", "tiny-embed", "tiny-rerank"}
    for name, model in shipped.items():
        size_bytes = sum(each.stat().st_size for each in (TINY_CHAT.parent / name).iterdir())
        assert size_bytes == pytest.approx(model.size_bytes, rel=0.3)


def test_small_machines_get_what_fits_and_a_name_finds_its_entry() -> None:
    small = Machine(memory_bytes=4 * GB, free_disk_bytes=100 * GB)
    fitting = {each.name for each in catalogue() if each.fits(small)}
    assert {"tiny-chat", "qwen3-0.6b", "bge-base-en"} <= fitting
    assert not {"qwen3-8b", "gpt-oss-20b"} & fitting

    full = Machine(memory_bytes=64 * GB, free_disk_bytes=0)
    assert all(each.shipped for each in catalogue() if each.fits(full))

    found = find("qwen3-8b")
    assert found and found.repository == "OpenVINO/Qwen3-8B-int4-ov"
    assert find("OpenVINO/Qwen3-8B-int4-ov") is None


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

    assert problem in checked["problem"]


@pytest.mark.usefixtures("one")
def test_an_entry_is_in_order_if_the_hub_has_it_and_reported_if_it_lacks_it(hub: FakeHub) -> None:
    (checked,) = check(Hub(hub.endpoint))
    assert "has no repository acme/tiny-chat" in checked["problem"]

    hub.add_folder("acme/tiny-chat", TINY_CHAT, cardData={"license": "apache-2.0"})
    (checked,) = check(Hub(hub.endpoint))
    assert (checked["name"], checked["problem"]) == ("tiny", "")

    hub.fault("api", Fault(status=500))
    with pytest.raises(HubUnavailable):
        list(check(Hub(hub.endpoint)))
