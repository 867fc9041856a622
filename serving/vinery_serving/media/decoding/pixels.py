"""From the pixels of any picture to upright RGB on white, in the size that a model takes."""

from typing import Any, Final

import numpy as np
from PIL import Image

from vinery_serving.media.decoding.limits import Fit
from vinery_serving.media.decoding.refusals import Unreadable

_TRANSPOSITIONS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# From a mode of Pillow to the one with 8 bits that has the same colours and transparency.
_EIGHT_BIT_MODES: Final = {
    **{mode: mode for mode in ("L", "LA", "RGB", "RGBA")},
    **dict.fromkeys(("P", "CMYK", "YCbCr", "HSV", "RGBX"), "RGB"),
    **dict.fromkeys(("PA", "RGBa"), "RGBA"),
    "1": "L",
    "La": "LA",
}
_WITH_ALPHA: Final = {"L": "LA", "RGB": "RGBA"}
_INTEGER_WHITES: Final = (255.0, 65535.0)
_FLOAT_WHITES: Final = (1.0, *_INTEGER_WHITES)

_Array = np.ndarray[Any, np.dtype[Any]]


def stored(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Return the size of the stored picture for that of the upright one, or the reverse."""
    return size[::-1] if orientation >= 5 else size


def fitted(fit: Fit, size: tuple[int, int]) -> tuple[int, int]:
    """Raises `Unreadable` if the upright picture is too narrow for the model."""
    width, height = fit(*size)
    if min(width, height) < 1:
        raise Unreadable(f"is too narrow for this model: {size[0]} x {size[1]} pixels")
    return width, height


def to_rgb(image: Image.Image, size: tuple[int, int], orientation: int = 1) -> Image.Image:
    """Return the picture in mode RGB and of this upright size in pixels. Raises `Unreadable`.

    The filter is bicubic, as in the processors of Qwen2-VL, LLaVA and most other models.
    """
    transposition = _TRANSPOSITIONS.get(orientation)
    image = _eight_bit(image)
    if image.size != stored(size, orientation):
        image = image.resize(stored(size, orientation), Image.Resampling.BICUBIC)
    image = _on_white(image)
    return image if transposition is None else image.transpose(transposition)


def _eight_bit(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _from_wide_values(image)
    mode = _EIGHT_BIT_MODES.get(image.mode)
    if mode is None:
        raise Unreadable(f"has colours of a kind that is not read ({image.mode}): save it as RGB")
    if image.has_transparency_data:
        mode = _WITH_ALPHA.get(mode, mode)
    return image if image.mode == mode else image.convert(mode)


def _from_wide_values(image: Image.Image) -> Image.Image:
    """Grey values of 16 bits, 32 bits or floating point. Only the first have a known white."""
    values = np.asarray(image)
    if image.mode == "F":
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    grey = Image.fromarray(_scaled(values, is_16_bit=image.mode.startswith("I;16")))
    if isinstance(transparent := image.info.get("transparency"), int):
        alpha = np.where(values == transparent, 0, 255).astype(np.uint8)
        grey.putalpha(Image.fromarray(alpha))
    return grey


def _scaled(values: _Array, *, is_16_bit: bool) -> _Array:
    """Return values from 0 to 255 as uint8. An unknown white is the smallest usual one."""
    if is_16_bit:
        return (values >> 8).astype(np.uint8)
    usual = _FLOAT_WHITES if values.dtype.kind == "f" else _INTEGER_WHITES
    low, high = min(float(values.min()), 0.0), float(values.max())
    white = next((each for each in usual if high <= each), high)
    scaled = values.astype(np.float32)
    scaled -= low
    scaled /= white - low
    scaled *= 255.0
    return np.rint(scaled, out=scaled).astype(np.uint8)


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode not in ("LA", "RGBA"):
        return image.convert("RGB")
    white = Image.new("RGB", image.size, "white")
    white.paste(image.convert("RGB"), mask=image.getchannel("A"))
    return white
