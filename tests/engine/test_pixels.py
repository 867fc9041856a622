"""Pixels that arrive before their request, and how often pictures are encoded."""

from __future__ import annotations

from typing import Any, cast

import pytest

from vinery_serving.core.media import MAX_MEDIA_BYTES
from vinery_serving.engine.encoding_pace import EncodingPace
from vinery_serving.engine.pixels import ArrivingPixels, PixelsRefused
from vinery_serving.transport.messages import MediaInput, MediaPixels, SamplingParams, Submit

ONE, OTHER = cast("Any", object()), cast("Any", object())  # connections


def a_submit(id_: int, *sizes: tuple[int, int]) -> Submit:
    media = tuple(MediaInput(1, (1, 1, 1), height, width) for height, width in sizes)
    return Submit(id_, bytes(8), SamplingParams(), 1, 60.0, media=media)


def test_the_parts_of_requests_and_gateways_are_kept_apart() -> None:
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


@pytest.mark.parametrize("part", [b"", b"12", b"1234"])
def test_a_request_with_other_pixels_than_its_pictures_have_is_refused(part: bytes) -> None:
    pixels = ArrivingPixels()
    pixels.add(ONE, MediaPixels(1, part))

    with pytest.raises(ValueError, match="number of bytes"):
        pixels.take(ONE, a_submit(1, (1, 1)))


def test_pixels_of_a_lost_gateway_or_a_cancelled_request_are_dropped() -> None:
    pixels = ArrivingPixels()
    for connection in (ONE, OTHER):
        pixels.add(connection, MediaPixels(1, b"abc"))
    pixels.drop_all(ONE)
    pixels.drop(OTHER, 1)

    for connection in (ONE, OTHER):
        with pytest.raises(ValueError, match="number of bytes"):
            pixels.take(connection, a_submit(1, (1, 1)))


def test_too_many_pixels_of_a_request_are_not_held() -> None:
    pixels = ArrivingPixels()
    part = bytes(MAX_MEDIA_BYTES // 2)
    for _ in range(4):
        pixels.add(ONE, MediaPixels(1, part))

    with pytest.raises(PixelsRefused):
        pixels.take(ONE, a_submit(1, (1, 1)))
    pixels.add(ONE, MediaPixels(1, b"abc"))
    assert pixels.take(ONE, a_submit(1, (1, 1))) == b"abc"


def test_too_many_pixels_of_all_requests_are_not_held_until_some_are_taken() -> None:
    pixels = ArrivingPixels()
    num_requests = (1 << 30) // MAX_MEDIA_BYTES + 1
    for id_ in range(num_requests):
        pixels.add(ONE, MediaPixels(id_, bytes(MAX_MEDIA_BYTES)))

    with pytest.raises(PixelsRefused):
        pixels.take(ONE, a_submit(num_requests - 1, (1, 1)))
    pixels.drop_all(ONE)
    pixels.add(ONE, MediaPixels(1, b"abc"))
    assert pixels.take(ONE, a_submit(1, (1, 1))) == b"abc"


# How often pictures are encoded


def paced(*, encoding_s: float = 0.2, num_steps: int = 0) -> EncodingPace:
    """A pace after an encoding of a million pixels at the time 0, and steps of 10 ms."""
    pace = EncodingPace()
    pace.note_step(0.01)
    pace.note_encoding(10**6, encoding_s, 0.0)
    for _ in range(num_steps):
        pace.note_step(0.01)
    return pace


def may_encode(
    pace: EncodingPace, *, num_pixels: int = 10**6, now: float = 1.0, num_streams: int = 4
) -> bool:
    return pace.may_encode(num_pixels, now, num_streams=num_streams, is_idle=False)


def test_the_first_picture_is_encoded_at_once() -> None:
    assert may_encode(EncodingPace())


def test_only_one_request_is_encoded_between_two_steps() -> None:
    assert not may_encode(paced(encoding_s=1e-6))
    assert not may_encode(paced(), num_streams=0)
    assert paced().may_encode(1, 0.0, num_streams=0, is_idle=True)


def test_running_streams_get_many_steps_between_two_encodings() -> None:
    assert not may_encode(paced(num_steps=100))
    assert may_encode(paced(num_steps=120))


def test_an_encoding_that_is_shorter_than_a_step_does_not_wait() -> None:
    assert may_encode(paced(encoding_s=0.002, num_steps=1))
    assert may_encode(paced(num_steps=1), num_pixels=1000)


def test_without_running_streams_a_picture_does_not_wait() -> None:
    assert may_encode(paced(num_steps=1), num_streams=0)


def test_a_picture_does_not_wait_for_long() -> None:
    assert not may_encode(paced(num_steps=1), now=4.0)
    assert may_encode(paced(num_steps=1), now=6.0)
