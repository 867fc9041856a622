"""Environments of the exporter: whole or not there, from wheels that the test has made."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import until
from tests.models.convert.wheels import write_wheels
from vinery_serving.models.convert import environments as module
from vinery_serving.models.convert.checkpoint import ConvertError, Line
from vinery_serving.models.convert.environments import Environments, pip_needs, python_of


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
line = Line("test", (sys.argv[2],), "torch==1.0")
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
        kill_while_it_makes(folder, line)
        assert all_.find(line) is None
        asyncio.run(all_.ensure(line, ignore))
    return all_


def kill_while_it_makes(folder: Path, line: Line) -> None:
    process = subprocess.Popen([sys.executable, "-c", _MAKE, str(folder), *line.packages])
    until((folder / ".test.new" / "bin").exists, timeout_s=60)
    process.kill()
    process.wait()


def test_an_environment_is_found_after_a_kill_and_kept(made: Environments, line: Line) -> None:
    found = made.find(line)
    assert found is not None
    code = "import optimum.exporters.openvino"
    assert subprocess.run([python_of(found), "-c", code], check=False).returncode == 0
    assert asyncio.run(made.ensure(line, ignore)) == found
    assert made.find(Line(line.name, ("exporter==2.0",), line.torch)) is None
    with made.used(line), pytest.raises(ConvertError, match="is in use"):
        made.remove(line)
    assert made.find(line) is not None


async def test_a_missing_package_or_too_small_a_disk_is_named_and_leaves_nothing(
    tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_, log = Environments(tmp_path / "all"), bytearray()
    missing = line.packages[0].replace("==1.0", "==9")
    with pytest.raises(ConvertError, match=r"test could not be made: .*exporter==9"):
        await all_.ensure(Line(line.name, (missing,), line.torch), log.extend)
    assert [path.name for path in (tmp_path / "all").iterdir() if path.is_dir()] == []
    assert b"exporter==9" in log
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(ConvertError, match=r"needs 6 GB of disk, and .* has 1\.0 GB"):
        await Environments(tmp_path).ensure(line, ignore)


async def test_a_package_of_another_content_or_without_a_hash_is_refused(
    tmp_path: Path, line: Line
) -> None:
    all_, log = Environments(tmp_path / "all"), bytearray()
    for package, reason in (
        (f"exporter==1.0 --hash=sha256:{'0' * 64}", b"DO NOT MATCH THE HASHES"),
        ("exporter==1.0", b"Hashes are required"),
    ):
        with pytest.raises(
            ConvertError, match=r"could not be made: .*A mirror must have the files"
        ):
            await all_.ensure(Line(line.name, (package,), line.torch), log.extend)
        assert reason in log


async def test_no_second_index_is_asked_for_a_package(
    tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []

    async def keep(command: Sequence[str], *_: object, **__: object) -> int:
        commands.append(tuple(command))
        return 0

    monkeypatch.setattr(module.child, "run", keep)
    await Environments(tmp_path, "https://torch.example/cpu").ensure(line, ignore)
    _, torch, others, _ = commands
    assert torch[-3:] == ("--index-url", "https://torch.example/cpu", line.torch)
    assert not [each for each in (*torch, *others) if "extra-index" in each]
    assert "--require-hashes" in others and "--index-url" not in others


async def test_a_removed_environment_is_gone_for_good(made: Environments, line: Line) -> None:
    assert made.remove(line)
    assert made.find(line) is None
    assert not made.remove(line)


def test_pip_reads_indexes_that_its_configuration_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_FIND_LINKS", "/srv/links")
    index = tmp_path / "mirror" / "simple"
    for folder in (index, tmp_path / ".pip"):
        folder.mkdir(parents=True)
    (tmp_path / ".pip" / "pip.conf").write_text(
        f"[global]\nindex-url = https://x.example/simple\nextra-index-url=file://{index}\n"
    )
    reads = pip_needs(tmp_path / "environments").reads or ()
    assert {index.parent, Path("/srv/links")} <= set(reads)
    assert not {tmp_path, Path("/srv"), Path("/x.example/simple")} & set(reads)
