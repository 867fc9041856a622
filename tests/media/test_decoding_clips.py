"""Videos and animations are decoded to frames in even steps, upright and in their colours."""

from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.media import drawing
from tests.media.videos import video
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import Clip
from vinery_serving.media.decoding import DecodeLimits, decode_image, decode_video, evenly

VIDEOS = [
    *(("libx264", "mp4"), ("libx264", "mov"), ("libx264", "matroska"), ("libx265", "mp4")),
    *(("libvpx", "webm"), ("libvpx-vp9", "webm"), ("libsvtav1", "mp4"), ("mpeg4", "avi")),
]


def grey_frame(index: int, size: tuple[int, int] = (96, 64)) -> Image.Image:
    """A frame with brightness by number, and the quadrants in the middle."""
    frame = Image.new("RGB", size, (index * 4,) * 3)
    frame.paste(drawing.quadrants(size[0] // 2, size[1] // 2), (size[0] // 4, size[1] // 4))
    return frame


def decoded(
    data: bytes, limits: DecodeLimits = drawing.LIMITS, fit: Any = drawing.same_size
) -> Clip:
    return decode_video(data, limits, fit, drawing.PARAM)


def numbers(clip: Clip) -> list[int]:
    """The numbers of the frames, from their brightness."""
    return [
        round(drawing.image_of(frame).getpixel((3, 3))[0] / 4)  # type: ignore[index]
        for frame in drawing.frames_of(clip)
    ]


@table("codec, container", VIDEOS)
def test_a_video_of_every_common_codec_is_read(codec: str, container: str) -> None:
    data = video([drawing.quadrants()] * 12, codec, container)

    clip = decoded(data)

    assert (clip.num_frames, clip.width, clip.height) == (12, 96, 64)
    assert clip.frames_per_s == pytest.approx(10)
    for frame in drawing.frames_of(clip):
        drawing.assert_shows(frame, tolerance=14)


@table("codec, container", [("libx264", "mp4"), ("libvpx", "webm")])
@table("gop", [1, 5, 60])
def test_frames_are_taken_in_even_steps(codec: str, container: str, gop: int) -> None:
    data = video([grey_frame(index) for index in range(51)], codec, container, 20, g=str(gop))

    clip = decoded(data, replace(drawing.LIMITS, max_frames=6))

    assert numbers(clip) == pytest.approx([0, 10, 20, 30, 40, 50], abs=1)
    assert clip.frames_per_s == pytest.approx(2.0)


def test_all_frames_come_in_their_order_or_key_frames_where_all_would_take_too_long() -> None:
    data = video([grey_frame(index) for index in range(20)], bf="3", g="8")
    assert numbers(decoded(data)) == list(range(20))

    data = video([grey_frame(index) for index in range(40)], g="10", sc_threshold="0")
    few = replace(drawing.LIMITS, max_frames=4, max_video_pixels=96 * 64 * 12)
    clip = decoded(data, few)
    assert numbers(clip) == pytest.approx([0, 10, 20, 30], abs=1)
    assert clip.frames_per_s == pytest.approx(1.0)
    with pytest.raises(InvalidRequest, match="takes too long to decode"):
        decoded(data, replace(few, max_video_pixels=96 * 64 * 3))


@table("rotation, turn", [(90, 90), (-90, 270), (180, 180)])
def test_a_video_of_a_turned_phone_is_upright(rotation: int, turn: int) -> None:
    stored = drawing.quadrants().rotate(-turn, expand=True)
    asked = []

    def fit(width: int, height: int) -> tuple[int, int]:
        asked.append((width, height))
        return 48, 32

    clip = decoded(video([stored] * 3, rotation=rotation), fit=fit)

    assert asked == [(96, 64)]
    assert (clip.width, clip.height) == (48, 32)
    drawing.assert_shows(drawing.frames_of(clip)[0], tolerance=14)


@table(
    "file_type, options",
    [("GIF", {}), ("PNG", {}), ("WEBP", {"lossless": True}), ("AVIF", {"quality": 95})],
)
def test_all_frames_of_an_animation_are_a_clip(file_type: str, options: dict[str, Any]) -> None:
    colours = [drawing.RED, drawing.GREEN, drawing.BLUE, drawing.WHITE, drawing.BLACK]
    frames = [drawing.quadrants(colours=(each, *drawing.QUADRANTS[1:])) for each in colours]
    data = drawing.saved(
        frames[0], file_type, save_all=True, append_images=frames[1:], duration=200, **options
    )

    clip = decoded(data)
    first_and_last = decoded(data, replace(drawing.LIMITS, max_frames=2), drawing.to_size(48, 32))

    assert (clip.num_frames, clip.frames_per_s) == (5, pytest.approx(5.0))
    for frame, colour in zip(drawing.frames_of(clip), colours, strict=True):
        drawing.assert_shows(frame, (colour, *drawing.QUADRANTS[1:]), tolerance=4)
    assert (first_and_last.num_frames, first_and_last.width) == (2, 48)
    assert first_and_last.frames_per_s == pytest.approx(1.25)
    drawing.assert_shows(
        drawing.frames_of(first_and_last)[1], (drawing.BLACK, *drawing.QUADRANTS[1:]), tolerance=4
    )


def test_a_gif_is_as_fast_as_in_browsers_and_a_picture_is_one_frame() -> None:
    frames = [drawing.quadrants(), drawing.quadrants().rotate(180), drawing.quadrants()]
    data = drawing.saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=5)
    assert decoded(data).frames_per_s == pytest.approx(10), "browsers show 5 ms for 100 ms"
    clip = decoded(drawing.saved(drawing.quadrants(), "PNG"))
    assert (clip.num_frames, clip.frames_per_s) == (1, 1.0)


@table(
    "limits, sentence",
    [
        ({"max_pixels": 96 * 64 - 1}, "has 96 x 64 pixels, and at most 6143 are read"),
        ({"max_duration_s": 1.9}, "lasts 2.0 s, and at most 1.9 s are read"),
        ({"max_bytes": 100}, "and at most 100 are read"),
    ],
)
def test_a_video_over_a_limit_is_refused_with_it(limits: dict[str, Any], sentence: str) -> None:
    data = video([grey_frame(index) for index in range(20)])

    with pytest.raises(InvalidRequest, match=sentence) as refusal:
        decoded(data, replace(drawing.LIMITS, **limits))

    assert refusal.value.param == drawing.PARAM


def test_what_is_no_video_of_a_listed_codec_is_refused_with_the_way_to_send_it() -> None:
    data = video([drawing.quadrants()] * 3, "ffv1", "matroska")
    with pytest.raises(InvalidRequest, match=r"codec ffv1, which is not read: send H\.264"):
        decoded(data)

    file = BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("aac", rate=8000)
        stream.layout = "mono"
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        sound.rate = 8000
        output.mux(stream.encode(sound))
        output.mux(stream.encode())
    with pytest.raises(InvalidRequest, match="has no video in it"):
        decoded(file.getvalue())

    with pytest.raises(InvalidRequest, match=r"is a video \(MP4\), but was sent as a picture"):
        decode_image(
            video([drawing.quadrants()] * 3), drawing.LIMITS, drawing.same_size, drawing.PARAM
        )

    with pytest.raises(InvalidRequest, match=r"is a picture \(BMP\), but was sent as a video"):
        decoded(drawing.saved(drawing.quadrants(), "BMP"))

    frames = [Image.new("L", (64, 64), index) for index in range(20)]
    data = drawing.saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(InvalidRequest, match="has 20 frames of 64 x 64 pixels"):
        decoded(data, replace(drawing.LIMITS, max_video_pixels=20 * 64 * 64 - 1))


@given(num_frames=st.integers(1, 10**6), max_frames=st.integers(1, 100))
def test_even_steps_have_the_first_and_the_last(num_frames: int, max_frames: int) -> None:
    taken = evenly(num_frames, max_frames)
    assert len(taken) == min(num_frames, max_frames)
    assert taken[0] == 0
    assert taken[-1] == num_frames - 1 or max_frames == 1
    steps = {after - before for before, after in pairwise(taken)}
    assert not steps or (min(steps) >= 1 and max(steps) - min(steps) <= 1)
