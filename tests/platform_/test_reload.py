"""`vinery up --reload` notices changed source files, and restarts the processes."""

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from vinery.cli import up
from vinery.config.home import Home
from vinery.process import reload
from vinery.process.listening import Address
from vinery.process.reload import modification_times
from vinery.process.supervisor import Service


@pytest.fixture(autouse=True)
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the files have been read. They are read often."""
    has_looked = threading.Event()

    def look(folders: Sequence[Path]) -> dict[Path, int]:
        times = modification_times(folders)
        has_looked.set()
        return times

    monkeypatch.setattr(reload, "_POLL_S", 0.01)
    monkeypatch.setattr(reload, "modification_times", look)
    return has_looked


async def test_added_changed_and_removed_files_are_noticed(
    tmp_path: Path, looked: threading.Event
) -> None:
    file, other = tmp_path / "sub" / "a.py", tmp_path / "b.pyc"
    file.parent.mkdir()
    changes = reload.changed_files([tmp_path])
    noticed = asyncio.create_task(anext(changes))
    assert await asyncio.to_thread(looked.wait, 60)

    other.write_text("not source")
    file.write_text("1")
    assert await noticed == {file}

    noticed = asyncio.create_task(anext(changes))
    os.utime(file, (1, 1))
    assert await noticed == {file}

    noticed = asyncio.create_task(anext(changes))
    file.unlink()
    assert await noticed == {file}


class RecordingSupervisor:
    """Records the restarts that a reload requests."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.has_restarted = asyncio.Event()

    async def run_once(self, service: Service) -> int:
        self.calls.append(service.name)
        return 0

    def restart(self, services: list[Service]) -> None:
        self.calls.append([service.name for service in services])
        self.has_restarted.set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accounts/tasks.py", [["web-1", "jobs"]]),
        ("templates/base.html", [["web-1", "jobs"]]),
        ("accounts/migrations/0002_new.py", ["prepare", ["web-1", "jobs"]]),
        ("accounts/static/console.css", ["prepare", ["web-1", "jobs"]]),
    ],
)
async def test_a_change_restarts_web_and_jobs_and_not_the_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    looked: threading.Event,
    name: str,
    expected: list[object],
) -> None:
    monkeypatch.setattr(up, "_SOURCES", (tmp_path,))
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    plan = up.Plan(Home(tmp_path / "home"), Address("127.0.0.1", 8000), 1, is_reloading=True)
    supervisor = RecordingSupervisor()
    task = asyncio.create_task(up._reload(plan, supervisor, plan.services(3)))  # type: ignore[arg-type]
    assert await asyncio.to_thread(looked.wait, 60)

    file.write_text("changed")
    await asyncio.wait_for(supervisor.has_restarted.wait(), 30)

    task.cancel()
    assert supervisor.calls == expected


async def test_files_are_not_watched_without_the_option(tmp_path: Path) -> None:
    plan = up.Plan(Home(tmp_path), Address("127.0.0.1", 8000), 1)

    await up._reload(plan, RecordingSupervisor(), plan.services(3))  # type: ignore[arg-type]
