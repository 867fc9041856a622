"""Files of the server that requests name: opened without following a link, and read up to a limit.

The path is walked folder by folder, each opened relative to the former with `O_NOFOLLOW`, so that
no link is followed, even if folders change meanwhile. `openat2` does the same with
RESOLVE_NO_SYMLINKS, but not on every kernel. Only regular files are read: a pipe would wait for a
writer, and devices have no end.
"""

import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote_to_bytes

_FILE_URL: Final = re.compile(r"file:(?://(?P<host>[^/]*))?(?P<path>/.*)", re.IGNORECASE)
# Controls, formats (such as writing direction), surrogates, line and paragraph separators.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS: Final = "\u200c\u200d"  # some scripts need these two
_CAN_WALK: Final = os.open in os.supports_dir_fd


class FileRefused(Exception):
    """The path does not name a regular file. The message is a sentence for the client."""


class FileTooLarge(FileRefused):
    """The file has more bytes than may be read."""


def is_file_url(text: str) -> bool:
    return text[:5].lower() == "file:"


def read_path(text: str) -> str:
    """The absolute path that a client gave, also as a URL with the scheme `file`.

    Percent signs are decoded in URLs only. Raises `FileRefused` for a path with parent segments.
    """
    path = _path_of(text) if is_file_url(text) else text
    if not path.startswith("/"):
        raise FileRefused("Write an absolute path.")
    # Pages and terminals show refused paths.
    if any(unicodedata.category(each) in _HIDDEN and each not in _JOINERS for each in path):
        raise FileRefused("Write the path without control characters and invisible ones.")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise FileRefused("Write the path without `..`.")
    path = "/" + "/".join(names)
    longest = max((len(name.encode()) for name in names), default=0)
    if len(path.encode()) > 4096 or longest > 255:
        raise FileRefused("The path is too long.")
    return path


def _path_of(url: str) -> str:
    """The path of a file URL (RFC 8089)."""
    found = _FILE_URL.fullmatch(url)
    if found is None or (found["host"] or "").lower() not in ("", "localhost"):
        raise FileRefused("Write a URL of a file as file:///folder/name, without a host.")
    if re.search(r"[?#]|%(?![0-9A-Fa-f]{2})", url):
        raise FileRefused("Write ?, # and % in a URL of a file as %3F, %23 and %25.")
    if "%2f" in url.lower():
        raise FileRefused("A name in a path has no slash.")
    try:
        return unquote_to_bytes(found["path"]).decode()
    except UnicodeError:
        raise FileRefused("Write the URL of the file in UTF-8.") from None


def is_inside(path: str, folder: str) -> bool:
    """Whether a path that was read names something below the folder."""
    return path.startswith(folder.rstrip("/") + "/")


def read_file(path: str, max_bytes: int) -> bytes:
    """The bytes of a regular file. Blocks. Raises `FileRefused` and `FileTooLarge`."""
    if not _CAN_WALK:
        raise FileRefused("This system cannot open files without following links.")
    *folders, name = path.removeprefix("/").split("/")
    try:
        with _folder(folders) as folder:
            # Opening a device can do something already.
            _check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
            # A pipe that took the file's name meanwhile is opened without a wait.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=folder)
        try:
            return _read(descriptor, max_bytes)
        finally:
            os.close(descriptor)
    except OSError:
        raise FileRefused("There is no such file, or it is not readable.") from None


@contextmanager
def _folder(names: list[str]) -> Iterator[int]:
    """A descriptor of the folder, which is reached without a link."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
    descriptor = os.open("/", flags)
    try:
        for name in names:
            inner = os.open(name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise FileRefused("The path has a link. Name the file that it leads to.")
    if not stat.S_ISREG(status.st_mode):
        raise FileRefused("This is not a regular file.")


def _read(descriptor: int, max_bytes: int) -> bytes:
    status = os.fstat(descriptor)
    _check_regular(status)
    # A file may grow meanwhile, and files of /proc declare no size.
    with open(descriptor, "rb", closefd=False) as file:
        if status.st_size > max_bytes or len(data := file.read(max_bytes + 1)) > max_bytes:
            raise FileTooLarge(f"The file has more than {max_bytes} bytes.")
    return data
