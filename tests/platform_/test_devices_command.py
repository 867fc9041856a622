"""`vinery devices` needs no home folder and no running Vinery. Other commands know its result."""

import json
from pathlib import Path

import pytest

from tests.platform_ import scripts
from tests.platform_.conftest import Vinery
from vinery.config.home import REPOSITORY
from vinery_serving.catalog import devices

pytestmark = pytest.mark.live


def test_the_processor_is_listed_and_no_home_is_created(tmp_path: Path) -> None:
    home = tmp_path / "home"

    result = scripts.vinery("devices", environment={"VINERY_HOME": str(home)})

    assert result.returncode == 0, result.stderr
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["DEVICE", "NAME", "MEMORY", "DRIVER"]
    assert any(row.startswith("CPU ") and "GiB" in row for row in rows)
    assert not home.exists()


def test_a_home_knows_the_devices_from_then_on(
    vinery: Vinery, installation: dict[str, str]
) -> None:
    result = vinery("devices", "--json")
    wrong = ("--name", "x", "--device", "XPU.3")
    folder = str(REPOSITORY / "models" / "tiny-chat")
    added = vinery("model", "add", folder, *wrong)

    listed = json.loads(result.stdout)
    assert {"CPU"} <= {each["device"] for each in listed}
    known = devices.read(Path(installation["VINERY_HOME"]) / "run")
    assert known is not None
    assert known.names == [each["device"] for each in listed]
    assert added.returncode == 1
    assert "There is no device XPU.3 on this machine. Devices: " in added.stderr
