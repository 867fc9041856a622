"""PDFs that tests write, object by object."""

import zlib
from collections.abc import Mapping, Sequence

FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def stream(contents: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(contents), entries, contents)


def deflated(contents: bytes, entries: bytes = b"") -> bytes:
    return stream(zlib.compress(contents, 9), b"/Filter /FlateDecode " + entries)


def pdf(objects: Mapping[int, bytes], trailer: bytes = b"") -> bytes:
    """A file with these numbered objects; 1 is the catalog."""
    data, offsets = bytearray(b"%PDF-1.7\n"), {}
    for number, contents in objects.items():
        offsets[number] = len(data)
        data += b"%d 0 obj\n%s\nendobj\n" % (number, contents)
    start, size = len(data), max(objects) + 1
    data += b"xref\n0 1\n0000000000 65535 f \n"
    for number, offset in offsets.items():
        data += b"%d 1\n%010d 00000 n \n" % (number, offset)
    data += b"trailer\n<< /Root 1 0 R /Size %d %s >>\n" % (size, trailer)
    return bytes(data + b"startxref\n%d\n%%%%EOF\n" % start)


def pages(
    contents: Sequence[bytes], box: bytes = b"[0 0 96 64]", resources: bytes = b""
) -> dict[int, bytes]:
    """The objects of a document with these pages, numbered from 1 without a gap."""
    numbers = range(4, 4 + 2 * len(contents), 2)
    kids = b" ".join(b"%d 0 R" % number for number in numbers)
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(contents), kids),
        3: FONT,
    }
    for number, each in zip(numbers, contents, strict=True):
        objects[number] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox %s /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> %s >> >>" % (box, number + 1, resources)
        )
        objects[number + 1] = stream(each)
    return objects


# The quadrants of `drawing`, in PDF's coordinates: the origin is at the lower left.
QUADRANTS = (
    b"0.8627 0.0784 0.1176 rg 0 32 48 32 re f 0.0392 0.6275 0.1569 rg 48 32 48 32 re f "
    b"0.0784 0.1176 0.7843 rg 0 0 48 32 re f 0 0 0 rg 48 0 48 32 re f"
)


def words(text: bytes) -> bytes:
    return b"BT /F1 8 Tf 4 40 Td (%s) Tj ET" % text
