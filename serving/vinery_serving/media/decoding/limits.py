"""How much of a file is decoded, and how a file is refused: errors of the decoding libraries become
sentences for the client."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from vinery_serving.core.errors import InvalidRequest

# From the width and height of a picture in pixels, upright, to those that it is scaled to. May
# raise `InvalidRequest`.
Fit = Callable[[int, int], tuple[int, int]]

_UNKNOWN_RATE: Final = 1.0


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


class Unreadable(Exception):
    """The message is a sentence without its subject, such as "has no pixels"."""


@contextmanager
def refusals(param: str) -> Iterator[None]:
    """Raise `InvalidRequest` with `param` for files that cannot be read."""
    try:
        yield
    except Unreadable as error:
        raise InvalidRequest(f"`{param}` {error}.", param=param) from None
    except MemoryError:
        raise InvalidRequest(
            f"`{param}` needs too much memory to be read. Send a smaller file.", param=param
        ) from None
    except InvalidRequest as error:
        if error.param is None:
            error.param = param
        raise


@contextmanager
def reading(file_type: str) -> Iterator[None]:
    """Raise `Unreadable` for any error of a library: damaged files cause those of all types."""
    try:
        yield
    except (Unreadable, MemoryError):
        raise
    except Exception:
        raise Unreadable(
            f"cannot be read as {file_type}: the file is damaged or incomplete. Save or export it "
            "again, and send the whole file"
        ) from None


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raises `Unreadable`."""
    if min(width, height) < 1:
        raise Unreadable("has no pixels: its width or height is 0")
    if width * height > max_pixels:
        raise too_large(f"{width} x {height}", max_pixels)


def too_large(size: str, max_pixels: int) -> Unreadable:
    return Unreadable(
        f"has {size} pixels, and at most {max_pixels} are read. Scale it down before sending it"
    )


def fitted(fit: Fit, size: tuple[int, int]) -> tuple[int, int]:
    """Raises `Unreadable` if the upright picture is too narrow for the model."""
    width, height = fit(*size)
    if min(width, height) < 1:
        raise Unreadable(f"is too narrow for this model: {size[0]} x {size[1]} pixels")
    return width, height


# -- Frames of a video


def evenly(num_frames: int, max_frames: int) -> list[int]:
    """Return the indexes of at most `max_frames` frames: the first, the last, and those between in
    equal steps."""
    if num_frames <= max_frames:
        return list(range(num_frames))
    if max_frames == 1:
        return [0]
    last = max_frames - 1
    return [round(Fraction(step * (num_frames - 1), last)) for step in range(max_frames)]


def rate_of(times_s: Sequence[float]) -> float:
    """Return frames in a second, for the times of at least one frame."""
    duration_s = times_s[-1] - times_s[0]
    return (len(times_s) - 1) / duration_s if duration_s > 0 else _UNKNOWN_RATE
