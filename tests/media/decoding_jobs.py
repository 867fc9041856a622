"""Decodes files in worker processes, as requests do: one file in each call, with its limits."""

import resource
import signal
from typing import Any

from vinery_serving.core.media import Clip, MediaKind, Page, Picture
from vinery_serving.gateway.workers.worker import Codec, Session
from vinery_serving.media import decoding
from vinery_serving.media.decoding import DecodeLimits

_DECODERS = {
    MediaKind.IMAGE: decoding.decode_image,
    MediaKind.VIDEO: decoding.decode_video,
    MediaKind.DOCUMENT: decoding.decode_document,
}
# The pixels that the model takes of a picture, at most.
_MAX_SIDE = 1024


def load(wanted: Any) -> None:
    decoding.load_libraries()


def before_call(arguments: Any) -> None:
    """Nothing more is needed."""


def _fit(width: int, height: int) -> tuple[int, int]:
    scale = min(1.0, _MAX_SIDE / max(width, height))
    return max(round(scale * width), 1), max(round(scale * height), 1)


def decode(session: Session, kind: MediaKind, param: str) -> Any:
    limits = DecodeLimits()
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    try:
        return _DECODERS[kind](session.body, limits, _fit, param)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def peak_bytes(session: Session) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


CODEC = Codec((Picture, Clip, Page))
