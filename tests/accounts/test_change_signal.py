"""A change of rows is signalled to the processes that keep them in memory."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from django.conf import settings
from django.db import connection, transaction

from vinery_accounts.access import changes
from vinery_accounts.base import change_signal
from vinery_accounts.base.change_signal import commit_state, send, send_after_commit
from vinery_accounts.models import Organization


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(settings, "VINERY_RUN_DIR", tmp_path)
    return tmp_path / "changes"


class Counter:
    """Counts signals; `wait` returns after the next one."""

    def __init__(self) -> None:
        self.num_signals = 0
        self._signalled = asyncio.Event()

    def note(self) -> None:
        self.num_signals += 1
        self._signalled.set()

    async def wait(self) -> None:
        async with asyncio.timeout(30):
            await self._signalled.wait()
        self._signalled.clear()


@contextmanager
def listening() -> Iterator[Counter]:
    counter = Counter()
    with change_signal.listening(counter.note):
        yield counter


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_listener_that_is_closed_or_killed_leaves_no_pipe(folder: Path) -> None:
    send()
    assert folder.name not in names(folder.parent)
    with listening():
        assert len(names(folder)) == 1
    assert names(folder) == []
    with listening() as counter:
        (living,) = names(folder)
        os.mkfifo(folder / "killed")
        send()
        await counter.wait()
        assert names(folder) == [living]


async def test_each_listener_gets_a_signal_and_those_due_at_once_count_as_one() -> None:
    with listening() as one, listening() as other:
        send()
        await one.wait()
        await other.wait()
        assert (one.num_signals, other.num_signals) == (1, 1)
    with listening() as counter:
        for _ in range(1000):
            send()
        await counter.wait()
        send()
        await counter.wait()
        assert counter.num_signals == 2


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
def test_changes_are_signalled_once_they_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[int] = []

    def note() -> None:
        signals.append(Organization.objects.count())

    monkeypatch.setattr("vinery_accounts.base.change_signal.send", note)
    with transaction.atomic():
        for name in ("a", "b", "c"):
            changes.add(Organization(name=name))
        assert signals == []
    assert signals == [3]

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        changes.add(Organization(name="rolled back"))
        raise ZeroDivisionError
    assert signals == [3]
    send_after_commit()
    assert signals == [3, 3]


# -- Commits, which a thread sees without reading their rows


def in_another_connection(name: str) -> None:
    def write() -> None:
        Organization.objects.create(name=name)
        connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(write).result()


@pytest.mark.stores
@pytest.mark.django_db(transaction=True)
def test_the_state_changes_with_each_commit_and_only_sqlite_s_is_of_its_connection() -> None:
    # Other tests may write to the same server between two looks.
    assert any(commit_state() == commit_state() for _ in range(1000))
    states = [commit_state()]
    for name in ("a", "b"):
        in_another_connection(name)
        states.append(commit_state())
    assert len({str(state) for state in states}) == 3

    own, _ = cast("tuple[object, object]", commit_state())
    connection.close()
    is_shared = cast("tuple[object, object]", commit_state())[0] is own
    assert is_shared == (connection.vendor == "postgresql")
