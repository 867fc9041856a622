"""Decodes frames of an animated GIF, PNG, WebP or AVIF file with Pillow."""

from typing import Final

from PIL import ImageFile

from vinery_serving.core.media import Clip
from vinery_serving.media.decoding.file_types import FileType
from vinery_serving.media.decoding.limits import DecodeLimits, Fit
from vinery_serving.media.decoding.pillow_files import (
    load,
    open_picture,
    orientation_of,
    pixel_limit,
    reading_picture,
)
from vinery_serving.media.decoding.pixels import fitted, stored, to_rgb
from vinery_serving.media.decoding.refusals import Unreadable
from vinery_serving.media.decoding.sampling import evenly, rate_of

# Each takes time, however small it is.
_MOST_FRAMES: Final = 10_000
# Browsers show a frame that declares 10 ms or less for 100 ms.
_SHORTEST_MS: Final = 10
_INSTEAD_MS: Final = 100


def read_animation(data: bytes, file_type: FileType, limits: DecodeLimits, fit: Fit) -> Clip:
    """Raises `Unreadable`, and what `fit` raises."""
    with pixel_limit(limits.max_pixels):
        image = open_picture(data, file_type, limits.max_pixels)
        load(image, file_type, limits.max_pixels)
        orientation = orientation_of(image)
        width, height = fitted(fit, stored(image.size, orientation))
        frames, times_s, now_ms = [], [], 0.0
        with reading_picture(file_type, limits.max_pixels):
            num_frames = _num_frames(image, limits)
            wanted = frozenset(evenly(num_frames, limits.max_frames))
            for index in range(num_frames):
                image.seek(index)
                image.load()
                if index in wanted:
                    frames.append(to_rgb(image, (width, height), orientation).tobytes())
                    times_s.append(now_ms / 1000)
                now_ms += _duration_ms(image)
    return Clip(len(frames), height, width, b"".join(frames), rate_of(times_s))


def _num_frames(image: ImageFile.ImageFile, limits: DecodeLimits) -> int:
    num_frames = int(getattr(image, "n_frames", 1))
    num_pixels = num_frames * image.width * image.height
    if num_frames > _MOST_FRAMES or num_pixels > limits.max_video_pixels:
        raise Unreadable(
            f"has {num_frames} frames of {image.width} x {image.height} pixels, which take too "
            "long to decode. Send fewer or smaller ones"
        )
    return num_frames


def _duration_ms(image: ImageFile.ImageFile) -> float:
    duration_ms = image.info.get("duration")
    if not isinstance(duration_ms, int | float) or duration_ms <= _SHORTEST_MS:
        return _INSTEAD_MS
    return duration_ms
