"""`vinery up` ends at once, with one clear line, when it cannot start."""

import os
from pathlib import Path

import pytest

from tests.platform_ import scripts
from vinery.config.home import Home
from vinery.process import running_server
from vinery.process.listening import Address, listen


def refusal(home: Path, **settings: str) -> str:
    """The line in which `vinery up` refuses."""
    environment = {"VINERY_PORT": "0", "VINERY_HOME": str(home)} | settings
    return scripts.refusal("up", environment=environment)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with listen(Address("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])

        line = refusal(tmp_path / "home", VINERY_PORT=port)

    assert f"Port {port} on 127.0.0.1 is in use" in line
    assert "VINERY_PORT" in line


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, which stops root as well")

    line = refusal(tmp_path / "home")

    assert f"VINERY_HOME={tmp_path / 'home'} cannot be written" in line


def test_a_home_that_another_supervisor_uses_is_refused(platform_home: Home) -> None:
    with platform_home.locked():
        line = refusal(platform_home.path)

    assert str(platform_home.path) in line
    assert "is in use by process" in line


def test_a_second_start_reports_where_the_first_one_is_before_its_port(platform_home: Home) -> None:
    with listen(Address("127.0.0.1", 0)) as used, platform_home.locked():
        port = used.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        running_server.write(platform_home, url, "1.0")
        for asked in (str(port), "0"):
            environment = {"VINERY_PORT": asked, "VINERY_HOME": str(platform_home.path)}

            result = scripts.vinery("up", environment=environment)

            assert result.returncode == 0
            assert "already runs with the home" in result.stdout
            assert f"(process {os.getpid()})" in result.stdout
            assert f"{url}/console/" in result.stdout
            assert f"{url}/v1" in result.stdout

        line = refusal(platform_home.path, VINERY_PORT="1")
        assert "already runs" in line
        assert url in line
        assert str(os.getpid()) in line


def test_what_a_dead_server_has_noted_does_not_count(platform_home: Home) -> None:
    running_server.write(platform_home, "http://127.0.0.1:18500", "1.0")

    assert running_server.read(platform_home) is None


def test_open_access_to_the_network_is_refused(tmp_path: Path) -> None:
    settings = {"VINERY_AUTH": "off", "VINERY_HOST": "0.0.0.0", "VINERY_PORT": "0"}

    result = scripts.vinery("up", environment={"VINERY_HOME": str(tmp_path / "home")} | settings)

    assert result.returncode == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith("vinery: VINERY_AUTH=off would serve all clients")


def test_a_database_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    with listen(Address("127.0.0.1", 0)) as free:
        url = f"postgres://unknown@127.0.0.1:{free.getsockname()[1]}/nothing"

    result = scripts.vinery(
        "prepare", environment={"VINERY_HOME": str(tmp_path / "home"), "DATABASE_URL": url}
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

    result = scripts.make("up", f"PYTHON={interpreter}", f"VENV={tmp_path / 'venv'}")

    [own_line] = [text for text in result.stderr.splitlines() if not text.startswith("make")]
    assert result.returncode == 2
    assert line in own_line
    assert not (tmp_path / "venv").exists()
