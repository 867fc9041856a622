"""Files that no decoder may trust."""

from __future__ import annotations

import zlib


def png_chunk(name: bytes, contents: bytes) -> bytes:
    return len(contents).to_bytes(4) + name + contents + zlib.crc32(name + contents).to_bytes(4)
