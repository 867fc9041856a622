"""The folders of models that other hosts may fetch, as a confined process has read them.

The node keeps the list beside the sizes and times of the files, so each folder is read once. The
relay opens files of this list, and no others. The digest of a folder is that of its list.
"""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, BinaryIO, Final, NamedTuple

import msgspec

from vinery_accounts.base.files import write_private

_KEPT: Final = "folders"
# Parameters of the job beside those of its origin.
OF_JOB: Final = ("host", "on", "folder")
# Has the small files of models whose weights are on other hosts: what web processes read.
_SMALL: Final = ".small"
SMALL_BYTES: Final = 1 << 26


class File(NamedTuple):
    path: str  # within the folder, with slashes
    size_bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


State = tuple[tuple[str, int, int], ...]
"""The path, size and modification time of each file."""


class Folder(msgspec.Struct, frozen=True, array_like=True):
    state: State
    files: tuple[File, ...] = ()  # empty: they cannot be read

    @property
    def listing(self) -> bytes:
        """What another host fetches first."""
        return msgspec.json.encode(self.files)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.listing).hexdigest()


def is_own(root: Path, folder: Path) -> bool:
    return folder.is_relative_to(root) and folder != root and ".." not in folder.parts


def small_of(folder: str) -> str:
    return f"{_SMALL}/{folder}"


def is_small(folder: str) -> bool:
    return Path(folder).parts[:1] == (_SMALL,)


def state_of(folder: Path) -> State:
    """Raises OSError, also for a folder with links: they may lead anywhere."""
    found = []
    for each in (folder, *sorted(folder.rglob("*"))):
        if each.is_symlink():
            raise OSError(f"{each} is a link")
        if each.is_file():
            status = each.stat()
            name = each.relative_to(folder).as_posix()
            found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def read_folder(folder: Path) -> bytes:
    """Return a `Folder`. Only for a process that may be killed."""
    state = state_of(folder)
    files = tuple(File(name, size, _sha256_of(folder / name)) for name, size, _ in state)
    return msgspec.json.encode(Folder(state, files))


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def keep(run_dir: Path, folders: Mapping[str, Folder]) -> None:
    """Raises OSError."""
    write_private(run_dir / _KEPT, msgspec.json.encode(folders))


def kept(run_dir: Path) -> dict[str, Folder]:
    """The folders of the last `keep`, by their paths."""
    try:
        return msgspec.json.decode((run_dir / _KEPT).read_bytes(), type=dict[str, Folder])
    except (OSError, msgspec.MsgspecError):
        return {}


def opened(run_dir: Path, digest: str, name: str) -> BinaryIO:
    """Open a file of the list with this digest; without a name the list itself. Raises OSError."""
    for path, folder in kept(run_dir).items():
        if folder.files and folder.digest == digest:
            if not name:
                return io.BytesIO(folder.listing)
            whole = Path(path).resolve() / name
            if any(each.path == name for each in folder.files) and whole.resolve() == whole:
                return whole.open("rb")
    raise FileNotFoundError
