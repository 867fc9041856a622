"""Pictures, videos and documents of a request: where they come from, and what is read of them."""

from dataclasses import dataclass
from enum import StrEnum


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

    path: str  # as the client sent it, not checked


MediaSource = InlineSource | UrlSource | PathSource


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A picture, video or document in a message's content."""

    kind: MediaKind
    source: MediaSource
    param: str  # its path in the request, such as `messages[0].content[1]`, for error messages
    detail: Detail = Detail.AUTO
    filename: str | None = None  # of a document, as the client named it


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
