"""What a file is, by its first bytes. Declared types and names of files are often wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.media import MediaKind
from vinery_serving.media.decoding.limits import Unreadable

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
# So many bytes decide.
_HEAD_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class FileType:
    name: str
    kind: MediaKind | None  # None: not read
    codec: str = ""  # the name of the format in the library that reads it: Pillow or FFmpeg
    may_move: bool = False  # whether a picture may be animated


_PNG: Final = FileType("PNG", MediaKind.IMAGE, "PNG", may_move=True)
_GIF: Final = FileType("GIF", MediaKind.IMAGE, "GIF", may_move=True)
_TIFF: Final = FileType("TIFF", MediaKind.IMAGE, "TIFF")
_PHOTOSHOP: Final = FileType("Photoshop", None)
_JPEG_XL: Final = FileType("JPEG XL", None)
_POSTSCRIPT: Final = FileType("PostScript", None)

_BEGINNINGS: Final[Sequence[tuple[bytes, FileType]]] = (
    (b"\xff\xd8\xff", FileType("JPEG", MediaKind.IMAGE, "JPEG")),
    (b"\x89PNG\r\n\x1a\n", _PNG),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"BM", FileType("BMP", MediaKind.IMAGE, "BMP")),
    (b"II*\0", _TIFF),
    (b"MM\0*", _TIFF),
    (b"II+\0", _TIFF),
    (b"MM\0+", _TIFF),
    (b"%PDF-", FileType("PDF", MediaKind.DOCUMENT)),
    (b"\x1a\x45\xdf\xa3", FileType("Matroska", MediaKind.VIDEO, "matroska")),
    (b"\0\0\x01\xba", FileType("MPEG", None)),
    (b"8BPS", _PHOTOSHOP),
    (b"%!PS", _POSTSCRIPT),
    (b"\xc5\xd0\xd3\xc6", _POSTSCRIPT),
    (b"\0\0\x01\0", FileType("ICO", None)),
    (b"icns", FileType("ICNS", None)),
    (b"\0\0\0\x0cjP  ", FileType("JPEG 2000", None)),
    (b"\xff\x4f\xff\x51", FileType("JPEG 2000", None)),
    (b"\xff\x0a", _JPEG_XL),
    (b"\0\0\0\x0cJXL ", _JPEG_XL),
    (b"SIMPLE  =", FileType("FITS", None)),
    (b"FLV\x01", FileType("Flash video", None)),
    (b"OggS", FileType("Ogg", None)),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", FileType("Windows Media", None)),
    (b"PK\x03\x04", FileType("ZIP or Office", None)),
    (b"\x1f\x8b", FileType("gzip", None)),
    (b"{\\rtf", FileType("RTF", None)),
)
# In a RIFF file, after its size.
_RIFF: Final = {
    b"WEBP": FileType("WebP", MediaKind.IMAGE, "WEBP", may_move=True),
    b"AVI ": FileType("AVI", MediaKind.VIDEO, "avi"),
}
_MP4: Final = FileType("MP4", MediaKind.VIDEO, "mov")
_AVIF: Final = FileType("AVIF", MediaKind.IMAGE, "AVIF", may_move=True)
_HEIC: Final = FileType("HEIC", None)
# Brands of ISO/IEC 14496-12 files that are no videos. `mif1` and `msf1` name no codec.
_PICTURE_BRANDS: Final = {
    **dict.fromkeys((b"avif", b"avis"), _AVIF),
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"), _HEIC),
}
# Boxes of QuickTime files that have no `ftyp`.
_QUICKTIME_BOXES: Final = (b"moov", b"mdat", b"wide", b"skip")
_MARKUP: Final = (
    (b"<svg", FileType("SVG", None)),
    (b"<!doctype html", FileType("HTML", None)),
    (b"<html", FileType("HTML", None)),
)


def kind_of(data: bytes) -> MediaKind | None:
    """None: the file is none that is read."""
    file_type = type_of(data)
    return file_type.kind if file_type else None


def type_of(data: bytes) -> FileType | None:
    """None: unknown."""
    head = data[:_HEAD_BYTES]
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _iso_type(head)
    if head[4:8] in _QUICKTIME_BOXES:
        return _MP4
    for beginning, file_type in _BEGINNINGS:
        if head.startswith(beginning):
            return file_type
    return _markup_type(head)


def _iso_type(head: bytes) -> FileType:
    brands = tuple(_brands(head))
    return next((_PICTURE_BRANDS[each] for each in brands if each in _PICTURE_BRANDS), _MP4)


def _brands(head: bytes) -> Iterator[bytes]:
    """The major brand, and then those that the file is compatible with."""
    end = min(int.from_bytes(head[:4]), len(head))
    yield head[8:12]
    for start in range(16, end, 4):
        yield head[start : start + 4]


def _markup_type(head: bytes) -> FileType | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not text.startswith(b"<"):
        return None
    return next((each for tag, each in _MARKUP if tag in text), None)


def check_type(data: bytes, wanted: MediaKind, max_bytes: int) -> FileType:
    """Return the type of a file that is sent as `wanted`. Raises `Unreadable` for another kind of
    file, and for too many bytes."""
    if not data:
        raise Unreadable("is an empty file: send a file with contents")
    if len(data) > max_bytes:
        raise Unreadable(
            f"is a file of {len(data)} bytes, and at most {max_bytes} are read. Send a smaller one"
        )
    found = type_of(data)
    if found is None:
        raise Unreadable(f"is not a file of a known type. Send {_READABLE[wanted]}")
    if found.kind is None:
        raise Unreadable(f"is a file of type {found.name}, which is not read: {_instead(wanted)}")
    if found.kind is not wanted and not (wanted is MediaKind.VIDEO and found.may_move):
        raise Unreadable(
            f"is {_NAMES[found.kind]} ({found.name}), but was sent as {_NAMES[wanted]}. Send it "
            f"as {_NAMES[found.kind]}, or {_instead(wanted)}"
        )
    return found


def _instead(wanted: MediaKind) -> str:
    return f"send {_READABLE[wanted]} here"
