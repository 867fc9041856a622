"""The containers of pictures, videos and documents, part by part, and small good files."""

import struct
import zlib
from functools import cache
from typing import Final

from tests.media import pdfs
from tests.media.drawing import quadrants, saved
from tests.media.videos import video

MIB: Final = 2**20


def png_chunk(name: bytes, contents: bytes) -> bytes:
    return len(contents).to_bytes(4) + name + contents + zlib.crc32(name + contents).to_bytes(4)


def png(
    width: int = 8,
    height: int = 8,
    *,
    depth: int = 8,
    colours: int = 2,
    more: bytes = b"",
    rows: bytes | None = None,
) -> bytes:
    header = struct.pack(">IIBB", width, height, depth, colours) + bytes(3)
    rows = b"\0" * (height * (1 + 3 * width)) if rows is None else rows
    chunks = png_chunk(b"IHDR", header) + more + png_chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunks + png_chunk(b"IEND", b"")


def bomb(num_mib: int) -> bytes:
    """So many mebibytes of zeros, deflated. Each of them is the same block."""
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    each = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = packer.flush()[:-4] + struct.pack(">HH", num_mib * MIB % 65521, 1)
    return first + each * (num_mib - 1) + end


def riff(kind: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    body = kind + b"".join(
        name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def box(name: bytes, *contents: bytes) -> bytes:
    body = b"".join(contents)
    return (8 + len(body)).to_bytes(4) + name + body


def gif(*blocks: bytes) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0x80, 0, 0) + bytes(6) + b"".join(blocks)


def jpeg_with(segments: bytes) -> bytes:
    """A good file with these segments first."""
    data = good_pictures()["jpeg"]
    return data[:2] + segments + data[2:]


# -- Good files


@cache
def good_pictures() -> dict[str, bytes]:
    drawn = quadrants()
    frames = {"save_all": True, "append_images": [quadrants().rotate(180)]}
    return {
        "jpeg": saved(drawn, "JPEG"),
        "progressive-jpeg": saved(drawn, "JPEG", progressive=True),
        "png": saved(drawn, "PNG"),
        "palette-png": saved(drawn.convert("P"), "PNG"),
        "webp": saved(drawn, "WEBP"),
        "lossless-webp": saved(drawn, "WEBP", lossless=True),
        "animated-webp": saved(drawn, "WEBP", **frames),
        "gif": saved(drawn, "GIF"),
        "bmp": saved(drawn, "BMP"),
        "tiff": saved(drawn, "TIFF"),
        "lzw-tiff": saved(drawn, "TIFF", compression="tiff_lzw"),
        "deflate-tiff": saved(drawn, "TIFF", compression="tiff_adobe_deflate"),
        "avif": saved(drawn, "AVIF", speed=10),
    }


@cache
def good_videos() -> dict[str, bytes]:
    frames = [quadrants()] * 12
    return {
        "mp4": video(frames),
        "webm": video(frames, "libvpx", "webm"),
        "avi": video(frames, "mpeg4", "avi"),
    }


def good_document() -> bytes:
    return pdfs.pdf(pdfs.pages([pdfs.QUADRANTS, pdfs.words(b"Merlot")]))
