"""Names of devices are checked against the devices that the node has found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables import table
from vinery_serving.catalog import devices
from vinery_serving.catalog.devices import Device, DeviceList, check_device

CPU = Device("CPU", "Intel Core Ultra 7", 32 * 2**30)
GPU = Device("GPU", "Intel Arc", 16 * 2**30, driver="32.0.101")
GPU_0, GPU_1 = Device("GPU.0", "Intel iGPU"), Device("GPU.1", "Intel Arc B580")


def known(*found: Device) -> DeviceList:
    return DeviceList(found, 0.0)


@table(
    "text",
    [
        *("CPU", "AUTO", "AUTO:CPU", "AUTO:-NPU", "AUTO:-NPU,CPU", "HETERO:CPU"),
        *("BATCH:CPU", "BATCH:CPU(4)"),
    ],
)
def test_a_machine_without_a_gpu_has_these(text: str) -> None:
    check_device(text, known(CPU))


@table("text", ["GPU", "GPU.0", "AUTO:GPU,CPU", "HETERO:GPU.0, CPU", "BATCH:GPU"])
def test_one_gpu_has_two_names(text: str) -> None:
    check_device(text, known(CPU, GPU))


@table("text", ["GPU", "GPU.0", "GPU.1", "AUTO:GPU.1,GPU.0"])
def test_gpu_is_the_first_of_several(text: str) -> None:
    check_device(text, known(CPU, GPU_0, GPU_1))


@table(
    "text, missing",
    [
        *(("GPU", "GPU"), ("GPU.1", "GPU.1"), ("NPU", "NPU"), ("CPU.0", "CPU.0")),
        *(("AUTO:GPU,CPU", "GPU"), ("HETERO:CPU,GPU.1", "GPU.1"), ("BATCH:GPU(4)", "GPU")),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(text: str, missing: str) -> None:
    with pytest.raises(ValueError, match="There is no device") as error:
        check_device(text, known(CPU))

    assert str(error.value) == (
        f"There is no device {missing} on this machine. Devices: CPU (Intel Core Ultra 7). After "
        "a change, `vinery devices` looks for them again."
    )


@table("text", ["cpu", "Cpu", "AUTO:cpu"])
def test_devices_are_written_in_capitals(text: str) -> None:
    with pytest.raises(ValueError, match=r"Did you mean CPU\?"):
        check_device(text, known(CPU))


@table("text", ["", "AUTO:", "AUTO:,", "HETERO:CPU,", "GPU 1", "CPU;GPU", "é"])
@table("list_", [None, known(CPU)])
def test_what_cannot_be_a_device_is_refused_even_when_none_is_known(
    text: str, list_: DeviceList | None
) -> None:
    with pytest.raises(ValueError, match=r"is not a device\. Write a name such as CPU"):
        check_device(text, list_)


@table("compound", ["HETERO", "BATCH"])
def test_a_compound_of_nothing_is_refused(compound: str) -> None:
    with pytest.raises(ValueError, match=f"{compound} needs devices, such as {compound}:GPU"):
        check_device(compound, None)


@table("list_", [None, known(CPU)])
def test_multi_is_refused_with_what_does_the_same(list_: DeviceList | None) -> None:
    with pytest.raises(ValueError, match="Write AUTO:GPU,CPU to let OpenVINO choose a device"):
        check_device("MULTI:GPU,CPU", list_)


@table("text", ["GPU", "AUTO:GPU,NPU", "XYZ"])
def test_any_device_is_accepted_until_they_are_known(text: str) -> None:
    check_device(text, None)


def test_the_devices_that_were_found_are_read_by_other_processes(tmp_path: Path) -> None:
    assert devices.read(tmp_path) is None

    devices.write(tmp_path, [CPU, GPU])

    read = devices.read(tmp_path)
    assert read is not None
    assert read.devices == (CPU, GPU)
    assert read.found_at > 0
    assert [path.name for path in tmp_path.iterdir()] == ["devices.json"]


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "devices.json").write_text('{"devices": [{"name"')

    assert devices.read(tmp_path) is None
