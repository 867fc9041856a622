"""Pixels that arrive before their request, and how often pictures are encoded."""

from typing import Any, cast

import pytest

from tests.tables import table
from vinery_serving.core.errors import Overloaded
from vinery_serving.core.media import MAX_MEDIA_BYTES
from vinery_serving.core.request import Sampling
from vinery_serving.engine.arrival import ArrivingPixels
from vinery_serving.engine.estimates import EncodingPace
from vinery_serving.transport.messages import MediaInput, MediaPixels, Submit

ONE, OTHER = cast("Any", object()), cast("Any", object())  # connections


def a_submit(id_: int, *sizes: tuple[int, int]) -> Submit:
    media = tuple(MediaInput(1, (1, 1, 1), height, width) for height, width in sizes)
    return Submit(id_, bytes(8), Sampling(), 1, 60.0, media=media)


def test_pixels_are_kept_apart_dropped_with_their_requests_and_bounded() -> None:
    pixels = ArrivingPixels()
    for connection, id_, part in (
        (ONE, 1, b"abc"),
        (ONE, 2, b"xyz"),
        (OTHER, 1, b"123"),
        (ONE, 1, b"def"),
    ):
        pixels.add(connection, MediaPixels(id_, part))

    assert pixels.take(ONE, a_submit(1, (1, 1), (1, 1))) == b"abcdef"
    assert pixels.take(ONE, a_submit(2, (1, 1))) == b"xyz"
    assert pixels.take(OTHER, a_submit(1, (1, 1))) == b"123"
    assert pixels.take(ONE, a_submit(1)) == b""

    pixels = ArrivingPixels()
    for connection in (ONE, OTHER):
        pixels.add(connection, MediaPixels(1, b"abc"))
    pixels.drop_all(ONE)
    pixels.drop(OTHER, 1)

    for connection in (ONE, OTHER):
        with pytest.raises(ValueError, match="number of bytes"):
            pixels.take(connection, a_submit(1, (1, 1)))

    pixels = ArrivingPixels()
    part = bytes(MAX_MEDIA_BYTES // 2)
    for _ in range(4):
        pixels.add(ONE, MediaPixels(1, part))

    with pytest.raises(Overloaded):
        pixels.take(ONE, a_submit(1, (1, 1)))
    pixels.add(ONE, MediaPixels(1, b"abc"))
    assert pixels.take(ONE, a_submit(1, (1, 1))) == b"abc"

    pixels = ArrivingPixels()
    num_requests = (1 << 30) // MAX_MEDIA_BYTES + 1
    for id_ in range(num_requests):
        pixels.add(ONE, MediaPixels(id_, bytes(MAX_MEDIA_BYTES)))

    with pytest.raises(Overloaded):
        pixels.take(ONE, a_submit(num_requests - 1, (1, 1)))
    pixels.drop_all(ONE)
    pixels.add(ONE, MediaPixels(1, b"abc"))
    assert pixels.take(ONE, a_submit(1, (1, 1))) == b"abc"


@table("part", [b"", b"12", b"1234"])
def test_a_request_with_other_pixels_than_its_pictures_have_is_refused(part: bytes) -> None:
    pixels = ArrivingPixels()
    pixels.add(ONE, MediaPixels(1, part))
    with pytest.raises(ValueError, match="number of bytes"):
        pixels.take(ONE, a_submit(1, (1, 1)))


# How often pictures are encoded


def paced(num_steps: int, *, num_prefill_steps: int = 1) -> EncodingPace:
    """A pace after an encoding at the time 0, and so many steps."""
    pace = EncodingPace()
    pace.note_encoding(num_prefill_steps, 0.0)
    for _ in range(num_steps):
        pace.note_step()
    return pace


@table(
    "pace, values, expected",
    [
        (EncodingPace(), {}, True),
        # Only one request is encoded between two steps.
        (paced(0), {"num_streams": 0}, False),
        (paced(0), {"now": 100.0}, False),
        (paced(0), {"num_streams": 0, "is_idle": True}, True),
        # Running streams get many steps between two encodings, and for each step of a prompt.
        (paced(119), {}, False),
        (paced(120), {}, True),
        (paced(359, num_prefill_steps=3), {}, False),
        (paced(360, num_prefill_steps=3), {}, True),
        # Without running streams a picture does not wait, and beside them not for long.
        (paced(1), {"num_streams": 0}, True),
        (paced(1), {"now": 4.0}, False),
        (paced(1), {"now": 5.0}, True),
    ],
)
def test_a_picture_waits_for_steps_of_streams(pace, values, expected):
    usual = {"now": 1.0, "num_streams": 4, "is_idle": False}
    assert pace.may_encode(**{**usual, **values}) is expected
