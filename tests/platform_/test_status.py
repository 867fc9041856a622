"""`vinery status`, `vinery env` and `vinery devices`, with a server that runs and without."""

import json
from pathlib import Path

import pytest

from tests import forked_commands, prepared_home
from tests.conftest import Running, clean_environment
from tests.platform_ import scripts
from tests.platform_.conftest import Vinery
from vinery_platform.config.home import REPOSITORY
from vinery_serving.models import devices


@pytest.mark.system
def test_a_server_that_runs_is_described_for_programs_people_and_a_shell(running: Running) -> None:
    result = forked_commands.run("status", "--json", environment=running.environment)
    report = json.loads(result.stdout)
    assert result.returncode == 0
    assert report["state"] == "ready"
    assert report["server"]["pid"] == running.pid
    assert report["server"]["api"] == f"{running.base_url}/v1"
    assert {"supervisor", "web", "node", "jobs", "engine"} <= {
        row["process"] for row in report["processes"]
    }
    assert all(row["memory_bytes"] > 0 for row in report["processes"])
    [model] = [row for row in report["models"] if row["model"] == "tiny-chat"]
    assert model["state"] == "ready"
    assert model["pid"] in {row["pid"] for row in report["processes"]}
    assert report["database"].endswith("answers")
    assert report["versions"].keys() >= {"vinery", "openvino", "python"}

    shown = forked_commands.run("status", environment=running.environment).stdout
    assert f"console     {running.base_url}/console/" in shown
    assert "PROCESS" in shown
    assert "tiny-chat" in shown

    lines = forked_commands.run("env", environment=running.environment).stdout
    shell = f'{lines}\necho "$OPENAI_BASE_URL $OPENAI_API_KEY"'
    result = scripts.run("sh", "-c", shell)
    assert result.stdout.split() == [f"{running.base_url}/v1", running.api_key]


def test_a_home_that_is_not_served_or_cannot_be_read_is_described(tmp_path: Path) -> None:
    environment = prepared_home.copy_to(tmp_path / "home", clean_environment())

    result = scripts.vinery("status", environment=environment)
    assert result.returncode == 3
    assert "not running" in result.stdout
    assert "tiny-chat" in result.stdout
    assert scripts.vinery("env", environment=environment).returncode == 0
    (tmp_path / "home" / "bootstrap.json").unlink()
    assert "vinery key create" in scripts.refusal("env", environment=environment, status=1)

    home = tmp_path / "empty"
    home.mkdir()

    result = scripts.vinery("status", environment={"VINERY_HOME": str(home)})
    assert result.returncode == 3
    assert "There is no Vinery home at" in result.stdout
    assert list(home.iterdir()) == []


@pytest.mark.live
def test_the_processor_is_listed_and_no_home_is_created(tmp_path: Path) -> None:
    home = tmp_path / "home"

    result = scripts.vinery("devices", environment={"VINERY_HOME": str(home)})

    assert result.returncode == 0, result.stderr
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["DEVICE", "NAME", "MEMORY", "DRIVER"]
    assert any(row.startswith("CPU ") and "GiB" in row for row in rows)
    assert not home.exists()


@pytest.mark.live
def test_a_home_then_knows_the_devices(vinery: Vinery, installation: dict[str, str]) -> None:
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
