"""Decodes a picture file to the size that a model takes."""

from typing import Final

from vinery_serving.core.media import MediaKind, Picture
from vinery_serving.media.decoding.file_types import check_type
from vinery_serving.media.decoding.limits import DecodeLimits, Fit
from vinery_serving.media.decoding.pillow_files import (
    load,
    open_picture,
    orientation_of,
    pixel_limit,
    reading_picture,
)
from vinery_serving.media.decoding.pixels import fitted, stored, to_rgb
from vinery_serving.media.decoding.structure import check_structure

# A JPEG decoder halves a picture at almost no cost, but not as well as a filter. So it leaves at
# least so many times the pixels of each row and column that are needed.
_SPARE: Final = 2
_SHRINKING: Final = ("JPEG",)


def read_picture(data: bytes, limits: DecodeLimits, fit: Fit) -> Picture:
    """Raises `Unreadable`, and what `fit` raises."""
    file_type = check_type(data, MediaKind.IMAGE, limits.max_bytes)
    check_structure(data, file_type.name)
    with pixel_limit(limits.max_pixels):
        image = open_picture(data, file_type, limits.max_pixels)
        if file_type.codec not in _SHRINKING:
            load(image, file_type, limits.max_pixels)
        orientation = orientation_of(image)
        width, height = fitted(fit, stored(image.size, orientation))
        stored_width, stored_height = stored((width, height), orientation)
        image.draft(None, (_SPARE * stored_width, _SPARE * stored_height))
        with reading_picture(file_type, limits.max_pixels):
            image.load()
            rgb = to_rgb(image, (width, height), orientation)
            return Picture(height, width, rgb.tobytes())
