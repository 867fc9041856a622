"""`vinery up` ends at once, with one clear line, when it cannot start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, clean_environment
from tests.platform_ import scripts
from vinery.config.home import Home
from vinery.process.listening import Address, listen


def assert_one_line(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with listen(Address("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])

        result = scripts.vinery(
            "up", environment={"VINERY_PORT": port, "VINERY_HOME": str(tmp_path / "home")}
        )

    assert_one_line(result, f"Port {port} on 127.0.0.1 is in use", "VINERY_PORT")


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, which stops root as well")

    result = scripts.vinery(
        "up", environment={"VINERY_PORT": "0", "VINERY_HOME": str(tmp_path / "home")}
    )

    assert_one_line(result, f"VINERY_HOME={tmp_path / 'home'} cannot be written")


def test_a_home_that_another_supervisor_uses_is_refused(platform_home: Home) -> None:
    with platform_home.locked():
        result = scripts.vinery(
            "up", environment={"VINERY_PORT": "0", "VINERY_HOME": str(platform_home.path)}
        )

    assert_one_line(result, str(platform_home.path), "is in use by process")


def test_open_access_to_the_network_is_refused(tmp_path: Path) -> None:
    settings = {"VINERY_PORT": "0", "VINERY_HOME": str(tmp_path / "home")}

    result = scripts.vinery(
        "up", environment=settings | {"VINERY_AUTH": "off", "VINERY_HOST": "0.0.0.0"}
    )

    assert result.returncode == 2
    assert result.stderr.startswith("vinery: VINERY_AUTH=off would serve all clients")
    assert result.stderr.count("\n") == 1


def test_a_database_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    with listen(Address("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    result = scripts.vinery(
        "prepare",
        environment={
            "VINERY_HOME": str(tmp_path / "home"),
            "DATABASE_URL": f"postgres://unknown@127.0.0.1:{port}/nothing",
        },
    )

    assert result.returncode == 1
    assert "vinery: The database cannot be used" in result.stderr


@pytest.mark.parametrize(
    ("python", "line"),
    [
        (
            "#!/bin/sh\necho Python 3.8.1; exit 1\n",
            "Python 3.11 or newer is needed, this is Python 3.8.1.",
        ),
        (None, "Install Python 3.11 or newer"),
    ],
)
def test_make_up_refuses_an_unsupported_python(
    tmp_path: Path, python: str | None, line: str
) -> None:
    interpreter = tmp_path / "python"
    if python:
        interpreter.write_text(python)
        interpreter.chmod(0o755)

    result = subprocess.run(
        ["make", "up", f"PYTHON={interpreter}", f"VENV={tmp_path / 'venv'}"],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    own_lines = [text for text in result.stderr.splitlines() if not text.startswith("make")]
    assert result.returncode == 2
    assert len(own_lines) == 1
    assert line in own_lines[0]
    assert not (tmp_path / "venv").exists()
