"""Files that no decoder may trust: cut off, with lying headers, recursive, gigantic, of the wrong
type, or of two types. All are made here, from good files that are small.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from random import Random
from typing import Final
from zipfile import ZipFile

from PIL import Image

from tests.media import pdfs
from tests.media.containers import (
    MIB,
    bmp,
    bomb,
    box,
    gif,
    gif_image,
    good_document,
    good_pictures,
    good_videos,
    grey_tiff,
    jpeg_with,
    png,
    png_chunk,
    riff,
    tiff,
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


# -- Bad files -----------------------------------------------------------------------------------


def _truncated() -> Made:
    document = {"pdf": good_document()}
    for kind, good in ((IMAGE, good_pictures()), (VIDEO, good_videos()), (DOCUMENT, document)):
        for name, data in good.items():
            for quarter in range(1, 4):
                yield f"{name}-cut-at-{quarter}/4", kind, data[: len(data) * quarter // 4]


def _lying_pngs() -> Made:
    sizes = {"zero-width": (0, 8), "zero-height": (8, 0), "most": (_HUGE, _HUGE)}
    for name, size in {**sizes, "one-row": (_HUGE, 1), "negative": (2**32 - 1, 8)}.items():
        yield f"png-{name}", IMAGE, png(*size, rows=bytes(256))
    frames = png_chunk(b"acTL", struct.pack(">II", _HUGE, 0))
    yield "apng-lying-frames", VIDEO, png(more=frames)
    count = png_chunk(b"acTL", struct.pack(">II", 9, 0))
    outside = png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, _HUGE, 8, 9, 9, 1, 10, 0, 0))
    yield "apng-frame-outside", VIDEO, png(more=count + outside)


def _png_bombs() -> Made:
    yield "png-profile-bomb", IMAGE, png(more=png_chunk(b"iCCP", b"a\0\0" + bomb(256)))
    yield "png-200-text-bombs", IMAGE, png(more=png_chunk(b"zTXt", b"a\0\0" + bomb(1)) * 200)
    yield "png-a-million-chunks", IMAGE, png(more=png_chunk(b"tIME", b"") * 1_200_000)
    yield "png-pixel-bomb", IMAGE, png(30_000, 30_000, depth=1, colours=0, rows=bytes(9))
    whole = b"\0" * (1 + 790) * 6320
    yield "png-40-megapixels", IMAGE, png(6320, 6320, depth=1, colours=0, rows=whole)
    yield "png-more-data-than-rows", IMAGE, png(rows=bytes(64 * MIB))


def _lying_gifs() -> Made:
    yield "gif-zero-size", IMAGE, gif(gif_image(0, 0), width=0, height=0)
    yield "gif-huge-screen", IMAGE, gif(gif_image(), width=65535, height=65535)
    frames = gif_image(8, 8, codes=b"\x84\x8f\xa9\xcb\xed\x0f\x63\x2b")
    yield "gif-700000-frames", VIDEO, gif(*[frames] * 700_000)
    yield "gif-100000-frames-as-picture", IMAGE, gif(*[frames] * 100_000, b";")


def _lying_bmps() -> Made:
    for name, size in {"huge": (_HUGE, _HUGE), "zero": (0, 0), "negative": (-8, 8)}.items():
        yield f"bmp-{name}", IMAGE, bmp(*size)


def _jpeg_with(marker: int, contents: bytes) -> bytes:
    return jpeg_with(bytes((0xFF, marker)) + (2 + len(contents)).to_bytes(2) + contents)


def _jpeg_of_size(width: int, height: int, name: str = "jpeg") -> bytes:
    data = good_pictures()[name]
    start = data.index(b"\xff\xc2" if name.startswith("prog") else b"\xff\xc0") + 5
    return data[:start] + struct.pack(">HH", height, width) + data[start + 4 :]


def _many_scans(side: int, num_scans: int) -> bytes:
    """A progressive file in which each scan covers all pixels."""
    data = _jpeg_of_size(side, side, "progressive-jpeg")
    scans = data[data.index(b"\xff\xda") : -2]
    return data[:-2] + scans * num_scans + b"\xff\xd9"


def _lying_jpegs() -> Made:
    for width, height in ((0, 8), (65535, 65535), (65535, 700)):
        yield f"jpeg-{width}x{height}", IMAGE, _jpeg_of_size(width, height)
    yield "jpeg-more-rows-than-data", IMAGE, _jpeg_of_size(96, 6000)
    yield "jpeg-fill-bytes", IMAGE, b"\xff\xd8" + b"\xff" * 8 * MIB
    yield "jpeg-20000-scans", IMAGE, _many_scans(6000, 2000)
    loop = tiff({0x8769: (4, 1, 8)}, following=8)
    yield "jpeg-exif-loop", IMAGE, _jpeg_with(0xE1, b"Exif\0\0" + loop)


def _lying_tiffs() -> Made:
    for name, side in {"zero": 0, "most": 2**32 - 1, "65535": 65535}.items():
        yield f"tiff-{name}", IMAGE, grey_tiff(side, side)
    yield "tiff-many-offsets", IMAGE, grey_tiff(8, 8, offsets=(4, 2**31, 8))
    yield "tiff-65535-samples", IMAGE, grey_tiff(8, 8, samples=(3, 1, 65535))
    for name, code in {"lzw": 5, "deflate": 8, "jpeg": 7}.items():
        data = grey_tiff(6000, 6000, compression=(3, 1, code))
        yield f"tiff-zeros-as-{name}", IMAGE, data
    tiles = {"tile_offsets": (4, 1, 200), "tile_counts": (4, 1, 64)}
    huge = {"tile_width": (4, 1, 2**31), "tile_height": (4, 1, 2**31)}
    yield "tiff-huge-tile", IMAGE, grey_tiff(8, 8, compression=(3, 1, 8), **huge, **tiles)
    yield "tiff-65535-entries", IMAGE, b"II*\0\x08\0\0\0\xff\xff" + b"\0\1\4\0\1\0\0\0" * 60_000
    yield "tiff-directories-in-a-loop", IMAGE, grey_tiff_in_a_loop()
    yield "tiff-exif-in-a-loop", IMAGE, grey_tiff(8, 8, exif=(4, 1, 8))


def grey_tiff_in_a_loop() -> bytes:
    data = bytearray(grey_tiff(8, 8))
    (num_entries,) = struct.unpack_from("<H", data, 8)
    struct.pack_into("<I", data, 10 + 12 * num_entries, 8)
    return bytes(data)


def _lying_webps() -> Made:
    extended = struct.pack("<I", 2) + struct.pack("<I", 16_383)[:3] * 2
    yield "webp-huge-canvas", IMAGE, riff(b"WEBP", (b"VP8X", extended))


def _lying_avifs() -> Made:
    avif = good_pictures()["avif"]
    at = avif.index(b"ispe") + 8
    yield "avif-huge", IMAGE, avif[:at] + struct.pack(">II", _HUGE, _HUGE) + avif[at + 8 :]
    yield "avif-zero", IMAGE, avif[:at] + bytes(8) + avif[at + 8 :]
    large = avif[:at] + struct.pack(">II", 3000, 3000) + avif[at + 8 :]
    yield "avif-larger-than-coded", IMAGE, large


def _lying_videos() -> Made:
    mp4 = good_videos()["mp4"]
    at = mp4.index(b"avc1") + 28
    yield "mp4-65535", VIDEO, mp4[:at] + b"\xff" * 4 + mp4[at + 4 :]
    yield "mp4-garbage-frames", VIDEO, _overwritten(mp4, b"mdat", b"\xa5")
    yield "mp4-boxes-in-boxes", VIDEO, box(b"ftyp", b"isom", bytes(4)) + _nested(b"moov", 3000)
    yield "mp4-a-million-boxes", VIDEO, box(b"ftyp", b"isom", bytes(4)) + box(b"free") * 10**6
    yield "mp4-a-million-tracks", VIDEO, box(b"ftyp", b"isom") + box(b"moov", box(b"trak") * 10**6)
    link = b"\0\0\0\0" + b"file:///etc/passwd\0"
    yield "mp4-other-file", VIDEO, mp4.replace(b"\0\0\0\x0curl \0\0\0\1", box(b"url ", link))
    webm = good_videos()["webm"]
    at = webm.index(b"\xb0", webm.index(b"V_VP8"))
    yield "webm-huge", VIDEO, webm[:at] + b"\xb0\x84\x7f\xff\xff\xff" + webm[at + 6 :]


def _overwritten(data: bytes, name: bytes, value: bytes) -> bytes:
    start = data.index(name) + 4
    end = start - 8 + int.from_bytes(data[start - 8 : start - 4])
    return data[:start] + value * (end - start) + data[end:]


def _nested(name: bytes, num_levels: int) -> bytes:
    data = b""
    for _ in range(num_levels):
        data = box(name, data)
    return data


def _changed_pdf(objects: dict[int, bytes], trailer: bytes = b"") -> bytes:
    return pdfs.pdf({**pdfs.pages([pdfs.QUADRANTS]), **objects}, trailer)


def _bad_documents() -> Made:
    tree = b"<< /Type /Pages /Parent 2 0 R /Count %d /Kids [%s] >>"
    yield "pdf-pages-in-a-loop", DOCUMENT, _changed_pdf({2: tree % (1, b"2 0 R")})
    levels = {number: tree % (1, b"%d 0 R" % (number + 1)) for number in range(6, 20_000)}
    yield "pdf-pages-20000-deep", DOCUMENT, _changed_pdf({2: tree % (1, b"6 0 R"), **levels})
    yield "pdf-a-billion-pages", DOCUMENT, _changed_pdf({2: tree % (10**9, b"4 0 R")})
    yield "pdf-21-pages", DOCUMENT, pdfs.pdf(pdfs.pages([b""] * 21))
    yield "pdf-no-pages", DOCUMENT, _changed_pdf({2: tree % (0, b"")})
    yield "pdf-table-of-itself", DOCUMENT, _changed_pdf({}, b"/Prev 9")
    encryption = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (o) /U (u) >>"
    yield "pdf-encrypted", DOCUMENT, _changed_pdf({}, encryption)
    for name, values in {"zero": b"0 0 0 0", "huge": b"0 0 1e30 1e30"}.items():
        objects = pdfs.pages([pdfs.QUADRANTS], b"[" + values + b"]")
        yield f"pdf-page-of-size-{name}", DOCUMENT, pdfs.pdf(objects)
    many = pdfs.deflated(b"0 0 9 9 re f " * 4_000_000)
    yield "pdf-many-operators", DOCUMENT, _changed_pdf({5: many})
    packed = pdfs.stream(bomb(1024), b"/Filter /FlateDecode")
    yield "pdf-stream-bomb", DOCUMENT, _changed_pdf({5: packed})
    yield "pdf-forms-in-forms", DOCUMENT, _forms(10, 10)
    yield "pdf-form-of-itself", DOCUMENT, _forms(1, 1, b"6 0 R")
    yield "pdf-nested-arrays", DOCUMENT, _changed_pdf({2: b"[" * 500_000})
    image = b"/Type /XObject /Subtype /Image /Width %d /Height %d /BitsPerComponent 8 /ColorSpace "
    picture = pdfs.deflated(bytes(9), image % (_HUGE, _HUGE) + b"/DeviceRGB")
    yield f"pdf-image-of-{_HUGE}", DOCUMENT, _with_image(picture)


def _with_image(picture: bytes) -> bytes:
    objects = pdfs.pages([b"q 96 0 0 64 0 0 cm /X0 Do Q"], resources=b"/XObject << /X0 6 0 R >>")
    return pdfs.pdf({**objects, 6: picture})


def _forms(num_levels: int, num_uses: int, innermost: bytes = b"") -> bytes:
    """Each form draws the next one so many times."""
    objects = pdfs.pages([b"/X0 Do"], resources=b"/XObject << /X0 6 0 R >>")
    for number in range(6, 6 + num_levels):
        following = innermost or b"%d 0 R" % (number + 1)
        entries = (
            b"/Type /XObject /Subtype /Form /BBox [0 0 96 64] "
            b"/Resources << /XObject << /X0 %s >> >>" % following
        )
        objects[number] = pdfs.stream(b"/X0 Do " * num_uses, entries)
    if not innermost:
        last = b"/Type /XObject /Subtype /Form /BBox [0 0 96 64]"
        objects[6 + num_levels] = pdfs.stream(pdfs.QUADRANTS, last)
    return pdfs.pdf(objects)


def _zip() -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    return file.getvalue()


_WRONG_TYPES: Final[dict[str, bytes]] = {
    "empty": b"",
    "one-byte": b"\x89",
    "zeros": bytes(4096),
    "text": b"The quick brown fox",
    "base64": b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    "html": b"<!DOCTYPE html><html><script>alert(1)</script></html>",
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\n",
    "heic": box(b"ftyp", b"heic", bytes(4), b"mif1heic") + bytes(64),
    "rtf": b"{\\rtf1 hello}",
    "wav": riff(b"WAVE", (b"fmt ", bytes(16))),
    "flv": b"FLV\x01\x05" + bytes(64),
    "mpeg": b"\0\0\x01\xba" + bytes(64),
    "playlist": b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n",
    "concat-script": b"ffconcat version 1.0\nfile /etc/passwd\n",
}  # fmt: skip


def _wrong_types() -> Made:
    for name, data in _WRONG_TYPES.items():
        yield f"{name}-as-picture", IMAGE, data
    for name in ("empty", "text", "playlist", "concat-script", "wav", "flv", "svg", "mpeg"):
        yield f"{name}-as-video", VIDEO, _WRONG_TYPES[name]
    for name in ("empty", "text", "rtf", "html", "eps"):
        yield f"{name}-as-document", DOCUMENT, _WRONG_TYPES[name]
    yield "zip-as-document", DOCUMENT, _zip()
    yield "gzip-as-picture", IMAGE, gzip.compress(good_pictures()["png"])
    yield "picture-as-document", DOCUMENT, good_pictures()["png"]
    yield "document-as-picture", IMAGE, good_document()
    yield "video-as-picture", IMAGE, good_videos()["mp4"]
    yield "picture-as-video", VIDEO, good_pictures()["jpeg"]


def _polyglots() -> Made:
    pictures = good_pictures()
    script = b"=1;/*" + bytes(64) + b"*/alert(1)"
    yield "gif-and-script", IMAGE, b"GIF89a" + script
    yield "png-and-svg", IMAGE, b"\x89PNG\r\n\x1a\n" + _WRONG_TYPES["svg"]
    yield "tiff-and-pdf", IMAGE, b"II*\0" + good_document()
    yield "mp4-and-html", VIDEO, box(b"ftyp", b"isom") + _WRONG_TYPES["html"]
    yield "jpeg-and-pdf-as-document", DOCUMENT, pictures["jpeg"] + good_document()
    yield "jpeg-and-pdf-as-picture", IMAGE, pictures["jpeg"] + good_document()
    yield "zip-and-png", IMAGE, _zip() + pictures["png"]
    yield "jpeg-with-script-as-picture", IMAGE, _jpeg_with(0xFE, b"*/alert(1)/*")
    yield "pdf-and-zip", DOCUMENT, good_document() + _zip()


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
    of_pictures = (_lying_pngs, _png_bombs, _lying_gifs, _lying_bmps, _lying_jpegs, _lying_tiffs)
    of_others = (_lying_webps, _lying_avifs, _lying_videos, _bad_documents)
    for make in (_truncated, *of_pictures, *of_others, _wrong_types, _polyglots):
        yield from (BadFile(*each) for each in make())


# -- Files of so many parts that a decoder only reads structure for seconds. Each is below the limit
# of bytes, and most are valid.


def files_of_many_parts() -> Iterator[BadFile]:
    yield from (BadFile(*each) for each in _many_parts())


def _many_parts() -> Made:
    text = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(999)))
    yield "png-400000-texts", IMAGE, png(more=text * 400_000)
    yield "apng-20000-frames", VIDEO, _apng(20_000)
    exif = b"\xff\xe1\x07\x6cExif\0\0".ljust(1902, b"\0")
    yield "jpeg-9000-exif-segments", IMAGE, jpeg_with(exif * 9_000)
    num, at = 2_000_000, 264
    counts = (4, num, at + 4 * num)
    strips = grey_tiff(1, num, rows=(4, 1, 1), offsets=(4, num, at), counts=counts)
    yield "tiff-2-million-strips", IMAGE, strips + b"\xc8\0\0\0" * num + b"\1\0\0\0" * num
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
