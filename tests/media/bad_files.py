"""Files that no decoder may trust: cut off, with lying headers, recursive, gigantic, of the wrong
type, or of two types. All are made here, from good files that are small.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from PIL import Image

from tests.media import pdfs
from tests.media.containers import (
    MIB,
    bomb,
    box,
    gif,
    good_document,
    good_pictures,
    good_videos,
    jpeg_with,
    png,
    png_chunk,
    riff,
)
from tests.media.drawing import saved
from vinery_serving.core.media import MediaKind

Made = Iterator[tuple[str, MediaKind, bytes]]
IMAGE, VIDEO, DOCUMENT = MediaKind.IMAGE, MediaKind.VIDEO, MediaKind.DOCUMENT
_HUGE: Final = 2**31 - 1


@dataclass(frozen=True)
class BadFile:
    name: str
    kind: MediaKind  # as which it is sent
    data: bytes


def _truncated() -> Made:
    document = {"pdf": good_document()}
    for kind, good in ((IMAGE, good_pictures()), (VIDEO, good_videos()), (DOCUMENT, document)):
        for name, data in good.items():
            for quarter in range(1, 4):
                yield f"{name}-cut-at-{quarter}/4", kind, data[: len(data) * quarter // 4]


def _bad_pictures() -> Made:
    for name, size in {"zero-width": (0, 8), "most": (_HUGE, _HUGE), "one-row": (_HUGE, 1)}.items():
        yield f"png-{name}", IMAGE, png(*size, rows=bytes(256))
    frames = png_chunk(b"acTL", struct.pack(">II", _HUGE, 0))
    yield "apng-lying-frames", VIDEO, png(more=frames)
    yield "png-profile-bomb", IMAGE, png(more=png_chunk(b"iCCP", b"a\0\0" + bomb(256)))
    yield "png-200-text-bombs", IMAGE, png(more=png_chunk(b"zTXt", b"a\0\0" + bomb(1)) * 200)
    yield "png-a-million-chunks", IMAGE, png(more=png_chunk(b"tIME", b"") * 1_200_000)
    yield "png-pixel-bomb", IMAGE, png(30_000, 30_000, depth=1, colours=0, rows=bytes(9))
    whole = b"\0" * (1 + 790) * 6320
    yield "png-40-megapixels", IMAGE, png(6320, 6320, depth=1, colours=0, rows=whole)
    yield "png-more-data-than-rows", IMAGE, png(rows=bytes(64 * MIB))
    frame = (
        b"," + struct.pack("<HHHHB", 0, 0, 8, 8, 0) + b"\2\x08\x84\x8f\xa9\xcb\xed\x0f\x63\x2b\0"
    )
    yield "gif-700000-frames", VIDEO, gif(*[frame] * 700_000)
    yield "gif-100000-frames-as-picture", IMAGE, gif(*[frame] * 100_000, b";")
    for width, height in ((0, 8), (65535, 65535), (65535, 700)):
        yield f"jpeg-{width}x{height}", IMAGE, _jpeg_of_size(width, height)
    yield "jpeg-fill-bytes", IMAGE, b"\xff\xd8" + b"\xff" * 8 * MIB
    data = _jpeg_of_size(6000, 6000, "progressive-jpeg")
    scans = data[data.index(b"\xff\xda") : -2] * 2000  # each covers all pixels
    yield "jpeg-2000-scans", IMAGE, data[:-2] + scans + b"\xff\xd9"
    extended = struct.pack("<I", 2) + struct.pack("<I", 16_383)[:3] * 2
    yield "webp-huge-canvas", IMAGE, riff(b"WEBP", (b"VP8X", extended))
    avif = good_pictures()["avif"]
    at = avif.index(b"ispe") + 8
    yield "avif-huge", IMAGE, avif[:at] + struct.pack(">II", _HUGE, _HUGE) + avif[at + 8 :]


def _jpeg_of_size(width: int, height: int, name: str = "jpeg") -> bytes:
    data = good_pictures()[name]
    start = data.index(b"\xff\xc2" if name.startswith("prog") else b"\xff\xc0") + 5
    return data[:start] + struct.pack(">HH", height, width) + data[start + 4 :]


def _bad_videos() -> Made:
    mp4, head = good_videos()["mp4"], box(b"ftyp", b"isom", bytes(4))
    yield "mp4-a-million-boxes", VIDEO, head + box(b"free") * 10**6
    yield "mp4-a-million-tracks", VIDEO, head + box(b"moov", box(b"trak") * 10**6)
    link = b"\0\0\0\0" + b"file:///etc/passwd\0"
    yield "mp4-other-file", VIDEO, mp4.replace(b"\0\0\0\x0curl \0\0\0\1", box(b"url ", link))
    webm = good_videos()["webm"]
    at = webm.index(b"\xb0", webm.index(b"V_VP8"))
    yield "webm-huge", VIDEO, webm[:at] + b"\xb0\x84\x7f\xff\xff\xff" + webm[at + 6 :]


def _changed_pdf(objects: dict[int, bytes], trailer: bytes = b"") -> bytes:
    return pdfs.pdf({**pdfs.pages([pdfs.QUADRANTS]), **objects}, trailer)


def _bad_documents() -> Made:
    tree = b"<< /Type /Pages /Parent 2 0 R /Count %d /Kids [%s] >>"
    yield "pdf-pages-in-a-loop", DOCUMENT, _changed_pdf({2: tree % (1, b"2 0 R")})
    yield "pdf-a-billion-pages", DOCUMENT, _changed_pdf({2: tree % (10**9, b"4 0 R")})
    yield "pdf-no-pages", DOCUMENT, _changed_pdf({2: tree % (0, b"")})
    yield "pdf-table-of-itself", DOCUMENT, _changed_pdf({}, b"/Prev 9")
    huge = pdfs.pages([pdfs.QUADRANTS], b"[0 0 1e30 1e30]")
    yield "pdf-page-of-size-huge", DOCUMENT, pdfs.pdf(huge)
    many = pdfs.deflated(b"0 0 9 9 re f " * 4_000_000)
    yield "pdf-many-operators", DOCUMENT, _changed_pdf({5: many})
    packed = pdfs.stream(bomb(1024), b"/Filter /FlateDecode")
    yield "pdf-stream-bomb", DOCUMENT, _changed_pdf({5: packed})
    yield "pdf-forms-in-forms", DOCUMENT, _forms(10, 10)
    yield "pdf-nested-arrays", DOCUMENT, _changed_pdf({2: b"[" * 500_000})


def _forms(num_levels: int, num_uses: int) -> bytes:
    """Each form draws the next one so many times."""
    objects = pdfs.pages([b"/X0 Do"], resources=b"/XObject << /X0 6 0 R >>")
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 96 64]"
    for number in range(6, 6 + num_levels):
        resources = b" /Resources << /XObject << /X0 %d 0 R >> >>" % (number + 1)
        objects[number] = pdfs.stream(b"/X0 Do " * num_uses, form + resources)
    objects[6 + num_levels] = pdfs.stream(pdfs.QUADRANTS, form)
    return pdfs.pdf(objects)


_WRONG_TYPES: Final[dict[str, bytes]] = {
    "empty": b"",
    "zeros": bytes(4096),
    "text": b"The quick brown fox",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    "html": b"<!DOCTYPE html><html><script>alert(1)</script></html>",
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\n",
    "heic": box(b"ftyp", b"heic", bytes(4), b"mif1heic") + bytes(64),
    "wav": riff(b"WAVE", (b"fmt ", bytes(16))),
    "playlist": b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n",
    "concat-script": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "gzip": gzip.compress(b"\x89PNG\r\n\x1a\n"),
}


def _wrong_types() -> Made:
    for name, data in _WRONG_TYPES.items():
        yield from ((f"{name}-as-{kind.value}", kind, data) for kind in (IMAGE, VIDEO, DOCUMENT))
    yield "picture-as-document", DOCUMENT, good_pictures()["png"]
    yield "document-as-picture", IMAGE, good_document()
    yield "video-as-picture", IMAGE, good_videos()["mp4"]
    yield "picture-as-video", VIDEO, good_pictures()["jpeg"]
    # Of two types.
    yield "png-and-svg", IMAGE, b"\x89PNG\r\n\x1a\n" + _WRONG_TYPES["svg"]
    yield "tiff-and-pdf", IMAGE, b"II*\0" + good_document()
    yield "mp4-and-html", VIDEO, box(b"ftyp", b"isom") + _WRONG_TYPES["html"]
    yield "jpeg-and-pdf-as-document", DOCUMENT, good_pictures()["jpeg"] + good_document()
    yield "jpeg-and-pdf-as-picture", IMAGE, good_pictures()["jpeg"] + good_document()


def mutated_files(num_files: int, seed: int = 14) -> list[BadFile]:
    """Good files with a few bytes changed, removed or repeated, mostly in the headers."""
    random = Random(seed)
    good = [
        *((IMAGE, data) for data in good_pictures().values()),
        *((VIDEO, data) for data in good_videos().values()),
        (DOCUMENT, good_document()),
    ]
    chosen = [random.choice(good) for _ in range(num_files)]
    return [
        BadFile(f"mutated-{index}", kind, _mutated(data, random))
        for index, (kind, data) in enumerate(chosen)
    ]


def _mutated(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 2, 5, 20))):
        at = random.randrange(random.choice((64, 400, len(data)))) % len(changed)
        length = random.randrange(1, 20)
        match random.randrange(5):
            case 0:
                changed[at] = random.randrange(256)
            case 1:
                changed[at] ^= 1 << random.randrange(8)
            case 2:
                changed[at : at + 4] = random.choice((bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff"))
            case 3:
                del changed[at + 1 : at + length]
            case 4:
                changed[at:at] = changed[:length]
    return bytes(changed)


def bad_files() -> Iterator[BadFile]:
    """Yields one file after the other: some take a part of a second to make."""
    of_kinds = (_bad_pictures, _bad_videos, _bad_documents, _many_parts)
    for make in (_truncated, *of_kinds, _wrong_types):
        yield from (BadFile(*each) for each in make())


def _many_parts() -> Made:
    """Files of so many parts that a decoder only reads structure for seconds. Each is below the
    limit of bytes, and most are valid."""
    yield "apng-20000-frames", VIDEO, _apng(20_000)
    exif = b"\xff\xe1\x07\x6cExif\0\0".ljust(1902, b"\0")
    yield "jpeg-9000-exif-segments", IMAGE, jpeg_with(exif * 9_000)
    frame = (b"ANMF", bytes(12) + b"\x0a\0\0\0" + saved(Image.new("RGB", (1, 1)), "WEBP")[12:])
    head = (b"VP8X", struct.pack("<I", 2) + bytes(6)), (b"ANIM", bytes(6))
    yield "webp-100000-frames", VIDEO, riff(b"WEBP", *head, *[frame] * 100_000)
    webm = good_videos()["webm"]
    cluster, endless = b"\x1f\x43\xb6\x75", b"\x01" + b"\xff" * 7
    segment = webm.index(b"\x18\x53\x80\x67") + 4
    begun = webm[:segment] + endless + webm[segment + 8 : webm.index(cluster)]
    blocks = cluster + endless + b"\xe7\x81\0" + b"\xa3\x85\x81\0\0\x80\0" * 2_500_000
    yield "webm-2-million-frames", VIDEO, begun + blocks
    drawing = {**pdfs.pages([b""]), 5: pdfs.deflated(b"0 0 9 9 re f " * 3_000_000)}
    yield "pdf-a-page-of-40-megabytes", DOCUMENT, pdfs.pdf(drawing)


def _apng(num_frames: int) -> bytes:
    def control(number: int) -> bytes:
        return png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, 1, 1, 0, 0, 1, 10, 0, 0))

    count = png_chunk(b"acTL", struct.pack(">II", num_frames, 0))
    pixel = zlib.compress(bytes(4))
    frames = (
        control(number) + png_chunk(b"fdAT", struct.pack(">I", number + 1) + pixel)
        for number in range(1, 2 * num_frames - 1, 2)
    )
    end = png_chunk(b"IEND", b"")
    return png(1, 1, more=count + control(0)).removesuffix(end) + b"".join(frames) + end
