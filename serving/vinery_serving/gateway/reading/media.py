"""Decodes the media of a request in its worker process, one file in each call.

A file that crashes the decoder, or takes too long or too much memory, ends the worker, and its part
of the request is refused. Decoded media stay in the worker until the prompt is rendered.
"""

import resource
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256

from vinery_serving.core import field_limits
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import (
    NO_MEDIA,
    SEEN_PIXELS,
    Clip,
    InlineSource,
    MediaKind,
    MediaPart,
    MediaUsage,
    Page,
    Picture,
)
from vinery_serving.core.request import ContentPart, TextPart
from vinery_serving.media import decoding
from vinery_serving.media.decoding import DecodeLimits
from vinery_serving.prompting.vision import VisionProcessor

_configured: list[DecodeLimits] = [DecodeLimits()]


class RequestMedia:
    def __init__(self, media: Iterable[MediaPart]) -> None:
        self._media = tuple(media)
        self._parts: dict[str, tuple[ContentPart, ...]] = {}  # by the path of the decoded part
        self.usage = NO_MEDIA

    def decode(self, index: int, source: InlineSource | None, vision: VisionProcessor) -> None:
        """Decode a part. `source` is the fetched file, if any. Raises `InvalidRequest`."""
        part = self._media[index]
        if source is None:
            assert isinstance(part.source, InlineSource), "the file of this part was not fetched"
            source = part.source
        if part.sha256 not in (None, sha256(source.data).hexdigest()):
            raise InvalidRequest(
                f"The SHA-256 of the file of `{part.param}` is not the one in `mm_hashes`. Send "
                "the hash of the file itself, or leave out `mm_hashes`.",
                param=part.param,
            )
        self._parts[part.param], usage = _decoded(part, source, vision)
        self.usage += usage

    def parts_of(self, part: MediaPart) -> tuple[ContentPart, ...]:
        return self._parts[part.param]


def _decoded(
    part: MediaPart, source: InlineSource, vision: VisionProcessor
) -> tuple[tuple[ContentPart, ...], MediaUsage]:
    """Raises `InvalidRequest`."""
    limits = _limits(source)
    decoding.load_libraries()  # has an effect in a new process only, and takes a part of a second
    begun_at_s = _processor_time_s()
    with _cpu_limit(limits.cpu_s):
        parts = _parts(part, source.data, vision, limits)
    decode_s = _processor_time_s() - begun_at_s
    media = (each.source for each in parts if isinstance(each, MediaPart))
    num_pixels = sum(len(each.pixels) // 3 for each in media if isinstance(each, Picture | Clip))
    return parts, MediaUsage(1, len(source.data), num_pixels, decode_s=decode_s)


def _processor_time_s() -> float:
    """Of this process. `time.process_time` stands still between ticks while a timer is set."""
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def configure(limits: DecodeLimits) -> None:
    """Set how many frames are taken, and how long decoding may take, in this process."""
    _configured[:] = [limits]


def _limits(source: InlineSource) -> DecodeLimits:
    """A fetched file has the limits of the rule that allowed it."""
    return replace(
        _configured[0],
        max_bytes=max(len(source.data), field_limits.MEDIA_BYTES.value),
        max_pixels=source.max_pixels or field_limits.MEDIA_PIXELS.value,
        max_pages=field_limits.MEDIA_PAGES.value,
    )


@contextmanager
def _cpu_limit(cpu_s: float) -> Iterator[None]:
    """End this process if the block takes longer."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _parts(
    part: MediaPart, data: bytes, vision: VisionProcessor, limits: DecodeLimits
) -> tuple[ContentPart, ...]:
    """A document's bytes may be a picture or a video."""
    kind = part.kind
    if kind is MediaKind.DOCUMENT:
        kind = decoding.kind_of(data) or kind
    fit = partial(vision.fit, detail=part.detail, max_pixels=SEEN_PIXELS[kind])
    match kind:
        case MediaKind.IMAGE:
            picture = decoding.decode_image(data, limits, fit, part.param)
            return (replace(part, kind=kind, source=picture),)
        case MediaKind.VIDEO:
            if not vision.takes_video:
                raise InvalidRequest(
                    f"`{part.param}` is a video, but this model takes pictures only. Send single "
                    "frames as pictures.",
                    param=part.param,
                )
            clip = decoding.decode_video(data, limits, fit, part.param)
            return (replace(part, kind=kind, source=clip),)
        case MediaKind.DOCUMENT:
            return _page_parts(part, decoding.decode_document(data, limits, fit, part.param))
    raise AssertionError(f"{kind} is not decoded")


def _page_parts(part: MediaPart, pages: Sequence[Page]) -> tuple[ContentPart, ...]:
    """Each page becomes a text, headed by the file's name and the page number, and a picture."""
    name = part.filename or "File"
    parts: list[ContentPart] = []
    for number, page in enumerate(pages, 1):
        head = f"{name}, page {number} of {len(pages)}:"
        parts.append(TextPart(f"{head}\n{page.text}" if page.text else head))
        parts.append(replace(part, kind=MediaKind.IMAGE, source=page.picture, filename=None))
    return tuple(parts)
