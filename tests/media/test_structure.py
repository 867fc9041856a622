"""Files of many parts, as programs and cameras write them, are decoded."""

from io import BytesIO

import pytest
from PIL import Image

from tests.media import pdfs
from tests.media.containers import gif, gif_image, good_pictures, jpeg_with, png_chunk
from tests.media.drawing import (
    LIMITS,
    PARAM,
    QUADRANTS,
    assert_shows,
    decoded,
    frames_of,
    quadrants,
    same_size,
    saved,
)
from tests.media.videos import video
from tests.tables import table
from vinery_serving.media.decoding import decode_document, decode_video


def test_a_png_in_small_chunks_and_a_bmp_with_run_lengths_are_decoded() -> None:
    whole = saved(Image.effect_noise((500, 500), 100).convert("RGB"), "PNG")
    start = whole.index(b"IDAT") - 4
    end = whole.index(b"IEND") - 4
    contents = b"".join(
        whole[at + 8 : at + 8 + length] for at, length in _chunks(whole, start, end)
    )
    small = b"".join(
        png_chunk(b"IDAT", contents[at : at + 32]) for at in range(0, len(contents), 32)
    )

    assert small.count(b"IDAT") > 10_000
    assert decoded(whole[:start] + small + whole[end:]) == decoded(whole)

    file = BytesIO()
    quadrants(96, 64).quantize(4).save(file, "BMP")
    plain = file.getvalue()
    offset = int.from_bytes(plain[10:14], "little")
    rows = [plain[offset + 96 * row :][:96] for row in range(64)]
    runs = b"".join(bytes((48, row[0], 48, row[50])) + b"\0\0" for row in rows) + b"\0\1"
    data = plain[:30] + b"\1\0\0\0" + len(runs).to_bytes(4, "little") + plain[38:offset] + runs

    assert_shows(decoded(data))


def _chunks(data: bytes, start: int, end: int) -> list[tuple[int, int]]:
    found = []
    while start < end:
        length = int.from_bytes(data[start : start + 4])
        found.append((start, length))
        start += 12 + length
    return found


def test_a_gif_of_two_thousand_frames_with_comments_or_with_palettes_is_decoded() -> None:
    comment = b"!\xfe" + b"\xff".ljust(256, b"a") * 20 + b"\0"
    frame = gif_image(8, 8, codes=b"\x84\x8f\xa9\xcb\xed\x0f\x63\x2b")

    clip = decode_video(gif(*[comment + frame] * 2000, b";"), LIMITS, same_size, PARAM)

    assert clip.num_frames == LIMITS.max_frames

    frames = [quadrants(96, 64), quadrants(96, 64, QUADRANTS[::-1])] * 10
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], optimize=False)

    shown = frames_of(decode_video(data, LIMITS, same_size, PARAM))

    assert_shows(shown[0])
    assert_shows(shown[1], QUADRANTS[::-1])


@pytest.mark.parametrize(
    "segments",
    [
        b"\xff\xe2\xff\xff".ljust(65_537, b"\xff") * 255,
        b"\xff\xfe\0\x06\xff\xda\xff\xd9" * 5000,
        b"\xff\xfe\0\2" + bytes(30_000) + b"\xff" * 30_000,
    ],
    ids=["a-profile-of-16-mb", "comments-like-scans", "filled"],
)
def test_a_jpeg_with_many_segments_is_decoded(segments: bytes) -> None:
    assert_shows(decoded(jpeg_with(segments)), tolerance=4)


def test_a_jpeg_of_many_scans_or_in_front_of_other_data_is_decoded() -> None:
    data = good_pictures()["progressive-jpeg"] + b"\xff\xda" * 1_000_000

    assert_shows(decoded(data), tolerance=4)

    jpeg = saved(quadrants(960, 640), "JPEG", progressive=True, quality=95)

    assert jpeg.count(b"\xff\xda") >= 10
    assert_shows(decoded(jpeg), tolerance=4)


@table("compression", [None, "tiff_lzw"])
@table("is_big", [False, True])
def test_a_tiff_of_a_strip_for_each_row_is_read(compression: str | None, *, is_big: bool) -> None:
    data = saved(
        quadrants(16, 20_000), "TIFF", compression=compression, strip_size=48, big_tiff=is_big
    )

    assert_shows(decoded(data))


@table("flags", ["frag_every_frame+empty_moov", "faststart"])
def test_a_video_in_fragments_is_decoded(flags: str) -> None:
    data = video([quadrants()] * 400, movflags=flags)

    clip = decode_video(data, LIMITS, same_size, PARAM)

    assert clip.num_frames == LIMITS.max_frames
    assert_shows(frames_of(clip)[-1], tolerance=14)


def test_a_document_with_large_pictures_and_fonts_is_decoded() -> None:
    """They are not counted as drawing."""
    font = pdfs.deflated(bytes(20_000_000), b"/Length1 20000000")
    entries = b"/Type /XObject /Subtype /Image /Width 3000 /Height 3000 /BitsPerComponent 8"
    picture = pdfs.deflated(bytes(27_000_000), entries + b" /ColorSpace /DeviceRGB")
    objects = {**pdfs.pages([pdfs.QUADRANTS + b" 0 0 1 1 re f " * 500_000]), 6: picture, 7: font}

    (page,) = decode_document(pdfs.pdf(objects), LIMITS, same_size, PARAM)

    assert_shows(page.picture)
