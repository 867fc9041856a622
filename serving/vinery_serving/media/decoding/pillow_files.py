"""Opens picture files with Pillow: one decoder for each file, chosen by its first bytes.

Pillow's other decoders, some of which start programs, are never tried.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Final

from PIL import AvifImagePlugin, ExifTags, Image, ImageFile, TiffImagePlugin, WebPImagePlugin

from vinery_serving.media.decoding.file_types import FileType
from vinery_serving.media.decoding.refusals import Unreadable, reading
from vinery_serving.media.decoding.structure import EXIF, check_tags

# AVIF's decoder would start a thread for each core. Threads cost address space, which is limited.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1
_PLUGINS: Final = (TiffImagePlugin, WebPImagePlugin)  # the others are imported by Pillow itself
_UPRIGHT: Final = 1


@contextmanager
def pixel_limit(max_pixels: int) -> Iterator[None]:
    """Let Pillow refuse more pixels wherever it allocates them, such as for a later frame. Raises
    `Unreadable`."""
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = (max_pixels + 1) // 2  # Pillow raises for twice as many
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def open_picture(data: bytes, file_type: FileType, max_pixels: int) -> ImageFile.ImageFile:
    """Read the header. Raises `Unreadable`."""
    with reading_picture(file_type, max_pixels):
        image = Image.open(BytesIO(data), formats=[file_type.codec])
        check_size(*image.size, max_pixels)
        return image


def load(image: ImageFile.ImageFile, file_type: FileType, max_pixels: int) -> None:
    """Decode the frame. Raises `Unreadable`."""
    with reading_picture(file_type, max_pixels):
        image.load()


@contextmanager
def reading_picture(file_type: FileType, max_pixels: int) -> Iterator[None]:
    """Raise `Unreadable` for all errors of Pillow."""
    with reading(file_type.name):
        try:
            yield
        except Image.DecompressionBombError:
            raise Unreadable(_too_large("more", max_pixels)) from None


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raises `Unreadable`."""
    if min(width, height) < 1:
        raise Unreadable("has no pixels: its width or height is 0")
    if width * height > max_pixels:
        raise Unreadable(_too_large(f"{width} x {height}", max_pixels))


def _too_large(size: str, max_pixels: int) -> str:
    return f"has {size} pixels, and at most {max_pixels} are read. Scale it down before sending it"


def orientation_of(image: ImageFile.ImageFile) -> int:
    """Return EXIF's `Orientation`, 1 to 8, that is still to be applied. Load a picture first that
    is no JPEG: Pillow would load a PNG here, and its errors would be lost. Raises `Unreadable` for
    data that take long."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return _UPRIGHT  # Pillow applies it
    check_tags(image.info.get("exif", b"").removeprefix(EXIF))
    with suppress(Exception):  # damaged EXIF data make no picture unreadable
        value = image.getexif().get(ExifTags.Base.Orientation)
        if isinstance(value, int) and 1 <= value <= 8:
            return value
    return _UPRIGHT
