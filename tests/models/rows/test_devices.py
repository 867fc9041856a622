"""Names of devices are checked against the devices that the node has found."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.models.rows.conftest import text_of
from tests.tables import table
from vinery_serving.models import devices, engine_work
from vinery_serving.models.devices import Device, DeviceList, check_device
from vinery_serving.models.engine_status import EngineState, EngineStatus
from vinery_serving.models.host_rows import Host, Placement
from vinery_serving.models.models import ServedModel

PAGE = "/console/devices/"
HOSTS = "/console/hosts/"

CPU = Device("CPU", "Intel Core Ultra 7", 32 * 2**30)
GPU = Device("GPU", "Intel Arc", 16 * 2**30, driver="32.0.101")
GPU_0, GPU_1 = Device("GPU.0", "Intel iGPU"), Device("GPU.1", "Intel Arc B580")


def known(*found: Device) -> DeviceList:
    return DeviceList(found, 0.0)


ONE_CPU, ONE_GPU, TWO_GPUS = known(CPU), known(CPU, GPU), known(CPU, GPU_0, GPU_1)
OF_ANY_MACHINE = ("CPU", "AUTO", "AUTO:CPU", "AUTO:-NPU", "AUTO:-NPU,CPU", "HETERO:CPU")


@table(
    "found, text",
    [
        *((ONE_CPU, text) for text in (*OF_ANY_MACHINE, "BATCH:CPU", "BATCH:CPU(4)")),
        # A single GPU has two names; of several GPUs, the first has two.
        *((ONE_GPU, text) for text in ("GPU", "GPU.0", "AUTO:GPU,CPU", "HETERO:GPU.0, CPU")),
        (ONE_GPU, "BATCH:GPU"),
        *((TWO_GPUS, text) for text in ("GPU", "GPU.0", "GPU.1", "AUTO:GPU.1,GPU.0")),
        # Until the devices are known, there may be any.
        *((None, text) for text in ("GPU", "AUTO:GPU,NPU", "XYZ")),
    ],
)
def test_a_device_of_the_machine_is_accepted(found: DeviceList | None, text: str) -> None:
    check_device(text, found)


@table(
    "text, missing",
    [
        *(("GPU", "GPU"), ("GPU.1", "GPU.1"), ("cpu", "cpu"), ("CPU.0", "CPU.0")),
        *(("AUTO:GPU,CPU", "GPU"), ("HETERO:CPU,GPU.1", "GPU.1"), ("BATCH:GPU(4)", "GPU")),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(text: str, missing: str) -> None:
    with pytest.raises(ValueError, match="There is no device") as error:
        check_device(text, ONE_CPU)

    assert str(error.value) == (
        f"There is no device {missing} on this machine. Devices: CPU (Intel Core Ultra 7). After "
        "a change, `vinery devices` looks for them again."
    )


NO_DEVICE = r"is not a device\. Write a name such as CPU"


@table(
    "text, sentence",
    [
        *((text, NO_DEVICE) for text in ("", "AUTO:", "AUTO:,", "HETERO:CPU,", "GPU 1", "CPU;GPU")),
        *(("é", NO_DEVICE), ("HETERO", "HETERO needs devices, such as HETERO:GPU")),
        ("BATCH", "BATCH needs devices, such as BATCH:GPU"),
        ("MULTI:GPU,CPU", "Write AUTO:GPU,CPU to let OpenVINO choose a device"),
    ],
)
@table("found", [None, ONE_CPU])
def test_what_cannot_be_a_device_is_refused_even_when_none_is_known(
    found: DeviceList | None, text: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_device(text, found)


def test_found_devices_are_read_by_others_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    assert devices.read(tmp_path) is None

    devices.write(tmp_path, [CPU, GPU])
    read = devices.read(tmp_path)
    assert read is not None
    assert read.devices == (CPU, GPU)
    assert read.found_at > 0
    assert [path.name for path in tmp_path.iterdir()] == ["devices.json"]

    (tmp_path / "devices.json").write_text('{"devices": [{"name"')
    assert devices.read(tmp_path) is None


# -- The page of the console


def test_the_page_of_devices_shows_each_with_its_models(
    root: Client,
    alice: Client,
    chat: ServedModel,
    tmp_path: Path,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.VINERY_RUN_DIR = tmp_path
    assert alice.get(PAGE).status_code == 403
    text = text_of(root.get(PAGE))
    assert "The node has not reported its devices yet." in text and ">chat</code>" in text

    devices.write(tmp_path, [CPU, GPU])
    ServedModel.objects.create(name="large", folder="/large", device="AUTO:GPU,CPU")
    ServedModel.objects.create(name="gone", folder="/gone", device="NPU")
    for name, state in (("large", "ready"), ("gone", "failed")):
        model = ServedModel.objects.get(name=name)
        digest = model.settings_digest
        EngineStatus.objects.create(
            model=model, state=state, needed_bytes=3 * 10**9, settings_digest=digest
        )
    EngineStatus.objects.filter(model=chat).update(pid=1)
    monkeypatch.setattr(engine_work, "_memory_bytes", lambda _pid: 200_000_000)

    text = text_of(root.get(PAGE))
    on_cpu, on_gpu, others = re.findall(r"<section.+?</section>", text, re.DOTALL)
    assert "Intel Core Ultra 7" in on_cpu and ">chat</code>" in on_cpu and "cores" in on_cpu
    assert "34.4 GB, of which models have 200 MB" in on_cpu
    assert "32.0.101" in on_gpu and ">large</code>" in on_gpu and "AUTO:GPU,CPU" in on_gpu
    assert "17.2 GB, of which models have 3 GB" in on_gpu and "expected" in on_gpu
    assert ">gone</code>" in others and "3 GB" not in others


# -- Hosts


def test_the_page_of_hosts_shows_their_memory_and_drains_and_removes_them(
    root: Client, alice: Client, chat: ServedModel
) -> None:
    moon = Host.objects.create(name="moon", devices={"CPU": 8 * 10**9, "GPU": None})
    Placement.objects.create(
        model=chat, replica=0, host=moon, device="CPU", state="ready", needed_bytes=2 * 10**9
    )
    host = f"{HOSTS}{moon.pk}/"
    assert {alice.get(each).status_code for each in (HOSTS, host, f"{host}drain/")} == {403}

    text = text_of(root.get(HOSTS))
    assert "CPU: 2 GB of 8 GB, GPU: 0 B" in text and "chat (ready)" in text
    assert f'href="{host}"' in text and f'<a href="{HOSTS}" aria-current="page">' in text
    assert re.findall(rf'href="{host}(.+?)/"', text_of(root.get(host))) == ["drain", "remove"]
    assert "moon is being drained." in text_of(root.post(f"{host}drain/", follow=True))
    assert re.findall(rf'href="{host}(.+?)/"', text_of(root.get(host))) == ["resume", "remove"]
    assert "moon still runs: drain it" in text_of(root.post(f"{host}remove/", follow=True))
    Host.objects.update(is_gone=True)
    assert "moon is removed." in text_of(root.post(f"{host}remove/", follow=True))
    assert not Host.objects.exists()


def test_the_only_host_on_sqlite_runs_all_models(root: Client, chat: ServedModel) -> None:
    Host.objects.create(name="moon", devices={"CPU": 8 * 10**9})
    ServedModel.objects.filter(pk=chat.pk).update(is_loaded=True)
    state = {"state": EngineState.READY, "needed_bytes": 2 * 10**9}
    EngineStatus.objects.update_or_create(model=chat, defaults=state)
    text = text_of(root.get(HOSTS))
    assert "CPU: 2 GB of 8 GB" in text and "chat (ready)" in text


def test_with_several_hosts_pages_say_which_one_has_a_replica(
    root: Client, chat: ServedModel, tmp_path: Path, settings: Any
) -> None:
    settings.VINERY_RUN_DIR, settings.VINERY_HOST_NAME = tmp_path, "moon"
    devices.write(tmp_path, [CPU])
    hosts = [Host.objects.create(name=name) for name in ("moon", "mars")]
    Placement.objects.bulk_create(
        Placement(model=chat, replica=number, host=host) for number, host in enumerate(hosts)
    )
    on_cpu, others = re.findall(r"<section.+?</section>", text_of(root.get(PAGE)), re.DOTALL)
    assert ">chat</code>" in on_cpu and "mars" not in on_cpu
    assert "Models elsewhere" in others and f'CPU of <a href="{HOSTS}">mars</a>' in others
    assert "<dd>CPU of moon, mars</dd>" in text_of(root.get(f"/console/models/{chat.pk}/"))
