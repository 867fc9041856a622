"""`vinery status` and `vinery env` of a server that runs, and of one that does not."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import forked_commands, prepared_home
from tests.conftest import Running, clean_environment
from tests.platform_ import scripts


@pytest.mark.system
def test_a_server_that_runs_is_described(running: Running) -> None:
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


@pytest.mark.system
def test_it_prints_tables_for_people_and_lines_for_a_shell(running: Running) -> None:
    shown = forked_commands.run("status", environment=running.environment).stdout
    assert f"console   {running.base_url}/console/" in shown
    assert "PROCESS" in shown
    assert "tiny-chat" in shown

    lines = forked_commands.run("env", environment=running.environment).stdout
    shell = f'{lines}\necho "$OPENAI_BASE_URL $OPENAI_API_KEY"'
    result = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [f"{running.base_url}/v1", running.api_key]


def test_a_home_that_is_not_served_is_described(tmp_path: Path) -> None:
    environment = prepared_home.copy_to(tmp_path / "home", clean_environment())

    result = scripts.vinery("status", environment=environment)

    assert result.returncode == 3
    assert "not running" in result.stdout
    assert "tiny-chat" in result.stdout
    assert scripts.vinery("env", environment=environment).returncode == 0
    (tmp_path / "home" / "bootstrap.json").unlink()
    assert "vinery key create" in scripts.refusal("env", environment=environment, status=1)


def test_what_cannot_be_read_has_its_reason(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()

    result = scripts.vinery("status", environment={"VINERY_HOME": str(home)})

    assert result.returncode == 3
    assert "There is no Vinery home at" in result.stdout
    assert list(home.iterdir()) == []
