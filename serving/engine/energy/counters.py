"""What the hardware says it has used, by the kernel's own files.

Packages of processors by powercap (`energy_uj` in microjoules, which begins anew beyond
`max_energy_range_uj`: the kernel's Documentation/power/powercap), Intel's graphics cards by
hwmon (`energy1_input` in microjoules, of the drivers i915 and xe).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_GPU_DRIVERS: Final = ("i915", "xe")


class Counter:
    """One of them. Raises OSError or ValueError when it cannot be read."""

    def __init__(self, path: Path, range_uj: int | None = None) -> None:
        """`range_uj` None: it never begins anew."""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._range_uj = range_uj
        self._last_uj = self._read_uj()

    def read_j(self) -> float:
        """Joules since it was last asked; 0 where it cannot be known."""
        try:
            now_uj = self._read_uj()
        except (OSError, ValueError):
            return 0.0  # the next reading tells of this time, too
        used_uj = now_uj - self._last_uj
        self._last_uj = now_uj
        if used_uj < 0:
            used_uj += self._range_uj or 0
        return max(0, used_uj) / 1e6

    def _read_uj(self) -> int:
        # At the beginning of the same open file: the kernel makes its text anew each time.
        return int(os.pread(self._file, 32, 0))


def package_counters(sysfs: Path) -> list[Counter]:
    """Of the processor's packages. What is part of them (cores, graphics) and what contains
    them (psys) is left out, and so is the same counter by another way (intel-rapl-mmio)."""
    zones = (sysfs / "class/powercap").glob("intel-rapl:*")
    return list(
        _readable(
            (zone / "energy_uj", zone / "max_energy_range_uj")
            for zone in sorted(zones)
            if _text(zone / "name").startswith("package-")
        )
    )


def gpu_counters(sysfs: Path) -> list[Counter]:
    """Of Intel's graphics cards."""
    monitors = (sysfs / "class/hwmon").glob("hwmon*")
    return list(
        _readable(
            (monitor / "energy1_input", None)
            for monitor in sorted(monitors)
            if _text(monitor / "name") in _GPU_DRIVERS and (monitor / "energy1_input").exists()
        )
    )


def _readable(files: Iterator[tuple[Path, Path | None]]) -> Iterator[Counter]:
    for path, range_path in files:
        try:
            range_uj = None if range_path is None else int(_text(range_path))
            yield Counter(path, range_uj)
        except (OSError, ValueError) as error:
            # Kernels since 5.10 let only root read them.
            logger.info("an energy counter cannot be read: %s: %s", path, error)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
