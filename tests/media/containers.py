"""The containers of pictures, videos and documents, part by part, and small good files."""

import struct
import zlib
from functools import cache
from typing import Final

from tests.media import pdfs
from tests.media.drawing import quadrants, saved
from tests.media.videos import video

MIB: Final = 2**20


# -- Containers ----------------------------------------------------------------------------------


def png_chunk(name: bytes, contents: bytes) -> bytes:
    return len(contents).to_bytes(4) + name + contents + zlib.crc32(name + contents).to_bytes(4)


def png(
    width: int = 8,
    height: int = 8,
    *,
    depth: int = 8,
    colours: int = 2,
    more: bytes = b"",
    before: bytes = b"",
    rows: bytes | None = None,
    tail: bytes = b"\0\0\0",
) -> bytes:
    header = struct.pack(">IIBB", width, height, depth, colours) + tail
    rows = b"\0" * (height * (1 + 3 * width)) if rows is None else rows
    return (
        b"\x89PNG\r\n\x1a\n"
        + before
        + png_chunk(b"IHDR", header)
        + more
        + png_chunk(b"IDAT", zlib.compress(rows, 9))
        + png_chunk(b"IEND", b"")
    )


def bomb(num_mib: int) -> bytes:
    """So many mebibytes of zeros, deflated. Each of them is the same block."""
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    each = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = packer.flush()[:-4] + struct.pack(">HH", num_mib * MIB % 65521, 1)
    return first + each * (num_mib - 1) + end


def tiff(
    entries: dict[int, tuple[int, int, int]], *, following: int = 0, more: bytes = b""
) -> bytes:
    """`entries`: the type, count and value of each tag."""
    table = b"".join(struct.pack("<HHII", tag, *entry) for tag, entry in sorted(entries.items()))
    head = b"II*\0" + struct.pack("<IH", 8, len(entries))
    return head + table + struct.pack("<I", following)


def grey_tiff(width: int, height: int, **changed: tuple[int, int, int]) -> bytes:
    tags = {
        "width": 256, "height": 257, "bits": 258, "compression": 259, "photometric": 262,
        "offsets": 273, "samples": 277, "rows": 278, "counts": 279, "planar": 284,
        "tile_width": 322, "tile_height": 323, "tile_offsets": 324, "tile_counts": 325,
        "resolution": 282, "exif": 34665,
    }  # fmt: skip
    entries = {"width": (4, 1, width), "height": (4, 1, height), "rows": (4, 1, height)}
    entries |= dict.fromkeys(("compression", "photometric", "samples"), (3, 1, 1))
    entries |= {"bits": (3, 1, 8), "offsets": (4, 1, 200), "counts": (4, 1, 64), **changed}
    data = tiff({tags[name]: entry for name, entry in entries.items()})
    return data.ljust(200, b"\0") + bytes(64)


def riff(kind: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    body = kind + b"".join(
        name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def box(name: bytes, *contents: bytes) -> bytes:
    body = b"".join(contents)
    return (8 + len(body)).to_bytes(4) + name + body


def gif(
    *blocks: bytes, width: int = 8, height: int = 8, flags: int = 0x80, palette: bytes = bytes(6)
) -> bytes:
    return (
        b"GIF89a" + struct.pack("<HHBBB", width, height, flags, 0, 0) + palette + b"".join(blocks)
    )


def gif_image(
    width: int = 8, height: int = 8, *, left: int = 0, code_size: int = 2, codes: bytes = b"\x84Q\0"
) -> bytes:
    head = b"," + struct.pack("<HHHHB", left, left, width, height, 0)
    return head + bytes((code_size, len(codes))) + codes + b"\0"


def bmp(width: int, height: int, bits: int = 24, offset: int = 54, compression: int = 0) -> bytes:
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 192, 0, 0, offset) + info + bytes(192)


def jpeg_with(segments: bytes) -> bytes:
    """A good file with these segments first."""
    data = good_pictures()["jpeg"]
    return data[:2] + segments + data[2:]


# -- Good files ----------------------------------------------------------------------------------


@cache
def good_pictures() -> dict[str, bytes]:
    drawn = quadrants()
    frames = [quadrants(96, 64), quadrants(96, 64).rotate(180)]
    return {
        "jpeg": saved(drawn, "JPEG"),
        "progressive-jpeg": saved(drawn, "JPEG", progressive=True),
        "png": saved(drawn, "PNG"),
        "palette-png": saved(drawn.convert("P"), "PNG"),
        "webp": saved(drawn, "WEBP"),
        "lossless-webp": saved(drawn, "WEBP", lossless=True),
        "animated-webp": saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
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
