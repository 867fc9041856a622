"""Turns files of pictures, videos and documents into pixels of the size that a model takes.

Decoders are native code that reads what strangers send, so these functions run in worker processes
alone, one file in each call: a file that crashes its decoder, or needs too much time or memory,
costs the process and is refused by the name of its part. The web process imports this package, but
none of the libraries behind it.
"""

from vinery_serving.core.media import Clip, Page, Picture
from vinery_serving.media.decoding.file_types import kind_of as kind_of
from vinery_serving.media.decoding.limits import DecodeLimits as DecodeLimits
from vinery_serving.media.decoding.limits import Fit as Fit
from vinery_serving.media.decoding.limits import refusals


def decode_image(data: bytes, limits: DecodeLimits, fit: Fit, param: str) -> Picture:
    """Return the first frame. Raises `InvalidRequest` with `param`."""
    from vinery_serving.media.decoding.pictures import read_picture

    with refusals(param):
        return read_picture(data, limits, fit)


def decode_video(data: bytes, limits: DecodeLimits, fit: Fit, param: str) -> Clip:
    """Return frames of a video, or of an animated GIF, PNG, WebP or AVIF file. Raises
    `InvalidRequest` with `param`."""
    from vinery_serving.media.decoding.videos import read_clip

    with refusals(param):
        return read_clip(data, limits, fit)


def decode_document(data: bytes, limits: DecodeLimits, fit: Fit, param: str) -> tuple[Page, ...]:
    """Return all pages of a PDF. Raises `InvalidRequest` with `param`."""
    from vinery_serving.media.decoding.documents import read_document

    with refusals(param):
        return read_document(data, limits, fit)


def load_libraries() -> None:
    """Import what decodes, which takes a part of a second, before workers are forked."""
    from vinery_serving.media.decoding import documents, videos  # noqa: F401
