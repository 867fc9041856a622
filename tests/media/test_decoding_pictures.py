"""Pictures of every format are decoded upright, on white, in 8 bits."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops

from tests.media.containers import png_chunk
from tests.media.drawing import (
    BLACK,
    BLUE,
    GREEN,
    LIMITS,
    PARAM,
    QUADRANTS,
    RED,
    WHITE,
    assert_shows,
    decoded,
    image_of,
    quadrants,
    same_size,
    saved,
    to_size,
)
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import MediaKind
from vinery_serving.media.decoding import decode_image, kind_of

LOSSLESS: dict[str, dict[str, Any]] = {"PNG": {}, "BMP": {}, "TIFF": {"compression": "tiff_lzw"}}
LOSSLESS |= {"WEBP": {"lossless": True}, "GIF": {}}
_ORIENTATION = 0x0112
# Of the orientations from 2 on.
_TRANSPOSITIONS = [
    *(Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.FLIP_TOP_BOTTOM),
    *(Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_90, Image.Transpose.TRANSVERSE),
    Image.Transpose.ROTATE_270,
]


@table("file_type", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@table("orientation", range(1, 9))
def test_a_picture_stored_in_any_orientation_is_upright(file_type: str, orientation: int) -> None:
    stored = quadrants()
    if orientation > 1:
        stored = stored.transpose(_TRANSPOSITIONS[orientation - 2])
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    options = {"quality": 95} if file_type in ("JPEG", "AVIF") else LOSSLESS[file_type]
    asked = []

    def fit(width: int, height: int) -> tuple[int, int]:
        asked.append((width, height))
        return width // 2, height // 2

    picture = decoded(saved(stored, file_type, exif=exif, **options), fit)

    assert asked == [(96, 64)]
    assert (picture.width, picture.height) == (48, 32)
    assert_shows(picture, tolerance=4)


def with_alpha(values: tuple[int, ...]) -> Image.Image:
    """The quadrants, with an alpha value for each."""
    image = quadrants().convert("RGBA")
    image.putalpha(quadrants(colours=tuple((each,) * 3 for each in values)).convert("L"))
    return image


def index_of(image: Image.Image, x: int, y: int) -> int:
    index = image.getpixel((x, y))
    assert isinstance(index, int)
    return index


FINE = {"quality": 95}
NOT_RED = (WHITE, GREEN, BLUE, BLACK)
SEEN_THROUGH = with_alpha((255, 0, 128, 128))
ON_WHITE = (RED, WHITE, (137, 142, 227), (127, 127, 127))
GREY = quadrants().convert("L")
GREYS = tuple(GREY.convert("RGB").getpixel((x, y)) for y in (10, 50) for x in (10, 80))
GREY_SEEN_THROUGH = with_alpha((255, 0, 255, 128)).convert("LA")
DEEP_GREY = Image.fromarray(np.asarray(GREY).astype(np.uint16) * 257)
PALETTE = quadrants().convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
RED_INDEX, GREEN_INDEX = index_of(PALETTE, 10, 10), index_of(PALETTE, 80, 10)
ALPHAS = bytes({RED_INDEX: 0, GREEN_INDEX: 255}.get(index, 255) for index in range(4))
INK = quadrants(colours=(RED, GREEN, BLUE, WHITE)).convert("CMYK")
FRAMES = {
    "save_all": True,
    "append_images": [quadrants(colours=(WHITE,) * 4), quadrants(colours=(BLACK,) * 4)],
}


@table(
    "image, file_type, options, shown, tolerance",
    [
        *((SEEN_THROUGH, each, {}, ON_WHITE, 4) for each in ("PNG", "TIFF")),
        (SEEN_THROUGH, "WEBP", {"lossless": True, "exact": True}, ON_WHITE, 4),
        (SEEN_THROUGH, "AVIF", FINE, ON_WHITE, 4),
        # A colour may be transparent, of a palette or without one.
        (PALETTE, "PNG", {}, QUADRANTS, 0),
        (PALETTE, "GIF", {"transparency": RED_INDEX}, NOT_RED, 0),
        (PALETTE, "PNG", {"transparency": ALPHAS}, NOT_RED, 0),
        (quadrants(), "PNG", {"transparency": RED}, NOT_RED, 0),
        (GREY, "PNG", {"transparency": index_of(GREY, 10, 10)}, (WHITE, *GREYS[1:]), 0),
        *((GREY, each, {}, GREYS, 4) for each in ("PNG", "TIFF", "BMP")),
        *((GREY, each, FINE, GREYS, 4) for each in ("JPEG", "WEBP", "AVIF")),
        (GREY_SEEN_THROUGH, "PNG", {}, (GREYS[0], WHITE, GREYS[2], (127, 127, 127)), 0),
        *((DEEP_GREY, each, {}, GREYS, 0) for each in ("PNG", "TIFF")),
        # Not inverted.
        (INK, "JPEG", FINE, (RED, GREEN, BLUE, WHITE), 6),
        (INK, "TIFF", {}, (RED, GREEN, BLUE, WHITE), 6),
        (quadrants().convert("YCbCr"), "TIFF", {}, QUADRANTS, 3),
        # Of several frames, the first.
        *((quadrants(), each, FRAMES, QUADRANTS, 4) for each in ("GIF", "PNG", "TIFF")),
        (quadrants(), "WEBP", {"lossless": True, **FRAMES}, QUADRANTS, 4),
        *((quadrants(), each, FINE | FRAMES, QUADRANTS, 4) for each in ("AVIF", "MPO")),
    ],
)
def test_a_picture_of_any_mode_is_shown_in_its_colours_on_white(
    image: Image.Image,
    file_type: str,
    options: dict[str, Any],
    shown: tuple[Any, ...],
    tolerance: int,
) -> None:
    assert_shows(decoded(saved(image, file_type, **options)), shown, tolerance)


def test_transparency_tints_no_neighbours_and_a_transparent_value_of_16_bits_is_white() -> None:
    image = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    image.paste((*RED, 255), (0, 0, 64, 31))

    scaled = image_of(decoded(saved(image, "PNG"), to_size(8, 8)))

    for y in range(8):
        red, green, _ = scaled.getpixel((4, y))  # type: ignore[misc]
        assert red >= RED[0] - 2, "black that no viewer shows"
        assert green == pytest.approx(255 if y > 3 else 20, abs=40)

    values = np.full((8, 8), 300, np.uint16)
    values[:, 4:] = 301
    image = Image.fromarray(values)

    picture = decoded(png_with_transparency(saved(image, "PNG"), 300))

    assert_shows(picture, (WHITE, (1, 1, 1), WHITE, (1, 1, 1)))


def png_with_transparency(data: bytes, value: int) -> bytes:
    before, idat, after = data.partition(data[data.index(b"IDAT") - 4 :][:8])
    return before + png_chunk(b"tRNS", value.to_bytes(2)) + idat + after


@table("file_type", ["PNG", "BMP", "TIFF"])
@given(width=st.integers(1, 200), height=st.integers(1, 200))
def test_scaling_is_bicubic(file_type: str, width: int, height: int) -> None:
    drawn = Image.effect_mandelbrot((90, 70), (-2, -1, 1, 1), 30).convert("RGB")

    picture = decoded(saved(drawn, file_type), to_size(width, height))

    expected = drawn.resize((width, height), Image.Resampling.BICUBIC)
    assert picture.pixels == expected.tobytes()


def test_a_jpeg_that_is_scaled_far_down_keeps_what_is_seen_and_its_sides() -> None:
    drawn = Image.effect_mandelbrot((2000, 1600), (-2, -1, 1, 1), 30).convert("RGB")
    data = saved(drawn, "JPEG", quality=95)

    picture = decoded(data, to_size(100, 80))

    expected = drawn.resize((100, 80), Image.Resampling.BICUBIC)
    difference = ImageChops.difference(image_of(picture), expected)
    assert np.asarray(difference).mean() < 3

    exif = Image.Exif()
    exif[_ORIENTATION] = 6
    stored = quadrants(1600, 400).transpose(Image.Transpose.ROTATE_90)

    picture = decoded(saved(stored, "JPEG", quality=95, exif=exif), to_size(80, 20))

    assert (picture.width, picture.height) == (80, 20)
    assert_shows(picture, tolerance=4)


@table("file_type", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_more_pixels_than_allowed_are_refused_with_their_number(file_type: str) -> None:
    data = saved(quadrants(100, 50), file_type)

    decode_image(data, replace(LIMITS, max_pixels=5000), same_size, PARAM)
    with pytest.raises(InvalidRequest) as refusal:
        decode_image(data, replace(LIMITS, max_pixels=4999), same_size, PARAM)

    assert refusal.value.status == 400
    assert refusal.value.param == PARAM
    assert refusal.value.message.startswith(f"`{PARAM}` has ")
    assert "at most 4999 are read. Scale it down" in refusal.value.message


def test_what_the_model_or_a_limit_refuses_is_refused_for_the_part() -> None:
    data = saved(quadrants(), "PNG")

    decode_image(data, replace(LIMITS, max_bytes=len(data)), same_size, PARAM)
    with pytest.raises(InvalidRequest, match=f"is a file of {len(data)} bytes"):
        decode_image(data, replace(LIMITS, max_bytes=len(data) - 1), same_size, PARAM)

    def fit(width: int, height: int) -> tuple[int, int]:
        raise InvalidRequest("This model reads no such shape.")

    with pytest.raises(InvalidRequest, match="no such shape") as refusal:
        decoded(saved(quadrants(), "PNG"), fit)

    assert refusal.value.param == PARAM

    with pytest.raises(InvalidRequest, match="is too narrow for this model: 3000 x 1 pixels"):
        decoded(saved(quadrants(3000, 1), "PNG"), lambda width, height: (width // 30, 0))

    for mode in ("LAB", "F", "I"):
        with pytest.raises(
            InvalidRequest, match=rf"not read \({mode}\): save it as RGB"
        ) as refusal:
            decoded(saved(Image.new(mode, (8, 8)), "TIFF"))
        assert refusal.value.param == PARAM


@table(
    "data, kind",
    [
        *((saved(quadrants(), each), MediaKind.IMAGE) for each in ("PNG", "AVIF", "WEBP")),
        (b"\0\0\0\x18ftypmp42\0\0\0\0isommp42", MediaKind.VIDEO),
        (b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", MediaKind.VIDEO),
        (b"\0\0\x10\0moov", MediaKind.VIDEO),
        (b"\x1a\x45\xdf\xa3", MediaKind.VIDEO),
        (b"RIFF\0\0\0\0AVI LIST", MediaKind.VIDEO),
        (b"%PDF-1.7", MediaKind.DOCUMENT),
        (b"RIFF\0\0\0\0WAVEfmt ", None),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", None),
        *((data, None) for data in (b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"", b"hello")),
    ],
)
def test_the_first_bytes_show_the_kind_of_a_file(data: bytes, kind: MediaKind | None) -> None:
    assert kind_of(data) is kind


def test_the_web_process_imports_no_decoder() -> None:
    code = (
        "import sys, vinery_serving.media.decoding, vinery_serving.gateway.reading.worker_jobs;"
        "print(sorted({'PIL', 'av', 'pypdfium2'} & set(sys.modules)))"
    )

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout == "[]\n"
