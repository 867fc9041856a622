"""Energy counters of the kernel as files that tests change."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Of a server's package: some 262 kJ, where the counter wraps.
RANGE_UJ = 262_143_328_850


class Zone:
    """A counter of the kernel, as a file."""

    def __init__(self, path: Path, energy_uj: int = 0) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.energy_uj = energy_uj
        self._write()

    def use(self, joules: float) -> None:
        self.energy_uj += round(joules * 1e6)
        self._write()

    def _write(self) -> None:
        # As wide as any number, so that no reader finds half a number.
        with self._path.open("r+") as file:
            file.write(f"{self.energy_uj % RANGE_UJ:20d}\n")


def package(sysfs: Path, number: int = 0, energy_uj: int = 0, kind: str = "intel-rapl") -> Zone:
    """A package of the processor."""
    return zone(sysfs, f"{kind}:{number}", f"package-{number}", energy_uj)


def zone(sysfs: Path, folder: str, name: str, energy_uj: int = 0) -> Zone:
    """A powercap zone."""
    path = sysfs / "class/powercap" / folder
    counter = Zone(path / "energy_uj", energy_uj)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    return counter


def card(sysfs: Path, number: int = 0, driver: str = "xe") -> Zone:
    """A graphics card."""
    path = sysfs / "class/hwmon" / f"hwmon{number}"
    counter = Zone(path / "energy1_input")
    (path / "name").write_text(f"{driver}\n")
    return counter


@contextmanager
def using(zone: Zone, *, watts: float) -> Iterator[None]:
    """Let the counter run at this power in a thread."""
    is_over = threading.Event()

    def flow() -> None:
        last = time.monotonic()
        while not is_over.wait(0.005):
            now = time.monotonic()
            zone.use(watts * (now - last))
            last = now

    thread = threading.Thread(target=flow)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
