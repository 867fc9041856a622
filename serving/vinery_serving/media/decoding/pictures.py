"""Decodes pictures, and frames of animated ones, with Pillow: upright, in RGB, on white, and in the
size that a model takes.

The first bytes of a file choose the decoder. Pillow's other decoders, some of which start programs,
are never tried.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Final

import numpy as np
from PIL import AvifImagePlugin, ExifTags, Image, ImageFile, TiffImagePlugin, WebPImagePlugin

from vinery_serving.core.media import Clip, MediaKind, Picture
from vinery_serving.media import decoding

# AVIF's decoder would start a thread for each core. Threads cost address space, which is limited.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1
_PLUGINS: Final = (TiffImagePlugin, WebPImagePlugin)  # the others are imported by Pillow itself

_UPRIGHT: Final = 1
# A JPEG decoder halves a picture at almost no cost, but not as well as a filter. So it leaves at
# least so many times the pixels of each row and column that are needed.
_SPARE: Final = 2


def read_picture(data: bytes, limits: decoding.DecodeLimits, fit: decoding.Fit) -> Picture:
    """Return the first frame. Raises `Unreadable`, and what `fit` raises."""
    file_type = decoding.check_type(data, MediaKind.IMAGE, limits.max_bytes)
    with _reading(file_type, limits.max_pixels):
        image = _opened(data, file_type, limits.max_pixels)
        if file_type.codec != "JPEG":
            image.load()
        orientation = _orientation_of(image)
    width, height = decoding.fitted(fit, _stored(image.size, orientation))
    stored_width, stored_height = _stored((width, height), orientation)
    with _reading(file_type, limits.max_pixels):
        image.draft(None, (_SPARE * stored_width, _SPARE * stored_height))
        image.load()
        return Picture(height, width, _to_rgb(image, (width, height), orientation).tobytes())


def read_animation(
    data: bytes, file_type: decoding.FileType, limits: decoding.DecodeLimits, fit: decoding.Fit
) -> Clip:
    """Return frames of a GIF, PNG, WebP or AVIF file. Raises `Unreadable` and what `fit` raises."""
    with _reading(file_type, limits.max_pixels):
        image = _opened(data, file_type, limits.max_pixels)
        image.load()
        orientation = _orientation_of(image)
    size = decoding.fitted(fit, _stored(image.size, orientation))
    frames, times_s, now_ms = [], [], 0.0
    with _reading(file_type, limits.max_pixels):
        num_frames = _num_frames(image, limits)
        wanted = frozenset(decoding.evenly(num_frames, limits.max_frames))
        for index in range(num_frames):
            image.seek(index)
            image.load()
            if index in wanted:
                frames.append(_to_rgb(image, size, orientation).tobytes())
                times_s.append(now_ms / 1000)
            now_ms += _duration_ms(image)
    width, height = size
    return Clip(len(frames), height, width, b"".join(frames), decoding.rate_of(times_s))


def _num_frames(image: ImageFile.ImageFile, limits: decoding.DecodeLimits) -> int:
    num_frames = int(getattr(image, "n_frames", 1))
    num_pixels = num_frames * image.width * image.height
    # Each frame takes time, however small it is.
    if num_frames > 10_000 or num_pixels > limits.max_video_pixels:
        raise decoding.Unreadable(
            f"has {num_frames} frames of {image.width} x {image.height} pixels, which take too "
            "long to decode. Send fewer or smaller ones"
        )
    return num_frames


def _duration_ms(image: ImageFile.ImageFile) -> float:
    """Browsers show a frame that declares 10 ms or less for 100 ms."""
    duration_ms = image.info.get("duration")
    return duration_ms if isinstance(duration_ms, int | float) and duration_ms > 10 else 100


@contextmanager
def _reading(file_type: decoding.FileType, max_pixels: int) -> Iterator[None]:
    """Raise `Unreadable` for all errors of Pillow, which counts pixels at each allocation."""
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = (max_pixels + 1) // 2  # Pillow raises for twice as many
    try:
        with decoding.reading(file_type.name), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except Image.DecompressionBombError:
                raise decoding.too_large("more", max_pixels) from None
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _opened(data: bytes, file_type: decoding.FileType, max_pixels: int) -> ImageFile.ImageFile:
    """Read the header. Raises `Unreadable`."""
    image = Image.open(BytesIO(data), formats=[file_type.codec])
    decoding.check_size(*image.size, max_pixels)
    return image


def _orientation_of(image: ImageFile.ImageFile) -> int:
    """Return EXIF's `Orientation`, 1 to 8, that is still to be applied. Load a picture first that
    is no JPEG: Pillow would load a PNG here, and its errors would be lost."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return _UPRIGHT  # Pillow applies it
    with suppress(Exception):  # damaged EXIF data make no picture unreadable
        value = image.getexif().get(ExifTags.Base.Orientation)
        if isinstance(value, int) and 1 <= value <= 8:
            return value
    return _UPRIGHT


_TRANSPOSITIONS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# From a mode of Pillow to the mode with 8 bits that has the same colours and transparency.
_EIGHT_BIT_MODES: Final = {
    **{mode: mode for mode in ("L", "LA", "RGB", "RGBA")},
    **dict.fromkeys(("P", "CMYK", "YCbCr", "HSV", "RGBX"), "RGB"),
    **dict.fromkeys(("PA", "RGBa"), "RGBA"),
    "1": "L",
    "La": "LA",
}


def _stored(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Return the size of the stored picture for an upright size, or the reverse."""
    return size[::-1] if orientation >= 5 else size


def _to_rgb(image: Image.Image, size: tuple[int, int], orientation: int) -> Image.Image:
    """Return the picture in mode RGB and of this upright size in pixels. Raises `Unreadable`.

    The filter is bicubic, as in the processors of Qwen2-VL, LLaVA and most other models.
    """
    transposition = _TRANSPOSITIONS.get(orientation)
    image = _eight_bit(image)
    if image.size != _stored(size, orientation):
        image = image.resize(_stored(size, orientation), Image.Resampling.BICUBIC)
    image = _on_white(image)
    return image if transposition is None else image.transpose(transposition)


def _eight_bit(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return _from_16_bits(image)
    mode = _EIGHT_BIT_MODES.get(image.mode)
    if mode is None:
        raise decoding.Unreadable(
            f"has colours of a kind that is not read ({image.mode}): save it as RGB"
        )
    if image.has_transparency_data:
        mode = {"L": "LA", "RGB": "RGBA"}.get(mode, mode)
    return image if image.mode == mode else image.convert(mode)


def _from_16_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    if isinstance(transparent := image.info.get("transparency"), int):
        alpha = np.where(values == transparent, 0, 255).astype(np.uint8)
        grey.putalpha(Image.fromarray(alpha))
    return grey


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode not in ("LA", "RGBA"):
        return image.convert("RGB")
    white = Image.new("RGB", image.size, "white")
    white.paste(image.convert("RGB"), mask=image.getchannel("A"))
    return white
