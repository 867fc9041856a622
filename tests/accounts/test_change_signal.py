"""A change of rows is signalled to the processes that keep them in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.db import transaction

from vinery_accounts.base.change_signal import Listener, send, send_after_commit
from vinery_accounts.models import Organization
from vinery_accounts.services import changes


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
    listener = Listener(counter.note)
    try:
        yield counter
    finally:
        listener.close()


async def test_each_listener_gets_a_signal() -> None:
    with listening() as one, listening() as other:
        send()
        await one.wait()
        await other.wait()

        assert (one.num_signals, other.num_signals) == (1, 1)


async def test_signals_that_are_due_at_once_count_as_one() -> None:
    with listening() as counter:
        for _ in range(1000):
            send()
        await counter.wait()
        send()
        await counter.wait()

        assert counter.num_signals == 2


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_closed_listener_leaves_nothing_behind(folder: Path) -> None:
    with listening():
        assert len(names(folder)) == 1

    assert names(folder) == []


def test_without_a_listener_a_signal_is_lost(folder: Path) -> None:
    send()

    assert not folder.exists()


async def test_the_pipe_of_a_killed_listener_is_removed(folder: Path) -> None:
    with listening() as counter:
        (living,) = names(folder)
        os.mkfifo(folder / "killed")
        send()
        await counter.wait()

        assert names(folder) == [living]


@pytest.mark.django_db(transaction=True)
def test_a_change_is_signalled_once_and_when_it_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signals: list[int] = []

    def note() -> None:
        signals.append(Organization.objects.count())

    monkeypatch.setattr("vinery_accounts.base.change_signal.send", note)
    with transaction.atomic():
        for name in ("a", "b", "c"):
            changes.add(Organization(name=name))
        assert signals == []

    assert signals == [3]


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_rolled_back_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[None] = []
    monkeypatch.setattr("vinery_accounts.base.change_signal.send", lambda: signals.append(None))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        changes.add(Organization(name="a"))
        raise ZeroDivisionError

    assert signals == []
    send_after_commit()
    assert signals == [None]
