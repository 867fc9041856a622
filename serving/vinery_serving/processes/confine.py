"""Takes from a process what the process does not need, because what it reads comes from strangers.

A confined process computes with its libraries, and has the files, sockets and other rights that its
`Needs` name. Nothing here needs privileges. Where the kernel lacks a part, the others hold.
"""

import ctypes
import os
import resource
import stat
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

from vinery_serving.processes.calls import Act, filter_calls
from vinery_serving.processes.parent import prctl


class Part(StrEnum):
    """The parts of a confinement, by what they take away."""

    LIMITS = "hard limits"
    DESCRIPTORS = "no inherited descriptors"
    PRIVILEGES = "no new privileges"
    CAPABILITIES = "no capabilities"
    MEMORY = "not dumpable"
    FILES = "Landlock: files"
    TCP = "Landlock: TCP"
    SOCKETS = "Landlock: abstract sockets"
    SIGNALS = "Landlock: signals"
    CALLS = "seccomp"


# The others guard a second time what these guard.
ESSENTIAL: Final = frozenset(
    {Part.LIMITS, Part.PRIVILEGES, Part.CAPABILITIES, Part.FILES, Part.CALLS}
)
OF_ENGINES: Final = "; engines stay dumpable, and keep the descriptors of their node"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a process needs beside its libraries. Files may be missing."""

    reads: Sequence[Path] | None = ()  # folders and files; None: any, and writes too
    writes: Sequence[Path] = ()  # folders, with all that is in them
    devices: Sequence[Path] = ()  # files and folders of /dev
    runs: Sequence[Path] = ()  # programs, and folders of programs
    acts: frozenset[Act] = frozenset()
    families: Sequence[int] = ()  # of sockets
    descriptors: frozenset[int] | None = frozenset((0, 1, 2))  # None: all
    limits: Mapping[int, int] = field(default_factory=dict)  # hard, by `resource.RLIMIT_*`
    is_dumpable: bool = False  # for another process of the same user, which shares its descriptors


def confine(needs: Needs, parts: frozenset[Part] = frozenset(Part)) -> frozenset[Part]:
    """Confine this process for good. Returns the parts that are in force."""
    steps: tuple[tuple[Part, Callable[[], bool]], ...] = (
        (Part.LIMITS, lambda: _limit(needs.limits)),
        (Part.DESCRIPTORS, lambda: _close_others(needs.descriptors)),
        (Part.PRIVILEGES, lambda: prctl(_NO_NEW_PRIVS, 1)),
        (Part.CAPABILITIES, _drop_capabilities),
        (Part.MEMORY, lambda: needs.is_dumpable or prctl(_DUMPABLE, 0)),
    )
    held = {part for part, step in steps if part in parts and step()}
    held |= _restrict(needs, parts)
    if Part.CALLS in parts and filter_calls(needs.acts, needs.families, os.getpid()):
        held.add(Part.CALLS)
    return frozenset(held)


def network_files() -> list[Path]:
    """The machine's rules for names, and certificates."""
    named = filter(None, map(os.environ.get, _CERTIFICATES))
    return [Path(each) for each in (*_OF_NETWORKS.split(), *named)]


def available() -> frozenset[Part]:
    """The parts that this system has, found out by a process that confines itself."""
    # Not forked: the caller may have threads, whose locks would be held for ever.
    command = [sys.executable, "-P", "-m", __name__]
    named = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    return frozenset(map(Part, filter(None, named.split(","))))


# -- The process

_DUMPABLE: Final = 4  # linux/prctl.h, as the next
_NO_NEW_PRIVS: Final = 38
_CAPABILITY_VERSION: Final = 0x20080522  # linux/capability.h
# CAP_DAC_READ_SEARCH: the folder of a model may belong to another user than root.
_KEPT_CAPABILITIES: Final = 1 << 2


def _limit(limits: Mapping[int, int]) -> bool:
    for limit, value in ({resource.RLIMIT_CORE: 0} | dict(limits)).items():
        _, hard = resource.getrlimit(limit)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (least, least))
    return True


def _close_others(kept: frozenset[int] | None) -> bool:
    if kept is None:
        return True
    with suppress(OSError):
        for fd in {int(each.name) for each in Path("/dev/fd").iterdir()} - kept:
            with suppress(OSError):
                os.close(fd)
        return True
    return False


def _drop_capabilities() -> bool:
    """The capabilities that a process lacks cannot come back without new privileges."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    present = ctypes.create_string_buffer(24)
    if libc.capget(header, present) != 0:
        return False
    kept = [each & _KEPT_CAPABILITIES for each in struct.unpack("=6I", present.raw)[:2]]
    return not libc.capset(header, struct.pack("=6I", *kept, *(0,) * 4))


# -- Landlock, of linux/landlock.h

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION: Final = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES: Final = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ: Final = _READ_FILE | _READ_DIR
_CHANGE: Final = 0x7FFF & ~_EXECUTE & ~_MAKE_DEVICES
_DEVICE: Final = _READ | _WRITE_FILE | _IOCTL
# The version from which a right can be taken away, and the rights known then.
_FILE_RIGHTS: Final = ((1, 0x1FFF), (2, _REFER), (3, _TRUNCATE), (5, _IOCTL))
_TCP, _TCP_SINCE = 3, 4
_SCOPES: Final = {Part.SOCKETS: 1, Part.SIGNALS: 2}
_SCOPES_SINCE: Final = 6

_OF_NETWORKS: Final = """
/etc/hosts /etc/host.conf /etc/resolv.conf /etc/nsswitch.conf /etc/gai.conf /etc/services
/run/systemd/resolve /etc/ssl/certs /etc/ssl/cert.pem /etc/ssl/openssl.cnf /etc/ca-certificates
/etc/pki/ca-trust /etc/pki/tls/certs /etc/pki/tls/cert.pem /etc/pki/tls/openssl.cnf
"""
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
# Shared libraries, their data, and what they ask about the machine.
_SYSTEM: Final = """
/usr/lib /usr/lib64 /usr/local/lib /usr/share /lib /lib64 /nix/store /etc/ld.so.cache
/etc/localtime /etc/timezone /sys/devices/system /proc/cpuinfo /proc/meminfo /proc/stat /proc/sys
"""
_ROOTS: Final = (Path("/"), Path("/proc"), Path("/sys"))  # their links lead everywhere
_PLAIN_DEVICES: Final = tuple(map(Path, ("/dev/null", "/dev/zero", "/dev/urandom")))


def _restrict(needs: Needs, parts: frozenset[Part]) -> set[Part]:
    """Take rights by Landlock from this thread, and from all that it starts."""
    call = ctypes.CDLL(None).syscall
    version = call(_CREATE, None, 0, _VERSION) if sys.platform == "linux" else -1
    held: set[Part] = set()
    rights = tcp = scopes = 0
    if Part.FILES in parts and needs.reads is not None and version >= 1:
        held.add(Part.FILES)
        rights = sum(each for since, each in _FILE_RIGHTS if version >= since)
    if Part.TCP in parts and version >= _TCP_SINCE:
        held.add(Part.TCP)
        tcp = 0 if needs.families else _TCP
    if version >= _SCOPES_SINCE:
        held |= _SCOPES.keys() & parts
        scopes = sum(each for part, each in _SCOPES.items() if part in parts)
    if not (rights or tcp or scopes):
        return held
    ruleset = call(_CREATE, struct.pack("=QQQ", rights, tcp, scopes), 24, 0)
    if ruleset < 0:
        return set()
    for path, allowed in _rules(needs):
        _add_rule(call, ruleset, path, allowed & rights)
    is_done = call(_RESTRICT, ruleset, 0) == 0
    os.close(ruleset)
    return held if is_done else set()


def _rules(needs: Needs) -> Iterator[tuple[Path, int]]:
    for path in (*map(Path, _SYSTEM.split()), *_libraries(), *_with_targets(needs.reads or ())):
        yield path, _READ
    for path in needs.writes:
        yield path, _READ | _CHANGE
    for path in (*_PLAIN_DEVICES, *needs.devices):
        yield path, _DEVICE
    if needs.runs:
        loaders = (*Path("/lib64").glob("ld-*"), *Path("/lib").glob("ld-*"))
        for path in (each.resolve() for each in (*needs.runs, *loaders)):
            yield path, _READ | _EXECUTE
            yield path.parent.parent / "lib", _READ  # of another Python
        for path in (Path(sys.prefix, "pyvenv.cfg"), *Path("/etc").glob("python3*")):
            yield path, _READ
        for name in filter(None, sys.path):
            yield Path(name), _READ_DIR


def _add_rule(call: Callable[..., int], ruleset: int, path: Path, rights: int) -> None:
    with suppress(OSError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _OF_FILES
            if rights:
                call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, fd), 0)
        finally:
            os.close(fd)


@cache  # a forked process has them already
def _libraries() -> tuple[Path, ...]:
    """The folders of the interpreter, of packages, and of modules that are imported already: a
    whole folder of `sys.path` may contain the home."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = (*map(sysconfig.get_path, names), f"{sys.base_prefix}/lib")
    modules = (module for name, module in list(sys.modules.items()) if "." not in name)
    paths = (
        getattr(each, "__path__", None) or [getattr(each, "__file__", None)] for each in modules
    )
    others = {path for each in paths for path in each if path and not path.startswith(folders)}
    return tuple(map(Path, (*folders, *others)))


def _with_targets(paths: Iterable[Path]) -> Iterator[Path]:
    """The paths, and the targets of links in them and in their folders: a cache of a hub has links
    only."""
    for path in paths:
        yield path
        with suppress(OSError):
            for each in () if path in _ROOTS else (*path.glob("*"), *path.glob("*/*")):
                if each.is_symlink():
                    yield Path(os.path.realpath(each))


if __name__ == "__main__":
    sys.stdout.write(",".join(confine(Needs(descriptors=frozenset((0, 1, 2))))))
