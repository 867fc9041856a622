"""Refuses files of so many parts that a decoder would only read structure.

A header of some bytes costs Pillow, FFmpeg or PDFium microseconds, and a file of 20 MB may have
millions of them. Some decoders also search all earlier parts for each new one. These checks walk
from part to part without reading their contents, and stop at a limit that is many times what
cameras and programs write. A file that passes may still be damaged, and its decoder refuses it.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from vinery_serving.media.decoding.refusals import Unreadable

_KIB: Final = 2**10

# A PNG of 20 MB has 2,500 chunks of the 8 KiB that libpng writes.
_MOST_CHUNKS: Final = 50_000
# A GIF of 20 MB has 82,000 blocks of the 255 bytes that most programs write.
_MOST_BLOCKS: Final = 200_000
_MOST_FRAMES: Final = 10_000
# A JPEG with a large profile and metadata has some hundred segments, and a progressive one 10 scans
# or a few more. Some cameras fill kilobytes between segments.
_MOST_SEGMENTS: Final = 10_000
_MOST_SCANS: Final = 100
_MOST_FILL_BYTES: Final = 64 * _KIB
_MOST_EXIF_SEGMENTS: Final = 16
# A TIFF may have a strip for each row, and tiles have at least 16 x 16 pixels.
_MOST_VALUES: Final = 50_000
# A video of an hour in fragments of a second has 25,000 boxes for each of its two tracks.
_MOST_BOXES: Final = 100_000
# An AVIF of 256 tiles has lists of 6 KiB.
_MOST_LIST_BYTES: Final = 64 * _KIB
# Pillow's decoder of run lengths is written in Python.
_MOST_RUN_BYTES: Final = 1024 * _KIB
# A tagged PDF of 20 pages has some ten thousand objects.
_MOST_OBJECTS: Final = 250_000
_MOST_STREAMS: Final = 20_000
# Without pictures and fonts: drawings of maps have some megabytes.
_MOST_DRAWN_BYTES: Final = 24 * _KIB * _KIB


def check_structure(data: bytes, file_type: str) -> None:
    """`file_type` is the name of a type of `file_types`. Raises `Unreadable`."""
    check = _CHECKS.get(file_type)
    if check is not None:
        check(data)


def _check_number(parts: Iterator[object], most: int, name: str) -> None:
    if next(islice(parts, most, None), None) is not None:
        raise _too_many(most, name)


def _check_each(*counted: tuple[int, int, str]) -> None:
    for num, most, name in counted:
        if num > most:
            raise _too_many(most, name)


def _too_many(most: int, name: str) -> Unreadable:
    return Unreadable(
        f"has more than {most} {name}, which take too long to read. Save or export it again as a "
        "simpler file"
    )


# -- PNG -------------------------------------------------------------------------------------------


def _check_png(data: bytes) -> None:
    _check_number(_png_chunks(data), _MOST_CHUNKS, "chunks")


def _png_chunks(data: bytes) -> Iterator[bytes]:
    """Yield their names."""
    position = 8
    while position + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        yield name
        if name == b"IEND":
            return
        position += 12 + length


# -- GIF -------------------------------------------------------------------------------------------

_GIF_BLOCK: Final = re.compile(rb"[!,;]")  # decoders look for it from byte to byte
_GIF_FRAME: Final = b","
_GIF_END: Final = b";"


def _check_gif(data: bytes) -> None:
    num_frames = num_parts = num_filled = 0
    for kind, num_parts_of_block, num_skipped in _gif_blocks(data):
        num_frames += kind == _GIF_FRAME
        num_parts += num_parts_of_block
        num_filled += num_skipped
        _check_each(
            (num_frames, _MOST_FRAMES, "frames"),
            (num_parts, _MOST_BLOCKS, "blocks"),
            (num_filled, _MOST_FILL_BYTES, "bytes between its blocks"),
        )


def _gif_blocks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the kind of each block, empty for the end of the data, the number of its parts, and how
    many bytes are between it and the block before."""
    position = 13 + _gif_palette_bytes(data, 10)
    while block := _GIF_BLOCK.search(data, position):
        num_skipped = block.start() - position
        position = block.end()
        if block[0] == _GIF_END:
            return
        if block[0] == _GIF_FRAME:
            position += 9 + _gif_palette_bytes(data, position + 8)
        # There is the kind of an extension first, or the size of codes.
        position, num_parts = _end_of_gif_parts(data, position + 1)
        yield block[0], num_parts, num_skipped
    yield b"", 0, max(0, len(data) - position)


def _end_of_gif_parts(data: bytes, position: int) -> tuple[int, int]:
    """Return the position behind the parts of a block, and how many there are."""
    num_parts = 1
    while num_parts <= _MOST_BLOCKS and position < len(data) and (length := data[position]):
        num_parts += 1
        position += 1 + length
    return position + 1, num_parts


def _gif_palette_bytes(data: bytes, position: int) -> int:
    """Return the length of the palette that the flags at this position announce."""
    flags = data[position] if position < len(data) else 0
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


# -- JPEG ------------------------------------------------------------------------------------------

# A marker, but none of those within the data of a scan.
_JPEG_MARKER: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_START_OF_SCAN: Final = 0xDA
_END_OF_IMAGE: Final = 0xD9
# Nothing belongs to these.
_MARKERS_ALONE: Final = frozenset((0x01, 0xC8, 0xD8, 0xD9, *range(0xF0, 0xFE)))


def _check_jpeg(data: bytes) -> None:
    num_scans = num_filled = num_exif = 0
    for number, (start, marker, num_skipped) in enumerate(_jpeg_segments(data)):
        num_filled += 0 if num_scans else num_skipped
        num_scans += marker == _START_OF_SCAN
        num_exif += data.startswith(EXIF, start + 4)
        _check_each(
            (number, _MOST_SEGMENTS, "segments"),
            (num_scans, _MOST_SCANS, "scans"),
            (num_filled, _MOST_FILL_BYTES, "bytes between its segments"),
            (num_exif, _MOST_EXIF_SEGMENTS, "segments of EXIF data"),
        )
        if marker == _END_OF_IMAGE and num_scans:
            return


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the start and marker of each, and how many bytes are between it and the one before."""
    position = 2
    while found := _JPEG_MARKER.search(data, position):
        start, marker = found.start(), found[0][1]
        yield start, marker, start - position
        position = _end_of_segment(data, start, marker)
    yield len(data), _END_OF_IMAGE, max(0, len(data) - position)


def _end_of_segment(data: bytes, start: int, marker: int) -> int:
    position = start + 2
    if marker in _MARKERS_ALONE:
        return position
    return position + max(int.from_bytes(data[position : position + 2]), 2)


# -- TIFF, and the tags of other pictures ----------------------------------------------------------

EXIF: Final = b"Exif\0\0"  # in front of EXIF data
_OFFSET_TAGS: Final = frozenset((273, 279, 324, 325))  # of strips and tiles
# Bytes, text, and the short values of colour tables.
_SHORT_TYPES: Final = frozenset((1, 2, 3, 6, 7))


def check_tags(data: bytes) -> None:
    """Check the first directory of a TIFF, or of EXIF data. Raises `Unreadable`."""
    for tag, kind, count in _tags(data):
        if count > _MOST_VALUES and (tag in _OFFSET_TAGS or kind not in _SHORT_TYPES):
            raise _too_many(_MOST_VALUES, f"values of the TIFF tag {tag}")


def _tags(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield tag, type and count of each entry; nothing if the directory is not in the file."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = b"+" in data[2:4]
    head, entry = ("Q", "HHQ8x") if is_big else ("H", "HHI4x")
    try:
        (start,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, 8 if is_big else 4)
        (num_entries,) = struct.unpack_from(order + head, data, start)
    except (struct.error, OverflowError):
        return
    start += struct.calcsize(order + head)
    size = struct.calcsize(order + entry)
    table = data[start : start + size * min(num_entries, 0xFFFF)]
    yield from struct.iter_unpack(order + entry, table[: len(table) // size * size])


# -- BMP -------------------------------------------------------------------------------------------


def _check_bmp(data: bytes) -> None:
    """Compression is in the second header, at byte 16 if there is one of at least 40 bytes."""
    has_runs = data[14:15] >= b"\x28" and data[30:34] in (b"\1\0\0\0", b"\2\0\0\0")
    if has_runs and len(data) > _MOST_RUN_BYTES:
        raise Unreadable(
            f"is a BMP with run lengths of more than {_MOST_RUN_BYTES} bytes, which takes too long "
            "to read. Save it as PNG"
        )


# -- MP4, QuickTime and AVIF -----------------------------------------------------------------------

_CONTAINERS: Final = frozenset(
    {
        *(b"moov", b"trak", b"mdia", b"minf", b"stbl", b"dinf", b"edts", b"udta", b"mvex"),
        *(b"moof", b"traf", b"meta", b"iprp", b"ipco"),
    }
)
# For each entry of these, AVIF's decoder searches all items.
_ITEM_LISTS: Final = frozenset((b"iinf", b"iloc", b"ipma", b"iref"))


def _check_boxes(data: bytes) -> None:
    _check_number(_boxes(data), _MOST_BOXES, "boxes")


def _check_avif(data: bytes) -> None:
    for number, (name, length) in enumerate(_boxes(data)):
        if number >= _MOST_BOXES:
            raise _too_many(_MOST_BOXES, "boxes")
        if name in _ITEM_LISTS and length > _MOST_LIST_BYTES:
            raise _too_many(_MOST_LIST_BYTES, f"bytes in its list `{name.decode()}`")


def _boxes(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield name and length of each box, a container before its contents (ISO/IEC 14496-12)."""
    position = 0
    while position + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        head = 8
        if length == 1 and position + 16 <= len(data):
            (length,) = struct.unpack_from(">Q", data, position + 8)
            head = 16
        length = length or len(data) - position  # 0: to the end of the file
        yield name, length
        if name in _CONTAINERS:
            length = head + _flag_bytes(data, position + head, name)
        position += max(length, head)


def _flag_bytes(data: bytes, position: int, name: bytes) -> int:
    """A `meta` box has a version and flags first, but not in QuickTime files."""
    return 4 if name == b"meta" and data[position : position + 4] == bytes(4) else 0


# -- PDF -------------------------------------------------------------------------------------------

_STREAM: Final = re.compile(rb"stream\r?\n")
_END_OF_STREAM: Final = b"endstream"
_DICTIONARY_BYTES: Final = 512
# In the dictionaries of pictures and fonts.
_NOT_DRAWN: Final = re.compile(rb"/(?:Image|Length1|(?:CIDFont)?Type[01]C|OpenType)\b")


def _check_pdf(data: bytes) -> None:
    """Inflate what pages may draw, up to the limit. Pages are in compressed streams, and a megabyte
    of these may be a gigabyte of drawing."""
    _check_each((data.count(b" obj"), _MOST_OBJECTS, "objects"))
    num_left = _MOST_DRAWN_BYTES
    for number, (dictionary, packed) in enumerate(_pdf_streams(data)):
        if number >= _MOST_STREAMS:
            raise _too_many(_MOST_STREAMS, "streams")
        if b"FlateDecode" in dictionary and not _NOT_DRAWN.search(dictionary):
            num_left -= _num_inflated(packed, num_left + 1)
        if num_left < 0:
            raise _too_many(_MOST_DRAWN_BYTES, "bytes of drawing on its pages")


def _pdf_streams(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the end of the dictionary of each, and its contents."""
    position = 0
    while found := _STREAM.search(data, position):
        end = data.find(_END_OF_STREAM, found.end())
        end = len(data) if end < 0 else end
        start = max(position, found.start() - _DICTIONARY_BYTES)
        yield data[start : found.start()], memoryview(data)[found.end() : end]
        position = end + len(_END_OF_STREAM)


def _num_inflated(packed: memoryview, most: int) -> int:
    """Return how many bytes it has when inflated, counted up to `most`."""
    try:
        return len(zlib.decompressobj().decompress(packed, most))
    except zlib.error:
        return 0


_CHECKS: Final[dict[str, Callable[[bytes], None]]] = {
    "PNG": _check_png,
    "GIF": _check_gif,
    "JPEG": _check_jpeg,
    "TIFF": check_tags,
    "BMP": _check_bmp,
    "MP4": _check_boxes,
    "AVIF": _check_avif,
    "PDF": _check_pdf,
}
