"""The usage record of a request whose web process was killed during the request."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.tables import table
from vinery_accounts.captures.store import MAX_TEXT_BYTES, CapturedRequest
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_accounts.limits.service import LimitService
from vinery_accounts.usage.entries import Admission, Settlement, entries_in
from vinery_accounts.usage.journal import journals_in
from vinery_accounts.usage.ledger import NoRoomForUsage, UsageLedger
from vinery_accounts.usage.recovery import recover_orphans
from vinery_serving.core.errors import InvalidRequest, UsageNotRecorded, cited
from vinery_serving.core.events import TokenCounts
from vinery_serving.core.media import MediaUsage
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.recording.record import RequestRecord
from vinery_serving.gateway.state.drain import LiveRequests
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.gateway.state.traffic import Traffic
from vinery_serving.protocols.common.encoding import error_body


def new_record(
    ledger: UsageLedger, caller: Caller = ANONYMOUS, body: bytes = b"", **members: Any
) -> RequestRecord:
    """The record of a request in a process with this ledger and a runtime with these members."""
    runtime = SimpleNamespace(
        ledger=ledger,
        live=LiveRequests(),
        limits=LimitService(),
        directory=SimpleNamespace(entries={"m"}),
        **members,
    )
    return RequestRecord(
        cast(Runtime, runtime),
        caller,
        request_id="r1",
        endpoint="completions",
        dialect="v1",
        error_body=error_body,
        body=body,
    )


class Process:
    """A web process that admits one request, and is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ledger = UsageLedger(folder)
        self._record = new_record(self._ledger)

    def begin(self, *, asked: str, serves: str) -> None:
        self._record.admit(model=asked, is_streamed=False)
        self._record.name_model(serves)

    def note_pictures(self, meter: Meter) -> None:
        self._record.meter = meter
        self._record.note_media()

    def killed(self) -> Settlement:
        """Kill it. Returns what the next process records."""
        rows: list[Settlement] = []
        self._ledger._journal.close()
        recover_orphans(self._folder, rows.extend)
        (row,) = rows
        return row

    @property
    def num_lines(self) -> int:
        (journal,) = journals_in(self._folder)
        return journal.read_bytes().count(b'"type":"admission"')


@pytest.fixture
async def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


@pytest.mark.parametrize("asked", ["default", "reference-chat"])
async def test_it_is_recorded_with_the_model_that_served(process: Process, asked: str) -> None:
    process.begin(asked=asked, serves="reference-chat")

    assert process.num_lines == (2 if asked == "default" else 1)
    admission = process.killed().admission
    assert (admission.model, admission.asked_model) == ("reference-chat", asked)


async def test_pictures_of_a_killed_process_are_recorded_and_text_is_written_once(
    process: Process,
) -> None:
    process.begin(asked="m", serves="m")
    process.note_pictures(Meter())
    assert process.num_lines == 1

    pictures = MediaUsage(num_files=2, num_bytes=10, num_pixels=300, decode_s=0.004)
    process.note_pictures(Meter(media=pictures, media_spans=((3, 8),), tokens=TokenCounts(9)))
    assert process.num_lines == 2
    row = process.killed()
    assert (row.num_media, row.num_media_bytes, row.num_media_pixels) == (2, 10, 300)
    assert (row.decode_ms, row.num_image_tokens) == (4.0, 0)


async def test_a_request_that_cannot_be_recorded_is_refused_and_not_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: UsageLedger, admission: Admission) -> None:
        raise NoRoomForUsage

    monkeypatch.setattr(UsageLedger, "admit", no_room)
    traffic, ledger = Traffic(), UsageLedger(tmp_path)
    record = new_record(ledger, traffic=traffic)

    with pytest.raises(UsageNotRecorded) as refused:
        record.admit(model="m")
    record.fail(refused.value)

    assert refused.value.status == 503
    assert (refused.value.retry_after_s or 0) > 0
    assert ledger.backlog_bytes == 0
    assert traffic.models["m"].requests == {("completions", 503): 1}


async def test_a_long_name_of_a_model_takes_little_space_in_the_journal(process: Process) -> None:
    process.begin(asked="m" * 1_000_000, serves="reference-chat")

    assert process._ledger.backlog_bytes < 2000


async def test_a_refusal_is_recorded_with_its_message_and_its_field(tmp_path: Path) -> None:
    ledger = UsageLedger(tmp_path)
    record = new_record(ledger, traffic=Traffic())
    record.admit(model="m")
    record.fail(InvalidRequest(f"`stop` has {cited('a secret')}.", param="stop"))

    *_, settled = entries_in(ledger._journal.read(0, 10_000))
    assert isinstance(settled, Settlement)
    assert (settled.error_code, settled.error_param) == ("invalid_value", "stop")
    assert settled.error_message == "`stop` has …."


@table(
    "sent, hashes, stored",
    [
        ("ann", False, "ann"),
        ("a" * 99, False, "a" * 64),
        ("a\0nn", False, "ann"),
        ("", True, ""),
        ("ann", True, None),
    ],
)
async def test_a_record_has_the_end_user_or_a_hash(
    tmp_path: Path, sent: str, hashes: bool, stored: str | None
) -> None:
    def recorded(project_id: int) -> str:
        caller = structs.replace(ANONYMOUS, hashes_end_users=hashes, project_id=project_id)
        record = new_record(UsageLedger(tmp_path), caller, traffic=Traffic())
        record.admit(model="m", end_user=sent)
        assert record.reservation.end_user == record._admission.end_user
        return record._admission.end_user

    if stored is not None:
        assert recorded(1) == stored
    else:
        assert re.fullmatch("[0-9a-f]{64}", recorded(1))
        assert recorded(1) == recorded(1) != recorded(2)


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_project_with_captures_gets_the_body_and_the_answer(
    tmp_path: Path, is_refused: bool
) -> None:
    captured: list[CapturedRequest] = []
    captures = SimpleNamespace(put=captured.append)
    caller = structs.replace(ANONYMOUS, captures=True, project_id=1)
    record = new_record(UsageLedger(tmp_path), caller, b"{}", traffic=Traffic(), captures=captures)
    record.admit(model="m", is_streamed=False)
    record.name_model("m")
    if is_refused:
        record.fail(InvalidRequest("No."))
    else:
        record.add_answer(b"x" * MAX_TEXT_BYTES)
        record.add_answer(b"yz")
        record.succeed()

    [capture] = captured
    assert (capture.project_id, capture.model) == (1, "m")
    assert (capture.body, capture.num_body_bytes) == (b"{}", 2)
    refusal = error_body(InvalidRequest("No."))
    answer = (refusal, len(refusal)) if is_refused else (b"x" * MAX_TEXT_BYTES, MAX_TEXT_BYTES + 2)
    assert (capture.answer, capture.num_answer_bytes) == answer
