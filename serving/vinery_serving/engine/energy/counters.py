"""The energy counters of the hardware, as the Linux kernel exposes them.

Processor packages: powercap's `energy_uj`, in microjoules, which wraps at `max_energy_range_uj`
(Documentation/power/powercap). Intel's graphics cards: hwmon's `energy1_input`, in microjoules
(drivers i915 and xe).
"""

import logging
import os
import re
from pathlib import Path

logger = logging.getLogger(__name__)


class Counter:
    """One counter. Raises OSError or ValueError if it cannot be read."""

    def __init__(self, path: Path, range_uj: int) -> None:
        """`range_uj` is where the counter wraps, in microjoules; 0: it does not."""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._range_uj = range_uj
        self._last_uj = self._read_uj()

    def read_j(self) -> float:
        """Return the joules since the last call; 0 if the counter cannot be read now."""
        try:
            now_uj = self._read_uj()
        except (OSError, ValueError):
            return 0.0  # the next reading covers this time, too
        used_uj = now_uj - self._last_uj
        self._last_uj = now_uj
        if used_uj < 0:
            used_uj += self._range_uj
        return max(0, used_uj) / 1e6

    def _read_uj(self) -> int:
        # The kernel writes the text anew for each read at offset 0.
        return int(os.pread(self._file, 32, 0))


def package_counters(sysfs: Path) -> list[Counter]:
    """Return the counters of the processor's packages.

    Parts of a package (cores, graphics), the whole platform (psys) and a second interface to the
    same counter (intel-rapl-mmio) are left out.
    """
    return _counters(sysfs, "class/powercap/intel-rapl:*/energy_uj", "package-.*", wraps=True)


def gpu_counters(sysfs: Path) -> list[Counter]:
    """Return the counters of Intel's graphics cards, of the drivers i915 and xe."""
    return _counters(sysfs, "class/hwmon/hwmon*/energy1_input", "i915|xe", wraps=False)


def _counters(sysfs: Path, pattern: str, names: str, *, wraps: bool) -> list[Counter]:
    """Return the readable counters. Beside the file of a counter is one with its name."""
    counters: list[Counter] = []
    for path in sorted(sysfs.glob(pattern)):
        if not re.fullmatch(names, _text(path.with_name("name"))):
            continue
        try:
            range_uj = int(_text(path.with_name("max_energy_range_uj"))) if wraps else 0
            counters.append(Counter(path, range_uj))
        except (OSError, ValueError) as error:
            # Since Linux 5.10 only root may read them.
            logger.info("energy counter unreadable path=%s error=%s", path, error)
    return counters


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
