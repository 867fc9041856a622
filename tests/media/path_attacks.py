"""Paths that lead out of an allowed folder, or to what is no regular file, made by rules.

`{folder}` is the allowed folder, `{outside}` a folder beside it, which has the file `secret`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

_PARENTS: Final = ("..", "../", "./..", ".//..", "a/../..", "a/b/../../..", "../x/..", "a/./../..")
_ENCODED_PARENTS: Final = (
    *("%2e%2e", "%2E%2E", ".%2e", "%2e.", "%2e%2e%2f", "..%2f", "%2e%2e/", "..%5c", "%5c.."),
    *("%252e%252e", "%c0%ae%c0%ae", "%uff0e%uff0e", "..%00", "%2e%2e%00/", "..;", "..%3b"),
)
_OTHER_PARENTS: Final = (
    *("\\..", "..\\", "\uff0e\uff0e", "\u2025", "...", "....//", "..\u200b", ".. ", "..\x00"),
)
_SYSTEM: Final = (
    *("/etc/passwd", "/etc/shadow", "/proc/self/environ", "/proc/self/cmdline", "/proc/self/maps"),
    *("/proc/1/environ", "/proc/self/fd/0", "/proc/self/root/etc/passwd", "/proc/self/cwd"),
    *("/dev/zero", "/dev/random", "/dev/stdin", "/dev/fd/0", "/dev/tty", "/dev/full", "/sys/power"),
    *("/", "//", "/.", "/..", "/root/.ssh/id_rsa", "/var/run/secrets/kubernetes.io", "/tmp"),
)
_NOT_ABSOLUTE: Final = (
    *("", ".", "..", "~", "~/secret", "~root/secret", "secret", "./secret", "$HOME/secret"),
    *(" /etc", "C:\\secret", "C:/secret", "\\\\host\\share\\secret", "\\etc\\passwd", "-"),
    "|cat /etc/passwd",
)
_FILE_URLS: Final = (
    *("file://host{outside}/secret", "file://127.0.0.1{outside}/secret", "file://{outside}/secret"),
    *("file:{outside}/secret", "FILE://{outside}/secret", "file:///etc/passwd", "file:etc/passwd"),
    *("file://localhost@host{outside}/secret", "file:////host/secret", "file://", "file:"),
    *("file:/", "file://localhost:80{outside}/secret", "file://{folder}/a?/../{outside}"),
    *("file://~/secret", "file://{folder}/a.png?x", "file://{folder}/a.png#x", "file://{folder}/%"),
    *("file://{folder}/%zz", "file://{folder}/%00", "file://{folder}/a%2fb"),
    *("file://{folder}/%ff%fe", "file://.", "local://{outside}/secret"),
    *("php://filter/resource={outside}/secret", "fd:0", "data:,x"),
)
# Links and other files that `build` makes in the allowed folder.
_LINKS: Final = (
    *("to-secret", "to-outside/secret", "relative", "chain", "inside/to-secret"),
    *("to-root/etc/passwd", "to-proc", "to-fd", "to-itself", "to-file-inside"),
    *("to-folder-inside/a.png", "dangling"),
)
_NOT_REGULAR: Final = ("pipe", "socket", "inside", "", "inside/", "zero", "missing", "a.png/b")


def build(folder: Path, outside: Path) -> None:
    """Fill the allowed folder and the folder beside it."""
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (folder / "inside").mkdir(parents=True)
    (folder / "a.png").write_bytes(b"picture")
    (folder / "inside" / "a.png").write_bytes(b"another")
    secret = str(outside / "secret")
    links = {"to-secret": secret, "inside/to-secret": secret, "to-outside": str(outside)}
    links |= {"relative": f"../{outside.name}/secret", "chain": "to-secret", "to-root": "/"}
    links |= {"to-proc": "/proc/self/environ", "to-fd": "/proc/self/fd/0", "zero": "/dev/zero"}
    links |= {"to-itself": "to-itself", "to-file-inside": "a.png", "to-folder-inside": "inside"}
    for name, target in {**links, "dangling": "nothing"}.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe")


def _templates() -> Iterator[str]:
    parents = (*_PARENTS, *_ENCODED_PARENTS, *_OTHER_PARENTS)
    for parent in parents:
        yield f"{{folder}}/{parent}/outside/secret"
        yield f"file://{{folder}}/{quote(parent, safe='/%.;')}/outside/secret"
    yield from (f"file://{{folder}}/{parent}{{outside}}/secret" for parent in _ENCODED_PARENTS)
    yield from _SYSTEM
    yield from _NOT_ABSOLUTE
    yield from _FILE_URLS
    yield from (f"{{folder}}/{name}" for name in (*_LINKS, *_NOT_REGULAR))
    yield from (f"file://{{folder}}/{name}" for name in (*_LINKS, *_NOT_REGULAR))
    yield from ("{folder}", "{folder}/", "{folder}/.", "{folder}-beside/secret", "{folder}2/secret")
    yield from ("{outside}/secret", "{outside}", "/{folder}/../outside/secret")
    yield f"{{folder}}/{'a' * 256}"
    yield f"{{folder}}/{'a/' * 2100}b"
    yield from (
        f"{{folder}}/a.png{letter}" for letter in ("\0", "\n", "\r", "\t", "\x7f", "\ud800")
    )
    yield from (f"{{folder}}/{letter}a.png" for letter in ("\0", "\n", "\x1b", "\udfff"))


PATH_ATTACKS: Final = tuple(dict.fromkeys(_templates()))
