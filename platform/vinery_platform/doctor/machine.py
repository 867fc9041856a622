"""Checks of the machine: Python, processor, devices and their drivers, memory, limits.

They need no home, no settings and no Django.
"""

import asyncio
import getpass
import importlib.metadata
import os
import platform
import resource
import sys
import zoneinfo
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from vinery_platform.doctor.finding import Finding, failure, ok, warning
from vinery_platform.process.memory import machine_bytes
from vinery_serving.node import device_probe

_OLDEST_PYTHON: Final = (3, 11)
_PACKAGES: Final = ("openvino", "openvino-genai", "openvino-tokenizers")
_DRI: Final = Path("/dev/dri")
_ACCEL: Final = Path("/dev/accel")
_SHM: Final = Path("/dev/shm")
_CPUINFO: Final = Path("/proc/cpuinfo")
_LEAST_MEMORY_BYTES: Final = 2 << 30
_LEAST_SHM_BYTES: Final = 64 << 20
_LEAST_OPEN_FILES: Final = 4096


def python() -> Iterator[Finding]:
    found = platform.python_version()
    if sys.version_info[:2] < _OLDEST_PYTHON:
        yield failure("python", f"This is Python {found}.", "Install Python 3.11 or newer.")
    else:
        yield ok("python", f"{found}, {sys.executable}")


def packages() -> Iterator[Finding]:
    """OpenVINO's packages, which must be of one release."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield failure("openvino", f"{name} is not installed.", f"pip install {name}")
            return
    releases = {".".join(version.split(".")[:3]) for version in versions.values()}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    if len(releases) > 1:
        yield failure("openvino", f"The releases differ: {text}.", "Install Vinery again.")
    else:
        yield ok("openvino", text)


def processor(cpuinfo: Path = _CPUINFO) -> Iterator[Finding]:
    """Instructions that make models fast, on x86."""
    flags = _cpu_flags(cpuinfo)
    cores = f"{os.cpu_count() or 1} cores"
    if not flags:  # another processor or system
        yield ok("cpu", f"{platform.machine()}, {cores}")
        return
    fast = [name for name in ("avx2", "avx512f", "avx512_vnni", "amx_tile") if name in flags]
    if "avx2" not in flags:
        yield warning(
            "cpu", f"{cores}, without AVX2: models run slowly.", "Use a newer processor, or a GPU."
        )
    else:
        yield ok("cpu", f"{cores}, {', '.join(fast)}")


def devices() -> Iterator[Finding]:
    """What OpenVINO can run models on. A short process asks: a driver may crash or hang."""
    try:
        found = asyncio.run(device_probe.find())
    except device_probe.ProbeFailed as error:
        yield failure(
            "devices",
            str(error),
            "Restart the machine, and install the device's driver and Vinery again.",
        )
        return
    yield ok("devices", ", ".join(map(str, found)))
    names = [each.name for each in found]
    yield from _drivers("GPU", _nodes(_DRI, "renderD*"), names)
    yield from _drivers("NPU", _nodes(_ACCEL, "accel*"), names)


_DRIVERS: Final = {
    "GPU": "Install Intel's GPU runtime (intel-opencl-icd, and libze-intel-gpu1 for newer GPUs).",
    "NPU": "Install Intel's NPU driver: https://github.com/intel/linux-npu-driver/releases",
}


def _drivers(kind: str, nodes: Sequence[Path], names: Iterable[str]) -> Iterator[Finding]:
    """Whether OpenVINO finds the device whose files the kernel has."""
    name = kind.lower()
    closed = [path for path in nodes if not os.access(path, os.R_OK | os.W_OK)]
    if not nodes:
        yield ok(name, f"This machine has no {kind} that the kernel knows.")
    elif closed:
        yield warning(
            name,
            f"This user may not open {closed[0]}.",
            f"sudo usermod -aG render {_user()}, then sign in again. In a container, pass the "
            "device and the group of its file.",
        )
    elif not any(each.split(".")[0] == kind for each in names):
        yield warning(name, f"{nodes[0]} is there, but OpenVINO finds no {kind}.", _DRIVERS[kind])
    else:
        yield ok(name, f"{', '.join(map(str, nodes))}: OpenVINO finds it.")


def memory() -> Iterator[Finding]:
    import psutil  # 10 ms

    total_bytes = machine_bytes()
    free_bytes = min(psutil.virtual_memory().available, total_bytes)
    text = f"{free_bytes / 2**30:.1f} of {total_bytes / 2**30:.1f} GiB are available."
    if free_bytes < _LEAST_MEMORY_BYTES:
        cure = "End other programs, or serve a smaller or more quantised model."
        yield warning("memory", text, cure)
    else:
        yield ok("memory", text)


def shared_memory(folder: Path = _SHM) -> Iterator[Finding]:
    """Processes share pages through it, such as their heartbeats."""
    if not folder.is_dir():  # other systems than Linux
        return
    space = os.statvfs(folder)
    free_bytes = space.f_bavail * space.f_frsize
    text = f"{free_bytes >> 20} MB are free in {folder}."
    if free_bytes < _LEAST_SHM_BYTES:
        yield warning("shm", text, "In a container: --shm-size=256m. Else delete files there.")
    else:
        yield ok("shm", text)


def open_files() -> Iterator[Finding]:
    """`vinery up` raises the soft limit to the hard one."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_OPEN_FILES:
        yield warning(
            "open files",
            f"A process may open {limit} files and sockets; a stream needs two.",
            "Raise the limit: LimitNOFILE=65536 in a unit of systemd, ulimit -Hn in a shell.",
        )
    else:
        yield ok("open files", "no limit" if limit == resource.RLIM_INFINITY else str(limit))


def time_zones() -> Iterator[Finding]:
    try:
        zoneinfo.ZoneInfo("Europe/Berlin")
    except zoneinfo.ZoneInfoNotFoundError:
        yield failure("time zones", "There is no time zone data.", "pip install tzdata")
    else:
        yield ok("time zones", f"{len(zoneinfo.available_timezones())} are known.")


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def _nodes(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern)) if folder.is_dir() else []


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


CHECKS: Final = (
    *(python, packages, processor, devices),
    *(memory, shared_memory, open_files, time_zones),
)
