"""What is in the books of a request whose web process was killed in the middle of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from accounts.keys.table import ANONYMOUS
from accounts.limits.service import LimitService, LimitSettings
from accounts.usage.entries import Settlement
from accounts.usage.journal import journals_in
from accounts.usage.ledger import UsageLedger
from accounts.usage.recovery import recover_orphans
from serving.requests.record import RequestRecord
from serving.runtime.live import LiveRequests
from serving.runtime.runtime import Runtime


class Process:
    """A web process that lets one request in, and is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ledger = UsageLedger(folder)
        self._ledger = ledger
        runtime = SimpleNamespace(
            ledger=ledger, live=LiveRequests(ledger), limits=LimitService(LimitSettings())
        )
        self._record = RequestRecord(
            cast(Runtime, runtime),
            ANONYMOUS,
            request_id="r1",
            endpoint="completions",
            dialect="v1",
        )

    def begin(self, *, asked: str, serves: str) -> None:
        self._record.admit(model=asked, is_streamed=False)
        self._record.name_model(serves)

    def kill(self) -> None:
        self._ledger._journal.close()

    @property
    def num_lines(self) -> int:
        (journal,) = journals_in(self._folder)
        return len(journal.read_bytes().splitlines())


@pytest.fixture
async def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


@pytest.mark.parametrize("asked", ["", "default", "reference-chat"])
async def test_it_is_booked_under_the_model_that_served(
    process: Process, tmp_path: Path, asked: str
) -> None:
    rows: list[Settlement] = []

    def keep(settlements: Sequence[Settlement]) -> None:
        rows.extend(settlements)

    process.begin(asked=asked, serves="reference-chat")
    process.kill()
    recover_orphans(tmp_path, keep)

    (row,) = rows
    assert (row.admission.model, row.admission.asked_model) == ("reference-chat", asked)


async def test_what_was_named_right_is_told_once(process: Process) -> None:
    process.begin(asked="reference-chat", serves="reference-chat")

    assert process.num_lines == 1
