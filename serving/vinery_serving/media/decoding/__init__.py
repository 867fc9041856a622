"""Turns files of pictures, videos and documents into pixels of the size that a model takes.

Decoders are native code that reads files of strangers, so these functions run in worker processes
alone, one file in each call. A file that crashes the decoder, or needs too much time or memory,
costs the process, and the refusal names the part of the request. The web process imports this
package, but none of the libraries behind it. The first bytes decide the type of a file: declared
types and names are often wrong.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import Clip, MediaKind, Page, Picture
from vinery_serving.processes.apart import NoAnswer, run_apart

# From width and height of an upright picture, in pixels, to those of the scaled picture. May raise
# `InvalidRequest`.
Fit = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Checked from the headers of a file, before anything is decoded."""

    max_bytes: int = 20 * 2**20
    max_pixels: int = 40_000_000  # of a picture, a frame or a page
    max_frames: int = 32  # taken evenly from a video
    # Of all frames that must be decoded: a decoder needs about 5 ns for a pixel.
    max_video_pixels: int = 300_000_000
    max_duration_s: float = 3600.0  # of a video
    max_pages: int = 20
    cpu_s: float = 1.8  # processor time for one file; the caller limits the process


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
    """Raise `Unreadable` for any error of a library: damaged files cause all types of errors."""
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


def evenly(num_frames: int, max_frames: int) -> list[int]:
    """Return indexes of at most `max_frames` frames in equal steps, with the first and the last."""
    if num_frames <= max_frames:
        return list(range(num_frames))
    step = Fraction(num_frames - 1, max(max_frames - 1, 1))
    return [round(number * step) for number in range(max_frames)]


def rate_of(times_s: Sequence[float]) -> float:
    """Return frames in a second, for the times of at least one frame; 1 if it is unknown."""
    duration_s = times_s[-1] - times_s[0]
    return (len(times_s) - 1) / duration_s if duration_s > 0 else 1.0


_NAMES: Final = {
    MediaKind.IMAGE: "a picture",
    MediaKind.VIDEO: "a video",
    MediaKind.DOCUMENT: "a document",
}
_READABLE: Final = {
    MediaKind.IMAGE: "JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF",
    MediaKind.VIDEO: "MP4, WebM, Matroska, QuickTime, AVI, or an animated GIF",
    MediaKind.DOCUMENT: "PDF",
}


@dataclass(frozen=True, slots=True)
class FileType:
    name: str
    kind: MediaKind
    codec: str = ""  # the name of the format in the library that reads it: Pillow or FFmpeg
    may_move: bool = False  # whether a picture may be animated


# By the first bytes.
_BEGINNINGS: Final = {
    b"\xff\xd8\xff": FileType("JPEG", MediaKind.IMAGE, "JPEG"),
    b"\x89PNG\r\n\x1a\n": FileType("PNG", MediaKind.IMAGE, "PNG", may_move=True),
    **dict.fromkeys((b"GIF87a", b"GIF89a"), FileType("GIF", MediaKind.IMAGE, "GIF", may_move=True)),
    b"BM": FileType("BMP", MediaKind.IMAGE, "BMP"),
    **dict.fromkeys(
        (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), FileType("TIFF", MediaKind.IMAGE, "TIFF")
    ),
    b"%PDF-": FileType("PDF", MediaKind.DOCUMENT),
    b"\x1a\x45\xdf\xa3": FileType("Matroska", MediaKind.VIDEO, "matroska"),
}
# In a RIFF file, after its size.
_RIFF: Final = {
    b"WEBP": FileType("WebP", MediaKind.IMAGE, "WEBP", may_move=True),
    b"AVI ": FileType("AVI", MediaKind.VIDEO, "avi"),
}
_MP4: Final = FileType("MP4", MediaKind.VIDEO, "mov")
# Brands of ISO/IEC 14496-12 files that are no videos. `mif1` and `msf1` name no codec. HEIC is not
# read.
_PICTURE_BRANDS: Final[Mapping[bytes, FileType | None]] = {
    **dict.fromkeys((b"avif", b"avis"), FileType("AVIF", MediaKind.IMAGE, "AVIF", may_move=True)),
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis")),
}
# Boxes of QuickTime files that have no `ftyp`.
_QUICKTIME_BOXES: Final = (b"moov", b"mdat", b"wide", b"skip")


def kind_of(data: bytes) -> MediaKind | None:
    """None: no file of a type that is read."""
    file_type = type_of(data)
    return file_type.kind if file_type else None


def type_of(data: bytes) -> FileType | None:
    """None: no file of a type that is read."""
    head = data[:512]
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _iso_type(head)
    if head[4:8] in _QUICKTIME_BOXES:
        return _MP4
    for beginning, file_type in _BEGINNINGS.items():
        if head.startswith(beginning):
            return file_type
    return None


def _iso_type(head: bytes) -> FileType | None:
    """By the major brand, and then the compatible brands."""
    starts = (8, *range(16, min(int.from_bytes(head[:4]), len(head)), 4))
    brands = [head[start : start + 4] for start in starts]
    return next((_PICTURE_BRANDS[each] for each in brands if each in _PICTURE_BRANDS), _MP4)


def check_type(data: bytes, wanted: MediaKind, max_bytes: int) -> FileType:
    """Return the type of a file that is sent as `wanted`. Raises `Unreadable` for another one."""
    if not data:
        raise Unreadable("is an empty file: send a file with contents")
    if len(data) > max_bytes:
        raise Unreadable(
            f"is a file of {len(data)} bytes, and at most {max_bytes} are read. Send a smaller one"
        )
    found = type_of(data)
    if found is None:
        raise Unreadable(f"is no file of a type that is read. Send {_READABLE[wanted]}")
    if found.kind is not wanted and not (wanted is MediaKind.VIDEO and found.may_move):
        raise Unreadable(
            f"is {_NAMES[found.kind]} ({found.name}), but was sent as {_NAMES[wanted]}. Send it "
            f"as {_NAMES[found.kind]}, or send {_READABLE[wanted]} here"
        )
    return found


def decode_image(data: bytes, limits: DecodeLimits, fit: Fit, param: str) -> Picture:
    """Return the first frame. Raises `InvalidRequest` with `param`."""
    from vinery_serving.media.decoding.pictures import read_picture

    with refusals(param):
        return read_picture(data, limits, fit)


def decode_video(data: bytes, limits: DecodeLimits, fit: Fit, param: str) -> Clip:
    """Return frames of a video or an animated picture. Raises `InvalidRequest` with `param`."""
    from vinery_serving.media.decoding.videos import read_clip

    with refusals(param):
        return read_clip(data, limits, fit)


def decode_document(data: bytes, limits: DecodeLimits, fit: Fit, param: str) -> tuple[Page, ...]:
    """Return all pages of a PDF. Raises `InvalidRequest` with `param`."""
    from vinery_serving.media.decoding.documents import read_document

    with refusals(param):
        return read_document(data, limits, fit)


def load_libraries() -> None:
    """Import the decoders, which takes a part of a second, before workers are forked."""
    from vinery_serving.media.decoding import documents, videos  # noqa: F401


# -- For the tester of media rules

# Only the size is reported, so pixels are scaled down to a few.
_SCALED: Final = 32


def probe(
    data: bytes, max_pixels: int, max_frames: int = DecodeLimits().max_frames
) -> tuple[bool, str]:
    """Return whether the file can be decoded, and its contents in words or the error. Blocks for up
    to 15 s. Raises nothing for a bad file."""
    limits = DecodeLimits(max_bytes=len(data), max_pixels=max_pixels, max_frames=max_frames)
    try:
        return msgspec.json.decode(
            asyncio.run(run_apart(find, data, limits)), type=tuple[bool, str]
        )
    except (NoAnswer, OSError, msgspec.MsgspecError):
        return False, "The file could not be decoded within the limits of time and memory."


def find(data: bytes, limits: DecodeLimits) -> bytes:
    """Return what `probe` returns. Only for a process that may be killed."""
    try:
        found = True, _decode(data, limits)
    except InvalidRequest as error:
        found = False, error.message
    return msgspec.json.encode(found)


def _decode(data: bytes, limits: DecodeLimits) -> str:
    sizes: list[tuple[int, int]] = []

    def fit(width: int, height: int) -> tuple[int, int]:
        sizes.append((width, height))
        return min(width, _SCALED), min(height, _SCALED)

    match kind_of(data):
        case MediaKind.VIDEO:
            num_frames = decode_video(data, limits, fit, "file").num_frames
            what, rest = "video of", f", {num_frames} frames for a model"
        case MediaKind.DOCUMENT:
            num_pages = len(decode_document(data, limits, fit, "file"))
            what, rest = f"document of {num_pages} pages, the first of", ""
        case _:
            decode_image(data, limits, fit, "file")
            what, rest = "picture of", ""
    width, height = sizes[0]
    return f"{what} {width} x {height} pixels{rest}"
