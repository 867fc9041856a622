"""Pictures, videos and documents of a request: their sources, and their decoded forms.

A part of a message names its source. Before the prompt is rendered, the source of each part is
replaced by the decoded picture or clip. The pages of a document become separate parts.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from enum import StrEnum
from operator import add
from typing import Final

# Of all pictures and videos of a prompt, as the engine gets them.
MAX_MEDIA_BYTES: Final = 48 * 2**20


class MediaKind(StrEnum):
    IMAGE = "image"
    VIDEO = "video"
    DOCUMENT = "document"  # PDF: the pages become pictures and texts


class Detail(StrEnum):
    """How many pixels of a picture the model sees, as in OpenAI's API."""

    AUTO = "auto"
    LOW = "low"
    HIGH = "high"


LOW_DETAIL_PIXELS: Final = 512 * 512  # OpenAI's `low` shows a picture in a square of 512 pixels

# The pixels that a model sees of each picture, each frame and each page, at most. All media of a
# request have `MAX_MEDIA_BYTES` together, which leaves so many pixels for each frame and page.
SEEN_PIXELS: Final[Mapping[MediaKind, int]] = {
    MediaKind.IMAGE: 4_000_000,
    MediaKind.VIDEO: 400_000,
    MediaKind.DOCUMENT: 800_000,
}


@dataclass(frozen=True, slots=True)
class InlineSource:
    """The file itself, sent with the request."""

    data: bytes
    # Of a fetched picture, by its media rule; None: the limit for files that come with requests.
    max_pixels: int | None = None


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A file that Vinery fetches, where the media rules allow it."""

    url: str  # as the client sent it, not checked


@dataclass(frozen=True, slots=True)
class PathSource:
    """A file of the server, where the media rules allow its folder."""

    path: str  # as the client sent it, not checked
    is_bare: bool = True  # as the clients of OVMS send paths; False: a `file://` URL


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
    text: str
    picture: Picture


MediaSource = InlineSource | UrlSource | PathSource | Picture | Clip


@dataclass(frozen=True, slots=True)
class MediaPart:
    kind: MediaKind
    source: MediaSource
    # The path in the request, such as `messages[0].content[1].image_url`, for error messages.
    param: str
    detail: Detail = Detail.AUTO
    filename: str | None = None  # of a document, from the client
    sha256: str | None = None  # of the file, in lower case, from the client, to be checked


@dataclass(frozen=True, slots=True)
class MediaUsage:
    """The cost of a request's media. A file counts as often as it is in the request."""

    num_files: int = 0
    num_bytes: int = 0  # of the files
    num_pixels: int = 0  # that the model sees, of all pages and frames
    fetch_s: float = 0.0
    decode_s: float = 0.0  # processor time

    def __add__(self, other: "MediaUsage") -> "MediaUsage":
        return MediaUsage(*map(add, astuple(self), astuple(other)))


NO_MEDIA: Final = MediaUsage()


def decoded(part: MediaPart) -> Picture | Clip:
    assert isinstance(part.source, Picture | Clip), "the part is not decoded yet"
    return part.source
