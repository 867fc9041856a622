"""Pictures that tests draw, and the expected pixels."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

from PIL import Image

from vinery_serving.core.media import Clip, Picture
from vinery_serving.media.decoding import DecodeLimits, decode_image

Colour = tuple[int, int, int]

RED, GREEN, BLUE, BLACK, WHITE = (
    *((220, 20, 30), (10, 160, 40), (20, 30, 200)),
    *((0, 0, 0), (255, 255, 255)),
)
# From left to right, the upper row first: no rotation or reflection has the same.
QUADRANTS = (RED, GREEN, BLUE, BLACK)
PARAM = "messages[0].content[1].image_url"
LIMITS = DecodeLimits()


def same_size(width: int, height: int) -> tuple[int, int]:
    return width, height


def to_size(width: int, height: int) -> Callable[[int, int], tuple[int, int]]:
    return lambda *_: (width, height)


def quadrants(
    width: int = 96, height: int = 64, colours: tuple[Colour, ...] = QUADRANTS
) -> Image.Image:
    """Four areas of one colour each."""
    picture = Image.new("RGB", (width, height))
    for index, colour in enumerate(colours):
        left, top = index % 2 * (width // 2), index // 2 * (height // 2)
        picture.paste(colour, (left, top, width, height))
    return picture


def saved(image: Image.Image, file_type: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, file_type, **options)
    return file.getvalue()


def decoded(data: bytes, fit: Callable[[int, int], tuple[int, int]] = same_size) -> Picture:
    return decode_image(data, LIMITS, fit, PARAM)


def image_of(picture: Picture) -> Image.Image:
    return Image.frombytes("RGB", (picture.width, picture.height), picture.pixels)


def frames_of(clip: Clip) -> list[Picture]:
    num_bytes = clip.height * clip.width * 3
    return [
        Picture(clip.height, clip.width, clip.pixels[index * num_bytes :][:num_bytes])
        for index in range(clip.num_frames)
    ]


def seen_quadrants(picture: Picture) -> list[Colour]:
    """The colours in the middle of each quarter."""
    image = image_of(picture)
    return [
        image.getpixel((picture.width * x // 4, picture.height * y // 4))  # type: ignore[misc]
        for y in (1, 3)
        for x in (1, 3)
    ]


def is_close(seen: Colour, expected: Colour, tolerance: int) -> bool:
    return all(abs(one - other) <= tolerance for one, other in zip(seen, expected, strict=True))


def assert_shows(
    picture: Picture, colours: tuple[Colour, ...] = QUADRANTS, tolerance: int = 0
) -> None:
    seen = seen_quadrants(picture)
    close = [is_close(*each, tolerance) for each in zip(seen, colours, strict=True)]
    assert all(close), f"{seen} instead of {colours}"
