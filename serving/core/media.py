"""Pictures, videos and documents of a request: where they come from, and what is read of them.

A part of a message names its source. Before the prompt is rendered, the source of each part is
replaced by the decoded picture or clip. The pages of a document become parts of their own.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# Of all pictures and videos of a prompt, as the engine gets them.
MAX_MEDIA_BYTES: Final = 48 * 2**20


class MediaKind(StrEnum):
    IMAGE = "image"
    VIDEO = "video"
    DOCUMENT = "document"  # PDF: its pages become pictures, with their text


class Detail(StrEnum):
    """How many pixels of a picture the model sees, as in OpenAI's API."""

    AUTO = "auto"
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class InlineSource:
    """The file itself, sent with the request."""

    data: bytes


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A file that Vinery fetches, where the media rules allow it."""

    url: str  # as the client sent it, not checked


@dataclass(frozen=True, slots=True)
class PathSource:
    """A file of the server, where the media rules allow its folder."""

    path: str  # not checked
    is_bare: bool = True  # as the clients of OVMS send it; otherwise it was a `file://` URL


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded picture, upright, without transparency."""

    height: int  # pixels
    width: int  # pixels
    pixels: bytes  # uint8 RGB, (height, width, 3)


@dataclass(frozen=True, slots=True)
class Clip:
    """Frames of a video, all of one size."""

    num_frames: int
    height: int  # pixels
    width: int  # pixels
    pixels: bytes  # uint8 RGB, (num_frames, height, width, 3)
    frames_per_s: float  # of these frames, not of the file


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a document."""

    text: str
    picture: Picture


MediaSource = InlineSource | UrlSource | PathSource | Picture | Clip


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A picture, video or document in a message's content."""

    kind: MediaKind
    source: MediaSource
    # Its path in the request, such as `messages[0].content[1].image_url`, for error messages.
    param: str
    detail: Detail = Detail.AUTO
    filename: str | None = None  # of a document, as the client named it


def decoded(part: MediaPart) -> Picture | Clip:
    """Return the picture or clip of a part that is decoded."""
    assert isinstance(part.source, Picture | Clip), "the part is not decoded yet"
    return part.source
