"""Files of very many parts are refused for their number; those of many, as programs and cameras
write them, are decoded."""

from __future__ import annotations

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
from tests.media.many_parts import files_of_many_parts
from tests.media.videos import video
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import MediaKind
from vinery_serving.media.decoding import decode_document, decode_image, decode_video

DECODERS = {
    MediaKind.IMAGE: decode_image,
    MediaKind.VIDEO: decode_video,
    MediaKind.DOCUMENT: decode_document,
}
# What the refusal of a file names. The others are read fast, and refused as damaged.
NAMED = {
    "png-400000-texts": "50000 chunks",
    "png-exif-of-2-million-ratios": "50000 values of the TIFF tag 274",
    "apng-20000-frames": "20000 frames",
    "gif-comment-in-bytes": "200000 blocks",
    "gif-bytes-between-blocks": "65536 bytes between its blocks",
    "gif-bytes-between-many-blocks": "65536 bytes between its blocks",
    "gif-a-million-extensions": "200000 blocks",
    "jpeg-4-million-comments": "10000 segments",
    "jpeg-9-million-restarts": "65536 bytes between its segments",
    "jpeg-9000-exif-segments": "16 segments of EXIF data",
    "jpeg-bytes-behind-markers": "65536 bytes between its segments",
    "jpeg-10000-scans": "100 scans",
    "tiff-2-million-strips": "50000 values of the TIFF tag 273",
    "tiff-2-million-ratios": "50000 values of the TIFF tag 282",
    "tiff-big-strips": "50000 values of the TIFF tag 273",
    "webp-100000-frames": "100000 frames",
    "bmp-9-million-runs": "run lengths of more than 1048576 bytes",
    "avif-100000-locations": "65536 bytes in its list `iloc`",
    "avif-100000-items": "65536 bytes in its list `iinf`",
    "webm-2-million-frames": "more frames than can be read",
    "pdf-900000-objects": "250000 objects",
    "pdf-a-million-streams": "20000 streams",
    "pdf-a-page-of-40-megabytes": "25165824 bytes of drawing",
}


def test_files_of_very_many_parts_are_refused_for_their_number() -> None:
    seen = set()
    for name, kind, data in files_of_many_parts():
        with pytest.raises(InvalidRequest) as refused:
            DECODERS[kind](data, LIMITS, same_size, PARAM)
        assert refused.value.param == PARAM
        assert NAMED.get(name, "is damaged") in refused.value.message
        seen.add(name)

    assert seen >= NAMED.keys()


def test_a_png_in_small_chunks_is_decoded() -> None:
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


def _chunks(data: bytes, start: int, end: int) -> list[tuple[int, int]]:
    found = []
    while start < end:
        length = int.from_bytes(data[start : start + 4])
        found.append((start, length))
        start += 12 + length
    return found


def test_a_gif_of_two_thousand_frames_with_comments_is_decoded() -> None:
    comment = b"!\xfe" + b"\xff".ljust(256, b"a") * 20 + b"\0"
    frame = gif_image(8, 8, codes=b"\x84\x8f\xa9\xcb\xed\x0f\x63\x2b")

    clip = decode_video(gif(*[comment + frame] * 2000, b";"), LIMITS, same_size, PARAM)

    assert clip.num_frames == LIMITS.max_frames


def test_a_gif_with_palettes_of_its_frames_is_decoded() -> None:
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


def test_a_jpeg_in_front_of_other_data_is_decoded() -> None:
    data = good_pictures()["progressive-jpeg"] + b"\xff\xda" * 1_000_000

    assert_shows(decoded(data), tolerance=4)


def test_a_progressive_jpeg_of_many_scans_is_decoded() -> None:
    jpeg = saved(quadrants(960, 640), "JPEG", progressive=True, quality=95)

    assert jpeg.count(b"\xff\xda") >= 10
    assert_shows(decoded(jpeg), tolerance=4)


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("is_big", [False, True])
def test_a_tiff_with_a_strip_for_each_row_is_decoded(
    compression: str | None, *, is_big: bool
) -> None:
    data = saved(
        quadrants(16, 20_000), "TIFF", compression=compression, strip_size=48, big_tiff=is_big
    )

    assert_shows(decoded(data))


def test_a_bmp_with_run_lengths_is_decoded() -> None:
    file = BytesIO()
    quadrants(96, 64).quantize(4).save(file, "BMP")
    plain = file.getvalue()
    offset = int.from_bytes(plain[10:14], "little")
    rows = [plain[offset + 96 * row :][:96] for row in range(64)]
    runs = b"".join(bytes((48, row[0], 48, row[50])) + b"\0\0" for row in rows) + b"\0\1"
    data = plain[:30] + b"\1\0\0\0" + len(runs).to_bytes(4, "little") + plain[38:offset] + runs

    assert_shows(decoded(data))


@pytest.mark.parametrize("flags", ["frag_every_frame+empty_moov", "faststart"])
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
