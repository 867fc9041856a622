"""Real engines that cannot load: each ends with an error that the node explains."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.engine.adapters import matrices, write_adapter
from tests.engine.conftest import TINY_CHAT, TINY_DRAFT, engine_config
from tests.tables import table
from vinery_serving.engine.option_groups import Adapter
from vinery_serving.node import engine_process
from vinery_serving.node.engine_process import EngineDied, EngineProcess
from vinery_serving.node.load_errors import FailureKind, LoadFailure, load_failure

pytestmark = pytest.mark.live


def copied(target: Path) -> Path:
    return Path(shutil.copytree(TINY_CHAT, target))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copied(tmp_path / "model")


async def failure_of(home: Path, folder: Path, device: str = "CPU", **options: Any) -> LoadFailure:
    config = structs.replace(engine_config(home, "e", options), folder=folder, device=device)
    engine = EngineProcess(config)
    try:
        with pytest.raises(EngineDied) as died:
            await engine.start()
    finally:
        await engine.end()
    return load_failure(str(died.value))


def weights_of(folder: Path) -> Path:
    return folder / "openvino_model.bin"


def cut(folder: Path) -> None:
    weights_of(folder).write_bytes(weights_of(folder).read_bytes()[:1_000_000])


def fill_with_noise(folder: Path) -> None:
    weights_of(folder).write_bytes(os.urandom(weights_of(folder).stat().st_size))


def fill_with_those_of_another_model(folder: Path) -> None:
    size, other = weights_of(folder).stat().st_size, weights_of(TINY_DRAFT).read_bytes()
    weights_of(folder).write_bytes((other * (size // len(other) + 1))[:size])


def use_an_unknown_operation(folder: Path) -> None:
    graph = folder / "openvino_model.xml"
    text = graph.read_text()
    graph.write_text(text.replace('type="MatMul" version="opset1"', 'type="X" version="opset1"'))


@table(
    "break_, cause",
    [
        (cut, "A weights file is missing or cut"),
        (fill_with_noise, "The weights do not fit the graph"),
        (fill_with_those_of_another_model, "The weights do not fit the graph"),
        (use_an_unknown_operation, "does not know"),
    ],
)
async def test_damaged_files_are_named(tmp_path, break_, cause):
    folder = copied(tmp_path / break_.__name__)
    break_(folder)

    failure = await failure_of(tmp_path, folder)

    assert cause in failure.text.partition("\n\n")[0]
    assert "Exception from" in failure.text.partition("\n\n")[2]
    assert failure.kind is FailureKind.FINAL


@pytest.mark.skipif(Path("/dev/dri").exists(), reason="this machine may have a GPU")
@table("device", ["GPU", "HETERO:GPU,CPU"])
async def test_a_gpu_without_runtime_is_named(tmp_path: Path, folder: Path, device: str) -> None:
    failure = await failure_of(tmp_path, folder, device)
    assert failure.text.startswith("This machine has no GPU runtime")


@table(
    "device, options, cause",
    [
        ("XYZ", {}, "OpenVINO knows no device XYZ."),
        ("CPU", {"plugin": {"NO_SUCH": 1}}, "The device CPU has no property NO_SUCH."),
        (
            *("CPU", {"plugin": {"PERFORMANCE_HINT": "FAST"}}),
            "The property PERFORMANCE_HINT cannot be FAST.",
        ),
        ("CPU", {"cache_size_gb": 1_000_000}, "The KV cache of the option cache_size_gb is larger"),
    ],
)
async def test_a_wrong_device_or_option_is_named(tmp_path, folder, device, options, cause):
    failure = await failure_of(tmp_path, folder, device, **options)
    assert failure.text.startswith(cause)
    assert failure.kind is FailureKind.FINAL


async def test_too_little_memory_is_named_and_may_pass(tmp_path, folder, monkeypatch):
    limited = tmp_path / "python"
    limited.write_text(f'#!/bin/sh\nulimit -v 800000\nexec "{engine_process.sys.executable}" "$@"')
    limited.chmod(0o700)
    monkeypatch.setattr(engine_process.sys, "executable", str(limited))

    failure = await failure_of(tmp_path, folder)

    assert failure.text.startswith("There is not enough memory")
    assert failure.kind is FailureKind.PASSING


async def test_an_adapter_of_another_model_is_named(tmp_path: Path, folder: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", matrices(1.0, "attention.wq"))
    failure = await failure_of(tmp_path, folder, adapters=[Adapter(path=str(adapter))])
    assert failure.kind is FailureKind.FINAL
    assert "is for another model: model.layers.0.attention.wq has" in failure.text
