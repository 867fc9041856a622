"""Files of so many parts that a decoder only reads structure for seconds, one for each format. Each
is below the limit of bytes, and most are valid."""

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO

from PIL import Image

from tests.media import pdfs
from tests.media.containers import (
    box,
    gif,
    gif_image,
    good_pictures,
    good_videos,
    grey_tiff,
    jpeg_with,
    png,
    png_chunk,
    riff,
    tiff,
)
from vinery_serving.core.media import MediaKind

Made = Iterator[tuple[str, MediaKind, bytes]]
IMAGE, VIDEO, DOCUMENT = MediaKind.IMAGE, MediaKind.VIDEO, MediaKind.DOCUMENT


def many_parts() -> Made:
    pictures = (_pngs, _gifs, _jpegs, _tiffs, _other_pictures, _avifs)
    for make in (*pictures, _videos, _documents):
        yield from make()


def _pngs() -> Made:
    text = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(999)))
    yield "png-400000-texts", IMAGE, png(more=text * 400_000)
    exif = tiff({274: (5, 2_000_000, 64)}).ljust(64, b"\0") + bytes(16_000_000)
    yield "png-exif-of-2-million-ratios", IMAGE, png(more=png_chunk(b"eXIf", exif))
    yield "apng-20000-frames", VIDEO, _apng(20_000)


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


def _gifs() -> Made:
    yield "gif-comment-in-bytes", IMAGE, gif(b"!\xfe" + b"\1a" * 9_000_000 + b"\0", gif_image())


def _jpegs() -> Made:
    exif = b"\xff\xe1\x07\x6cExif\0\0".ljust(1902, b"\0")
    yield "jpeg-9000-exif-segments", IMAGE, jpeg_with(exif * 9_000)


def _tiffs() -> Made:
    num = 2_000_000
    strips = grey_tiff(
        1, num, rows=(4, 1, 1), offsets=(4, num, 264), counts=(4, num, 264 + 4 * num)
    )
    yield "tiff-2-million-strips", IMAGE, strips + b"\xc8\0\0\0" * num + b"\1\0\0\0" * num


def _other_pictures() -> Made:
    file = BytesIO()
    Image.new("RGB", (1, 1)).save(file, "WEBP", lossless=True)
    frame = (b"ANMF", bytes(12) + b"\x0a\0\0\0" + file.getvalue()[12:])
    head = (b"VP8X", struct.pack("<I", 2) + bytes(6)), (b"ANIM", bytes(6))
    yield "webp-100000-frames", VIDEO, riff(b"WEBP", *head, *[frame] * 100_000)
    num = 9_000_000
    info = struct.pack("<IiiHHIIiiII", 40, 4000, 4000, 1, 8, 1, 2 * num, 0, 0, 2, 0)
    head_of_bmp = b"BM" + struct.pack("<IHHI", 62 + 2 * num, 0, 0, 62)
    yield "bmp-9-million-runs", IMAGE, head_of_bmp + info + bytes(8) + b"\1\1" * num


def _avifs() -> Made:
    numbers = range(100, 100_100)
    entries = (
        box(b"infe", b"\3\0\0\0", struct.pack(">IH", number, 0), b"Exif\0") for number in numbers
    )
    count = b"\1\0\0\0" + struct.pack(">I", len(numbers))
    yield "avif-100000-items", IMAGE, _avif_with(box(b"iinf", count, *entries))


def _avif_with(changed: bytes) -> bytes:
    """A good file with this box of its `meta` box."""
    avif = good_pictures()["avif"]
    start = avif.index(changed[4:8]) - 4
    end = start + int.from_bytes(avif[start : start + 4])
    meta = avif.index(b"meta") - 4
    length = int.from_bytes(avif[meta : meta + 4]) + len(changed) - (end - start)
    return avif[:meta] + length.to_bytes(4) + avif[meta + 4 : start] + changed + avif[end:]


def _videos() -> Made:
    sizes = b"\0" * 8 + struct.pack(">I", 4_500_000) + b"\0\0\0\1" * 4_500_000
    yield "mp4-4-million-sizes", VIDEO, _mp4_with(b"stsz", sizes)
    webm = good_videos()["webm"]
    cluster = webm.index(b"\x1f\x43\xb6\x75")
    endless = b"\x01" + b"\xff" * 7
    segment = webm.index(b"\x18\x53\x80\x67") + 4
    head = webm[:segment] + endless + webm[segment + 8 : cluster]
    blocks = b"\x1f\x43\xb6\x75" + endless + b"\xe7\x81\0" + b"\xa3\x85\x81\0\0\x80\0" * 2_500_000
    yield "webm-2-million-frames", VIDEO, head + blocks


def _mp4_with(name: bytes, contents: bytes) -> bytes:
    """A good file with these contents of a table."""
    parents = (b"moov", b"trak", b"mdia", b"minf", b"stbl")

    def changed(data: bytes) -> bytes:
        written, position = b"", 0
        while position < len(data):
            length, found = struct.unpack_from(">I4s", data, position)
            inside = data[position + 8 : position + length]
            if found in parents:
                inside = changed(inside)
            written += box(found, contents if found == name else inside)
            position += length
        return written

    return changed(good_videos()["mp4"])


def _documents() -> Made:
    drawing = {**pdfs.pages([b""]), 5: pdfs.deflated(b"0 0 9 9 re f " * 3_000_000)}
    yield "pdf-a-page-of-40-megabytes", DOCUMENT, pdfs.pdf(drawing)
