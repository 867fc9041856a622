"""Devices of which the tests by day try a sample."""

from pathlib import Path

import pytest

from tests.node.test_load_errors_live import failure_of, folder
from tests.tables import table

__all__ = ["folder"]

pytestmark = pytest.mark.live


@pytest.mark.skipif(Path("/dev/dri").exists(), reason="this machine may have a GPU")
@table("device", ["GPU", "GPU.1", "AUTO:GPU,CPU", "HETERO:GPU,CPU"])
async def test_a_gpu_without_runtime_is_named(tmp_path: Path, folder: Path, device: str) -> None:
    failure = await failure_of(tmp_path, folder, device)
    assert failure.text.startswith("This machine has no GPU runtime")
