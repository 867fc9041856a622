"""The sockets of a home, one of each engine and one of the node, and the frames on them.

Paths follow from what both ends know, so gateway and node need not exchange them. The path of an
engine names the settings: an engine with changed settings loads beside the serving engine.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

# 1 MB of the supervisor, which sends nothing before there is an engine.
if TYPE_CHECKING:
    import msgspec

# Linux allows 108 bytes for a Unix socket's path, macOS 104, both with the final zero.
_MAX_PATH_BYTES: Final = 103
_MAX_NAME_BYTES: Final = 40  # A model's id of 10 digits and a replica's number of 4
_KEY_DIGITS: Final = 12
ENGINE_KEY: Final = rf"[0-9a-f]{{{_KEY_DIGITS}}}"
_ENGINE_NAME: Final = rf"engine-(\d+)-({ENGINE_KEY})-(\d+)\.sock"
# A prompt of a million tokens is 4 MB; no valid message comes near this size.
_MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")


class EngineAddress(NamedTuple):
    model_id: int
    key: str  # of the settings, see `settings_key`
    replica: int = 0

    @property
    def file_name(self) -> str:
        return f"engine-{self.model_id}-{self.key}-{self.replica}.sock"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """An engine of this host."""

    path: Path


@dataclass(frozen=True, slots=True)
class TlsAddress:
    """An engine of another host, behind the relay of that host."""

    host: str
    port: int
    fingerprint: str  # of the key of that host, see `relayed.fingerprint_of`
    engine: EngineAddress


def settings_key(settings_digest: str) -> str:
    return settings_digest[:_KEY_DIGITS]


def engine_socket(run_dir: Path, address: EngineAddress) -> Path:
    """Return the path of the socket on which an engine listens. Its folder is created, for the
    owner alone. If paths in `run_dir` are too long for a socket, the folder is under the system's
    temporary one and named after `run_dir`, so that two platforms never share it. Raises
    PermissionError if other users could use the folder."""
    return _folder(run_dir) / address.file_name


def node_socket(run_dir: Path) -> Path:
    return _folder(run_dir) / "node.sock"


def web_socket(run_dir: Path) -> Path:
    """Return the path of the socket of this web process, see `models.live_socket`."""
    return _folder(run_dir) / f"web-{os.getpid()}.sock"


def web_sockets(run_dir: Path) -> list[Path]:
    """Raises OSError."""
    return sorted(_folder(run_dir).glob("web-*.sock"))


def engine_sockets(run_dir: Path) -> dict[EngineAddress, Path]:
    """Raises OSError."""
    found = ((re.fullmatch(_ENGINE_NAME, path.name), path) for path in _folder(run_dir).iterdir())
    return {
        EngineAddress(int(match[1]), match[2], int(match[3])): path
        for match, path in found
        if match is not None
    }


def _folder(run_dir: Path) -> Path:
    """Return the folder of all sockets, the same for short and long names, because engines are
    found by listing the folder."""
    folder = run_dir
    if len(os.fsencode(run_dir)) + 1 + _MAX_NAME_BYTES > _MAX_PATH_BYTES:
        digest = hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"vinery-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()  # not of the folder that a link names
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_own or status.st_mode & 0o077:
        raise PermissionError(
            f"{folder} must be a folder, not a link, that belongs to this user and has mode 0700."
        )
    return folder


class InvalidFrame(Exception):
    """The peer does not speak this protocol. The connection must be closed."""


def pack(message: msgspec.Struct) -> bytes:
    """Return one frame: four bytes big endian with its length, then one document."""
    body = _encoder().encode(message)
    return _LENGTH.pack(len(body)) + body


@cache
def _encoder() -> msgspec.msgpack.Encoder:
    import msgspec

    return msgspec.msgpack.Encoder()


class FrameReader:
    """Cuts a byte stream into frames, wherever the stream was split."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, received: bytes | memoryview) -> list[bytes]:
        """Return the complete frames' bodies. Raises InvalidFrame for too many bytes."""
        self._buffer += received
        buffer, start, frames = self._buffer, 0, []
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > _MAX_FRAME_BYTES:
                raise InvalidFrame(f"a frame of {length} bytes")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            frames.append(bytes(buffer[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        return frames
