"""Environments of the exporter: whole or not there, from wheels that the test has made."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import until
from tests.convert.wheels import write_wheels
from vinery_serving.models.convert import environments as module
from vinery_serving.models.convert.checkpoint import ConvertError, Line
from vinery_serving.models.convert.environments import Environments, python_of


def ignore(_: bytes) -> None:
    pass


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheels")


@pytest.fixture(scope="module")
def line(wheels: Path) -> Line:
    return write_wheels(wheels, "")


@pytest.fixture(autouse=True)
def only_these_wheels(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


_MAKE = """
import asyncio, sys
from pathlib import Path
from vinery_serving.models.convert.environments import Environments, python_of
from vinery_serving.models.convert.checkpoint import Line
line = Line("test", ("exporter==1.0",), "torch==1.0")
asyncio.run(Environments(Path(sys.argv[1])).ensure(line, lambda _: None))
"""


@pytest.fixture(scope="module")
def made(line: Line, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Environments:
    """An environment for all tests that only read. Its first making was killed."""
    folder = tmp_path_factory.mktemp("made")
    all_ = Environments(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(wheels))
        kill_while_it_makes(folder)
        assert all_.find(line) is None
        asyncio.run(all_.ensure(line, ignore))
    return all_


def kill_while_it_makes(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _MAKE, str(folder)])
    until((folder / ".test.new" / "bin").exists, timeout_s=60)
    process.kill()
    process.wait()


def test_an_environment_is_found_after_a_kill_and_kept(made: Environments, line: Line) -> None:
    found = made.find(line)
    assert found is not None
    code = "import optimum.exporters.openvino"
    assert subprocess.run([python_of(found), "-c", code], check=False).returncode == 0
    assert b"Successfully installed" in made.log_path(line).read_bytes()
    assert asyncio.run(made.ensure(line, ignore)) == found
    assert made.find(Line(line.name, ("exporter==2.0",), line.torch)) is None
    with made.used(line), pytest.raises(ConvertError, match="is in use"):
        made.remove(line)
    assert made.find(line) is not None


async def test_a_missing_package_or_too_small_a_disk_is_named_and_leaves_nothing(
    tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_ = Environments(tmp_path / "all")
    with pytest.raises(ConvertError, match=r"test could not be made: .*exporter==9"):
        await all_.ensure(Line(line.name, ("exporter==9",), line.torch), ignore)
    assert [path.name for path in (tmp_path / "all").iterdir() if path.is_dir()] == []
    assert b"exporter==9" in all_.log_path(line).read_bytes()
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(ConvertError, match=r"needs 6 GB of disk, and .* has 1\.0 GB"):
        await Environments(tmp_path).ensure(line, ignore)


async def test_a_removed_environment_is_gone_for_good(made: Environments, line: Line) -> None:
    assert made.remove(line)
    assert made.find(line) is None
    assert not made.log_path(line).exists()
    assert not made.remove(line)
