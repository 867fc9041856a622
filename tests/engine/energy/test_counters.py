"""Which of the kernel's counters are read, and how."""

from pathlib import Path

import pytest

from tests.engine.energy.counter_files import RANGE_UJ, card, package, zone
from tests.tables import table
from vinery_serving.engine.energy.counters import gpu_counters, package_counters

PACKAGE = "class/powercap/intel-rapl:0"


def test_a_reading_has_the_joules_since_the_last_one_and_a_counter_may_wrap(tmp_path: Path) -> None:
    first = package(tmp_path, energy_uj=123_456)
    (counter,) = package_counters(tmp_path)
    assert counter.read_j() == 0
    first.use(1.5)
    assert counter.read_j() == pytest.approx(1.5)
    assert counter.read_j() == 0

    (tmp_path / PACKAGE / "energy_uj").write_text("")
    assert counter.read_j() == 0
    first.use(2)
    assert counter.read_j() == pytest.approx(2)

    first = package(tmp_path, energy_uj=RANGE_UJ - 1_000_000)
    (counter,) = package_counters(tmp_path)
    first.use(3)
    assert first.energy_uj > RANGE_UJ
    assert counter.read_j() == pytest.approx(3)


def test_nothing_is_counted_twice(tmp_path: Path) -> None:
    package(tmp_path, 0)
    package(tmp_path, 1)
    package(tmp_path, 0, kind="intel-rapl-mmio")
    zone(tmp_path, "intel-rapl:0:0", "core")
    zone(tmp_path, "intel-rapl:2", "psys")
    assert len(package_counters(tmp_path)) == 2


def test_graphics_cards_of_intel_are_counted(tmp_path: Path) -> None:
    used = card(tmp_path, 0, "xe")
    card(tmp_path, 1, "coretemp")
    (counter,) = gpu_counters(tmp_path)
    used.use(0.25)
    assert counter.read_j() == pytest.approx(0.25)


@table(
    "file, content",
    [
        ("energy_uj", "no number\n"),
        ("max_energy_range_uj", ""),
        ("max_energy_range_uj", "no number\n"),
        ("max_energy_range_uj", None),
    ],
)
def test_an_unreadable_counter_or_one_without_a_known_range_is_left_out(tmp_path, file, content):
    package(tmp_path, 0)
    package(tmp_path, 1)
    path = tmp_path / PACKAGE / file
    path.unlink() if content is None else path.write_text(content)
    assert len(package_counters(tmp_path)) == 1
    assert package_counters(tmp_path / "none") == []
