"""What a process stands on: told from memory, and a look that does not come back is told, too."""

from __future__ import annotations

from pathlib import Path

from serving.runtime.host_health import DatabaseHealth, Disk, DiskHealth

MIB = 1024 * 1024
TERABYTES = 10**18


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_database_that_failed_is_away_until_it_answers() -> None:
    watch = DatabaseHealth()
    assert not watch.is_away

    watch.failed()
    assert watch.is_away

    watch.answered()
    assert not watch.is_away


def test_a_database_that_says_nothing_for_seconds_is_away_without_having_failed() -> None:
    clock = Clock()
    watch = DatabaseHealth(clock)

    clock.now_s += 9.9
    assert not watch.is_away
    clock.now_s += 0.2
    assert watch.is_away
    assert round(watch.silent_s, 1) == 10.1

    watch.answered()
    assert not watch.is_away


def test_enough_room_is_said_to_be_enough(tmp_path: Path) -> None:
    watch = DiskHealth({"usage": tmp_path}, min_free_bytes=0)

    watch.look()

    assert (watch.is_well, watch.told) == (True, "enough")
    assert watch.disks[0].free_bytes > 0


def test_a_disk_is_told_once_with_all_that_lives_there(tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()
    places = {"usage": tmp_path / "usage", "the database": tmp_path}
    watch = DiskHealth(places, min_free_bytes=TERABYTES)

    watch.look()

    assert not watch.is_well
    free_mib = watch.disks[0].free_bytes // MIB
    assert watch.told == f"low: {free_mib} MiB for usage and the database"
    assert str(tmp_path) not in watch.told


def test_another_disk_is_told_apart(tmp_path: Path) -> None:
    places = {"usage": tmp_path, "the database": Path("/proc")}
    watch = DiskHealth(places, min_free_bytes=1)

    watch.look()

    # There is no room in a file system of the kernel's.
    assert watch.low == (Disk(("the database",), 0),)
    assert watch.told == "low: 0 MiB for the database"


def test_a_folder_that_is_gone_cannot_be_read_until_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "usage"
    watch = DiskHealth({"usage": folder}, min_free_bytes=0)

    watch.look()
    assert (watch.is_well, watch.told) == (False, "cannot be read")

    folder.mkdir()
    watch.look()
    assert watch.told == "enough"


def test_a_disk_that_does_not_answer_is_told(tmp_path: Path) -> None:
    clock = Clock()
    watch = DiskHealth({"usage": tmp_path}, min_free_bytes=0, clock=clock)
    watch.look()

    clock.now_s += 16.0

    assert (watch.is_well, watch.told) == (False, "cannot be read")
