"""The job with which a host fetches the folder of a model that it lacks: see
`vinery_serving.models.jobs`.

The files come from the relay of a host that has them, or from the hub from which they were pulled,
at the same commit. Pulls have the folders, the check of the disk, and how a file is continued.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from ssl import SSLContext, SSLSocket
from typing import Annotated, Any, Final

import msgspec

from vinery_serving.cluster.authority import Certificates, Role
from vinery_serving.cluster.folders import OF_JOB, SMALL_BYTES, File, is_own, is_small
from vinery_serving.core.model_files import copy_of
from vinery_serving.models.hub import origins
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.origins import HubOrigin
from vinery_serving.models.hub.pull import (
    PullFolders,
    Report,
    Stream,
    WrongContent,
    complete,
    fetch,
    fetch_all,
)
from vinery_serving.models.hub.repository import Repository, RepositoryFile, check_path
from vinery_serving.models.jobs import JobDocument, Reporter
from vinery_serving.processes.confine import Needs
from vinery_serving.transport import relayed
from vinery_serving.transport.relayed import Fetch
from vinery_serving.transport.sockets import FrameReader, InvalidFrame, pack

_BLOCK_BYTES: Final = 1 << 18
_MAX_LIST_BYTES: Final = 1 << 24


class HostOrigin(msgspec.Struct, frozen=True, kw_only=True, tag="host", tag_field="kind"):
    name: str
    address: str
    fingerprint: str
    digest: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]  # of the folder
    list_bytes: Annotated[int, msgspec.Meta(le=_MAX_LIST_BYTES)]


def run(document: JobDocument, reporter: Reporter) -> dict[str, Any]:
    """Raises `PullFailed`."""
    report = reporter.progress
    origin, folders, folder = _parts(document)
    if isinstance(origin, HubOrigin):
        origin.fetch(folders.root, report)
    else:
        relay = _Relay(origin, _context(tuple(document.authorities), document.host_key))
        complete(folders, lambda: _fill(relay, folders, report), report)
    if not folder.is_dir():
        raise PullFailed(f"{folder} is not what was fetched. Copy the folder.")
    return {"folder": str(folder)}


def needs(document: JobDocument) -> Needs:
    if document.host_key:  # now: Python reads certificates from files only
        _context(tuple(document.authorities), document.host_key)
    return origins.needs(document)


def discard(document: JobDocument) -> None:
    with suppress(PullFailed), (folders := _parts(document)[1]).locked():
        folders.discard()


@dataclass(frozen=True, slots=True)
class _Folders(PullFolders):
    digest: str

    @property
    def partial(self) -> Path:
        kind = "small" if is_small(self.name) else "fetched"
        return self.root / ".partial" / kind / self.digest


def _parts(document: JobDocument) -> tuple[HostOrigin | HubOrigin, PullFolders, Path]:
    """Return the origin, the folders of the fetch, and the one that is there at the end. Raises
    `PullFailed` for a folder that is not one of this home's models."""
    known = {name: each for name, each in document.parameters.items() if name not in OF_JOB}
    origin: HostOrigin | HubOrigin = msgspec.convert(known, type=HostOrigin | HubOrigin)
    root, stored = origins.models_dir(document.home), document.parameters["folder"]
    folder = root / copy_of(stored)
    if not is_own(root, folder):
        raise PullFailed(f"{folder} is not in {root}.")
    if isinstance(origin, HubOrigin):
        return origin, origin.folders(root), folder
    within = folder.relative_to(root)
    return origin, _Folders(root, str(within.parent), within.name, origin.digest), folder


@cache
def _context(authorities: tuple[bytes, ...], host_key: str) -> SSLContext:
    return Certificates(authorities, host_key, Role.WEB).context()


def _fill(relay: "_Relay", folders: PullFolders, report: Report) -> None:
    """Raises `PullFailed`."""
    origin, path = relay.origin, folders.unfinished("")
    report(f"reading the list of {origin.name}", 0, None)
    listing = RepositoryFile("", origin.list_bytes, sha256=origin.digest)
    try:
        fetch(partial(relay.open, listing), listing, path, lambda _: None)
        listed = msgspec.json.decode(path.read_bytes(), type=tuple[File, ...])
    except (WrongContent, msgspec.MsgspecError):
        raise PullFailed(f"{origin.name} does not have these files any more.") from None
    for each in listed:
        check_path(each.path, origin.name)
    most = SMALL_BYTES if is_small(folders.name) else sys.maxsize
    files = tuple(
        RepositoryFile(name, size, sha256=sha256) for name, size, sha256 in listed if size <= most
    )
    fetch_all(relay.open, Repository(origin.name, "", origin.digest, files), folders, report)


@dataclass(frozen=True, slots=True)
class _Relay:
    origin: HostOrigin
    context: SSLContext

    @contextmanager
    def open(self, file: RepositoryFile, start: int, stall_s: float) -> Iterator[Stream]:
        """See `pull.Open`."""
        with self._connected(stall_s) as connection:
            wish = pack(Fetch(self.origin.digest, file.path, start))
            yield Stream(start, self._parts(connection, wish))

    def _connected(self, stall_s: float) -> SSLSocket:
        host, _, port = self.origin.address.rpartition(":")
        try:
            plain = socket.create_connection((host.strip("[]"), int(port)), relayed.CONNECT_S)
            with plain:
                connection = self.context.wrap_socket(plain)
        except OSError as error:
            raise self._lost() from error
        connection.settimeout(stall_s)
        certificate = connection.getpeercert(binary_form=True) or b""
        if relayed.fingerprint_of(certificate) != self.origin.fingerprint:
            connection.close()
            raise PullFailed(f"Another host than {self.origin.name} answers at its address.")
        return connection

    def _parts(self, connection: SSLSocket, wish: bytes) -> Iterator[bytes]:
        reader = FrameReader()
        try:
            connection.sendall(wish)
            while data := connection.recv(_BLOCK_BYTES):
                for each in reader.feed(data):
                    if len(each) == 1:
                        return
                    yield each[1:]
        except (OSError, InvalidFrame) as error:
            raise self._lost() from error
        raise self._lost()

    def _lost(self) -> HubUnavailable:
        return HubUnavailable(
            f"{self.origin.name} cannot be reached at {self.origin.address}, or ended the "
            "connection."
        )
