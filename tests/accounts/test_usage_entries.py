"""Entries of a usage journal."""

import logging
from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from usage_builders import admission, settlement

from vinery_accounts.usage import entries
from vinery_accounts.usage.entries import Admission, Checkpoint, Settlement, decode, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]))

PICTURES = entries.Media(
    num_files=1,
    num_bytes=691,
    num_pixels=12544,
    spans=((4, 20), (22, 26)),
    num_video_tokens=4,
    decode_ms=2.5,
)


@given(TEXT, TEXT, st.integers(0, 2**40), st.floats(allow_nan=False) | st.none())
def test_an_entry_is_written_as_one_line_and_read_again(
    model: str, code: str, num_tokens: int, total_ms: float | None
) -> None:
    entry = settlement(
        model=model,
        error_code=code,
        num_output_tokens=num_tokens,
        total_ms=total_ms if total_ms not in (float("inf"), float("-inf")) else None,
    )

    line = encode(entry)

    assert line.count(b"\n") == 1
    assert list(entries.entries_in(line)) == [entry]


@given(st.integers(1, 400))
def test_a_part_of_a_line_is_not_an_entry(num_bytes: int) -> None:
    line = encode(settlement())

    assert decode(line[:-1][:-num_bytes]) is None


def test_damaged_lines_and_half_characters_lose_no_record(caplog: pytest.LogCaptureFixture) -> None:
    line = encode(settlement(model="a\ud800b"))
    (entry,) = entries.entries_in(line)
    assert isinstance(entry, Settlement)
    assert entry.admission.model == "a?b"
    assert entry.num_output_tokens == 30

    lines = encode(admission()) + b"\0\0\0\n" + encode(settlement())
    with caplog.at_level(logging.ERROR):
        assert list(entries.entries_in(lines)) == [admission(), settlement()]
    assert "damaged line of 3 bytes" in caplog.text


def test_a_journal_of_another_version_can_be_read() -> None:
    # The field names on the disk are fixed. A renamed field would lose records in an upgrade.
    line = (
        b'{"type":"settlement","num_prompt_tokens":11,"num_output_tokens":30,"num_cached_tokens":8,'
        b'"num_reasoning_tokens":20,"admission":{"type":"admission","request_id":"r1","user_id":7,'
        b'"username":"alice","key_id":null,"key_name":"laptop","model":"reference-chat",'
        b'"endpoint":"chat/completions","dialect":"v1","is_streamed":true,'
        b'"started_at":"2026-03-01T12:00:00Z"},"outcome":"ok","http_status":200,'
        b'"queue_ms":0.5,"first_token_ms":12.25,"total_ms":340.0}\n'
    )
    assert encode(settlement()) == line
    assert decode(line[:-2] + b',"error_code":"","energy_mj":250}') == settlement()
    checkpoint = decode(b'{"type":"checkpoint","progress":[["r1",1,2,3,4]]}')
    assert checkpoint == Checkpoint((("r1", 1, 2, 3, 4),))

    newer = msgspec.json.decode(encode(admission()))
    newer["project"] = "vines"
    assert decode(msgspec.json.encode(newer)) == admission()

    of_pictures = encode(admission(media=PICTURES))
    assert (
        b',"media":{"num_files":1,"num_bytes":691,"num_pixels":12544,"spans":[[4,20],[22,26]],'
        b'"num_video_tokens":4,"decode_ms":2.5}}\n' in of_pictures
    )
    assert decode(of_pictures) == admission(media=PICTURES)
    assert b"media" not in encode(admission())

    with pytest.raises(ValueError, match="time zone"):
        admission(started_at=datetime(2026, 3, 1))


def opened(*taken: Admission | Checkpoint | Settlement) -> entries.OpenRequests:
    requests = entries.OpenRequests()
    for each in taken:
        requests.take(each)
    return requests


def test_open_requests_are_interrupted_with_their_last_counts() -> None:
    requests = opened(
        admission("r1"),
        admission("r2"),
        admission("r3"),
        Checkpoint((("r1", 5, 4, 1, 0), ("stranger", 9, 9, 9, 9))),
        Checkpoint((("r1", 5, 4, 7, 2), ("r2", 6, 0, 0, 0))),
        settlement("r2"),
    )

    first, last = requests.interrupted({})
    assert first == Settlement(
        admission=admission("r1"),
        outcome=entries.Outcome.INTERRUPTED,
        http_status=None,
        num_prompt_tokens=5,
        num_cached_tokens=4,
        num_output_tokens=7,
        num_reasoning_tokens=2,
        is_exact=False,
    )
    assert (last.admission, last.num_output_tokens) == (admission("r3"), 0)


def test_open_requests_are_written_again_with_their_last_admissions_and_counts() -> None:
    requests = opened(admission("r1"), admission("r2"), Checkpoint((("r1", 5, 4, 1, 0),)))
    copy = opened(*requests.entries())
    assert list(copy.interrupted({})) == list(requests.interrupted({}))
    requests = opened(admission(), Checkpoint((("r1", 5, 4, 1, 0),)), admission())
    (interrupted,) = requests.interrupted({})
    assert interrupted.num_prompt_tokens == 5
    latest = admission(model="reference-chat")
    requests = opened(admission(model=""), admission("r2"), latest)
    models = [each.admission.model for each in requests.interrupted({})]
    assert models == ["reference-chat", "reference-chat"]
    assert list(requests.entries()) == [admission("r1"), admission("r2")]


def test_open_requests_with_pictures_are_interrupted_with_the_tokens_of_these() -> None:
    counts = Checkpoint((("r1", 30, 4, 7, 2),))
    requests = opened(admission("r1"), admission("r1", media=PICTURES), counts)
    [row] = requests.interrupted({})
    assert (row.num_prompt_tokens, row.num_image_tokens, row.num_video_tokens) == (30, 16, 4)
    assert (row.num_media, row.num_media_bytes, row.num_media_pixels) == (1, 691, 12544)
    assert (row.decode_ms, row.fetch_ms) == (2.5, None)
    requests = opened(admission(media=PICTURES))
    [row] = requests.interrupted({})
    [counted] = requests.interrupted({"r1": ("r1", 30, 0, 2, 0)})
    assert (row.num_image_tokens, row.num_video_tokens, row.num_media) == (0, 0, 1)
    assert (counted.num_image_tokens, counted.num_video_tokens) == (16, 4)
