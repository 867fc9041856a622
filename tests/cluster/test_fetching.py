"""A host fetches the folder of a model from another host, by a job in a confined process."""

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.hosts import AUTHORITY, NODE_HOST, WEB_HOST, Host, running
from tests.cluster.test_folders import read
from vinery_serving.cluster import fetching, folders
from vinery_serving.cluster.authority import host_fingerprint
from vinery_serving.cluster.folders import Folder
from vinery_serving.models.hub import pull
from vinery_serving.models.jobs import JobDocument, JobFailed, JobLine, Reporter

WEIGHTS = os.urandom(1 << 20) * 8
FILES = {"config.json": b"{}", "empty": b"", "inner/openvino_model.bin": WEIGHTS}


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Host]:
    """A host that has a folder of a model."""
    folder, run_dir = tmp_path / "source" / "models" / "m" / "1", tmp_path / "source" / "run"
    run_dir.mkdir(parents=True)
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folders.keep(run_dir, {str(folder): await read(folder)})
    async with running(run_dir) as host:
        yield host


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "_FIRST_WAIT_S", 0.01)


def kept(source: Host) -> tuple[Path, Folder]:
    ((path, found),) = folders.kept(source.run_dir).items()
    return Path(path), found


def document(source: Host, home: Path, **changed: Any) -> JobDocument:
    _, found = kept(source)
    parameters = {
        "host": "h",
        "on": "mars",
        "folder": "m/1",
        "kind": "host",
        "name": "moon",
        "address": f"{source.address}:{source.port}",
        "fingerprint": host_fingerprint(NODE_HOST),
        "digest": found.digest,
        "list_bytes": len(found.listing),
        **changed,
    }
    return JobDocument(
        kind="fetch",
        job_id=1,
        node_pid=os.getpid(),
        model="m",
        home=home,
        parameters=parameters,
        authorities=[AUTHORITY],
        host_key=WEB_HOST,
    )


def is_whole(folder: Path) -> bool:
    return {name: (folder / name).read_bytes() for name in FILES} == FILES


async def fails(asked: JobDocument, reason: str) -> None:
    """The job ends with this reason, and the folder has no name."""

    def run() -> None:
        with pytest.raises(JobFailed, match=reason):
            fetching.run(asked, Reporter(sys.stderr))
        assert not (asked.home / "models" / asked.parameters["folder"]).exists()

    await asyncio.to_thread(run)


@pytest.mark.parametrize(("folder", "path"), [("m/1", "m/1"), ("/srv/m/1", ".copies/srv/m/1")])
async def test_a_folder_is_fetched_by_a_confined_process(
    folder: str, path: str, source: Host, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    job = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vinery_serving.models.jobs", "fetch"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        output, _ = await job.communicate(document(source, home, folder=folder).to_json())
    lines = [msgspec.json.decode(each, type=JobLine) for each in output.splitlines()]
    assert lines[-1].result == {"folder": str(home / "models" / path)}, lines
    assert len(WEIGHTS) < (lines[-2].total_bytes or 0) == lines[-2].done_bytes
    assert is_whole(home / "models" / path)
    assert not list((home / "models" / ".partial").rglob("*.bin"))


async def test_a_fetch_goes_on_after_the_relay_was_killed(source: Host, tmp_path: Path) -> None:
    home, num_passed = tmp_path / "home", 0

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Kill the relay after half of the weights."""
        nonlocal num_passed
        with contextlib.suppress(OSError):
            back, forth = await asyncio.open_connection(source.address, source.port)
            asking = asyncio.create_task(copy(reader, forth))
            while data := await back.read(1 << 16):
                num_passed += len(data)
                writer.write(data)
                await writer.drain()
                if num_passed - len(data) < len(WEIGHTS) // 2 <= num_passed:
                    await source.kill()
            await asking
        writer.close()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async with await asyncio.start_server(pass_on, "127.0.0.1", 0) as between:
        port = between.sockets[0].getsockname()[1]
        asked = document(source, home, address=f"127.0.0.1:{port}")
        await fails(asked, "cannot be reached")
        partial = home / "models" / ".partial"
        sizes = [each.stat().st_size for each in partial.rglob("*") if each.is_file()]
        assert len(WEIGHTS) // 4 < max(sizes) < len(WEIGHTS)
        await source.start(source.port)
        seen: list[int] = []
        report = Reporter(sys.stderr)
        report.progress = lambda _, done=0, total=None: seen.append(done)  # type: ignore[method-assign]
        await asyncio.to_thread(fetching.run, asked, report)
    assert min(filter(None, seen)) >= max(sizes), "nothing is fetched again"
    assert is_whole(home / "models" / "m" / "1")


async def test_web_processes_get_the_small_files_alone(
    source: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SMALL_BYTES", len(WEIGHTS) - 1)
    home = tmp_path / "home"
    for part in (".small/m/1", "m/1"):
        asked = document(source, home, folder=part)
        await asyncio.to_thread(fetching.run, asked, Reporter(sys.stderr))
    small = {each.name for each in (home / "models/.small/m/1").iterdir()}
    assert small == {"config.json", "empty"}
    assert is_whole(home / "models" / "m" / "1")


async def test_wrong_bytes_are_refused(source: Host, tmp_path: Path) -> None:
    folder, _ = kept(source)
    (folder / "inner/openvino_model.bin").write_bytes(bytes(len(WEIGHTS)))
    await fails(document(source, tmp_path / "home"), "has another content than is listed")


async def test_what_the_host_does_not_have(source: Host, tmp_path: Path) -> None:
    home = tmp_path / "home"
    await fails(document(source, home, digest="0" * 64), "does not have these files any more")
    folder, _ = kept(source)
    (folder / "config.json").unlink()
    await fails(document(source, home), "config.json is shorter than listed")


async def test_paths_that_lead_elsewhere_are_refused(source: Host, tmp_path: Path) -> None:
    home = tmp_path / "home"
    for folder in ("/../../x", "", ".", "../x", ".small/../../x"):
        with pytest.raises(JobFailed, match="is not in"):
            fetching.run(document(source, home, folder=folder), Reporter(sys.stderr))
    folder, found = kept(source)
    secret = folder.parent / "secret"
    secret.write_text("s")
    file = folders.File("../secret", 1, hashlib.sha256(b"s").hexdigest())
    folders.keep(source.run_dir, {str(folder): Folder(found.state, (file,))})
    await fails(document(source, home), "which is not safe")


async def test_who_is_refused(source: Host, tmp_path: Path) -> None:
    home = tmp_path / "home"
    asked = document(source, home)
    others = {"fingerprint": host_fingerprint(WEB_HOST)}
    await fails(document(source, home, **others), "Another host than moon answers")
    for key in ("a host without a row", NODE_HOST):
        await fails(msgspec.structs.replace(asked, host_key=key), "ended the connection")
    await fails(msgspec.structs.replace(asked, authorities=[b"another"]), "ended the connection")


async def test_a_cancelled_fetch_leaves_nothing(source: Host, tmp_path: Path) -> None:
    folder, _ = kept(source)
    (folder / "inner/openvino_model.bin").write_bytes(bytes(len(WEIGHTS)))
    asked = document(source, tmp_path / "home")
    await fails(asked, "another content")
    fetching.discard(asked)
    left = [each for each in (tmp_path / "home" / "models").rglob("*") if each.is_file()]
    assert left == []
