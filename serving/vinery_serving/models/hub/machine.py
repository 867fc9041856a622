"""What this machine has for a model: memory, and room on the disk."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vinery_serving.models.hub.memory_need import MeasuredEngine

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),  # version 2
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # version 1
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory of the device that a model should run on, the disk that it is stored on, and the
    engines that were measured on the device."""

    memory_bytes: int
    free_disk_bytes: int
    device: str = "CPU"
    engines: tuple[MeasuredEngine, ...] = ()


def this_machine(
    models_dir: Path,
    device: str = "CPU",
    device_bytes: int | None = None,
    engines: Iterable[MeasuredEngine] = (),
) -> Machine:
    """Return this machine. `device_bytes` is the memory of a device with its own; None: it has that
    of the machine, or of the container that this process runs in."""
    return Machine(
        memory_bytes=device_bytes or memory_limit(),
        free_disk_bytes=free_bytes(models_dir),
        device=device,
        engines=tuple(engines),
    )


def memory_limit(cgroups: tuple[Path, ...] = _CGROUPS) -> int:
    """Return the bytes of memory that this machine, or the container, has."""
    limits = [os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES]
    for path in cgroups:
        try:
            limits.append(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # no container, or "max"
            continue
    return min(limits)


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder, which may not exist yet. Raises OSError."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(os.fspath(folder)).free
