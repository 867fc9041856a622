"""Host health: it is read from memory, and a check that does not come back is reported."""

from pathlib import Path

from tests.fakes.clock import FakeClock
from vinery_serving.gateway.state.host_health import DatabaseHealth, Disk, DiskHealth

MIB = 1024 * 1024
TERABYTES = 10**18


def test_a_database_that_failed_or_is_silent_for_seconds_is_unavailable_until_it_answers() -> None:
    clock = FakeClock()
    database = DatabaseHealth(clock)
    assert not database.is_unavailable
    database.failed()
    assert database.is_unavailable
    database.answered()
    assert not database.is_unavailable

    clock.now_s += 9.9
    assert not database.is_unavailable
    clock.now_s += 0.2
    assert database.is_unavailable
    assert round(database.silent_s, 1) == 10.1
    database.answered()
    assert not database.is_unavailable


def test_each_disk_is_reported_once_with_all_its_contents(tmp_path: Path) -> None:
    disk = DiskHealth({"usage": tmp_path}, min_free_bytes=0)
    disk.check()
    assert (disk.is_healthy, disk.report) == (True, "enough")
    assert disk.disks[0].free_bytes > 0

    folders = {"usage": tmp_path, "the database": Path("/proc")}
    disk = DiskHealth(folders, min_free_bytes=1)

    disk.check()

    # The kernel's file system has no free space.
    assert disk.low == (Disk(("the database",), 0),)
    assert disk.report == "low: 0 MiB for the database"

    (tmp_path / "usage").mkdir()
    folders = {"usage": tmp_path / "usage", "the database": tmp_path}
    disk = DiskHealth(folders, min_free_bytes=TERABYTES)

    disk.check()

    assert not disk.is_healthy
    free_mib = disk.disks[0].free_bytes // MIB
    assert disk.report == f"low: {free_mib} MiB for usage and the database"
    assert str(tmp_path) not in disk.report


def test_a_missing_folder_or_a_silent_disk_cannot_be_read(tmp_path: Path) -> None:
    folder, clock = tmp_path / "usage", FakeClock()
    disk = DiskHealth({"usage": folder}, min_free_bytes=0, clock=clock)
    disk.check()
    assert (disk.is_healthy, disk.report) == (False, "cannot be read")

    folder.mkdir()
    disk.check()
    assert disk.report == "enough"
    clock.now_s += 16.0
    assert (disk.is_healthy, disk.report) == (False, "cannot be read")
