"""How much of a file is decoded."""

from collections.abc import Callable
from dataclasses import dataclass

# From the width and height of a picture in pixels, upright, to those that it is scaled to. May
# raise `InvalidRequest`.
Fit = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Checked from the headers of a file, before anything is decoded."""

    max_bytes: int = 20 * 2**20
    max_pixels: int = 40_000_000  # of a picture, a frame or a page
    max_frames: int = 32  # that are taken from a video, evenly
    # Of all frames that must be decoded for them: a decoder needs about 5 ns for a pixel.
    max_video_pixels: int = 300_000_000
    max_duration_s: float = 3600.0  # of a video
    max_pages: int = 20
    cpu_s: float = 1.8  # processor time for one file; the caller sets it for its process
