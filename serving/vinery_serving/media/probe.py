"""Decodes a file in a process of its own and reports a `Finding`, for the tester of rules.

    python -m vinery_serving.media.probe MAX_PIXELS MAX_FRAMES < FILE

Decoders read files of strangers, so the process is confined, with limits of processor time and
memory, and its parent kills a late process. The output is one JSON object with the fields of
`Finding`.
"""

import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Final

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import MediaKind
from vinery_serving.media.decoding import (
    DecodeLimits,
    decode_document,
    decode_image,
    decode_video,
    kind_of,
)
from vinery_serving.processes.confine import Needs, confine

_DEFAULT: Final = DecodeLimits()
_CPU_S: Final = 5
_TIMEOUT_S: Final = 15.0
_MEMORY_BYTES: Final = 4 * 2**30
# Only the size is reported, so pixels are scaled down to a few.
_SCALED: Final = 32
_KEPT_VARIABLES: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")


@dataclass(frozen=True, slots=True)
class Finding:
    """The contents of a file. Sizes are those of the upright picture, frame or first page, in
    pixels."""

    kind: str = ""
    width: int = 0
    height: int = 0
    number: int = 0  # of pictures, frames that a model would see, or pages
    sizes: tuple[tuple[int, int], ...] = ()  # width and height of each page; else of one
    error: str = ""


def probe(data: bytes, max_pixels: int, max_frames: int = _DEFAULT.max_frames) -> Finding:
    """Decode the file in a process. Blocks for up to 15 s. Raises nothing for a bad file."""
    command = (sys.executable, "-P", "-m", __name__, str(max_pixels), str(max_frames))
    try:
        ended = subprocess.run(
            command,
            input=data,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
        )
    except (subprocess.SubprocessError, OSError):
        return Finding(error="The file could not be decoded within the limits of time and memory.")
    return Finding(**json.loads(ended.stdout))


def main() -> None:
    limits_of_process = {
        resource.RLIMIT_CPU: _CPU_S,
        resource.RLIMIT_AS: _MEMORY_BYTES,
        resource.RLIMIT_FSIZE: 0,
    }
    confine(Needs(limits=limits_of_process))
    data = sys.stdin.buffer.read()
    max_pixels, max_frames = map(int, sys.argv[1:])
    limits = DecodeLimits(max_bytes=len(data), max_pixels=max_pixels, max_frames=max_frames)
    try:
        found = _decode(data, limits)
    except InvalidRequest as error:
        found = Finding(error=error.message)
    sys.stdout.write(json.dumps(asdict(found)))


def _decode(data: bytes, limits: DecodeLimits) -> Finding:
    kind = kind_of(data) or MediaKind.IMAGE
    sizes: list[tuple[int, int]] = []

    def fit(width: int, height: int) -> tuple[int, int]:
        sizes.append((width, height))
        return min(width, _SCALED), min(height, _SCALED)

    number = 1
    match kind:
        case MediaKind.IMAGE:
            decode_image(data, limits, fit, "file")
        case MediaKind.VIDEO:
            number = decode_video(data, limits, fit, "file").num_frames
        case MediaKind.DOCUMENT:
            number = len(decode_document(data, limits, fit, "file"))
    width, height = sizes[0] if sizes else (0, 0)
    return Finding(kind.value, width, height, number, tuple(sizes))


if __name__ == "__main__":
    main()
