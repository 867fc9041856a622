"""Copies of tables for a start without the database: nobody else can read or make one."""

from pathlib import Path
from typing import Any

import pytest

from vinery_accounts.base.sealed_table import SealedTable

Rows = dict[str, tuple[int, Path]]
SECRET: Rows = {"a name of a customer": (7, Path("/a/folder/of/a/model"))}


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, settings: Any) -> Path:
    settings.VINERY_CACHE_DIR = tmp_path
    return tmp_path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sealed(clock: Clock) -> SealedTable[Rows]:
    return SealedTable("rows", Rows, clock=clock)


def file_of(cache: Path) -> Path:
    (file,) = (cache / "sealed").iterdir()
    return file


def test_another_process_reads_what_was_kept_and_when(sealed: SealedTable[Rows]) -> None:
    assert sealed.read() is None
    sealed.keep(SECRET)

    assert SealedTable[Rows]("rows", Rows).read() == (1000.0, SECRET)


def test_a_copy_is_written_when_the_table_has_changed_or_after_a_minute(
    sealed: SealedTable[Rows], clock: Clock, cache: Path
) -> None:
    sealed.keep(SECRET)
    first = file_of(cache).read_bytes()
    clock.now_s += 59
    sealed.keep(dict(SECRET))
    assert file_of(cache).read_bytes() == first

    sealed.keep({})
    assert sealed.read() == (1059.0, {})
    clock.now_s += 61
    sealed.keep({})
    assert sealed.read() == (1120.0, {})


def test_a_copy_is_for_this_user_alone_and_has_no_clear_text(
    sealed: SealedTable[Rows], cache: Path
) -> None:
    sealed.keep(SECRET)
    file = file_of(cache)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert b"customer" not in file.read_bytes()


def test_a_copy_that_is_changed_of_another_table_or_form_or_key_is_not_used(
    sealed: SealedTable[Rows], cache: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sealed.keep(SECRET)
    file = file_of(cache)
    content = file.read_bytes()
    assert SealedTable[Any]("rows", dict[str, int]).read() is None

    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    assert sealed.read() is None
    for num_bytes in (len(content) // 2, 0):
        file.write_bytes(content[:num_bytes])
        assert sealed.read() is None

    file.write_bytes(content)
    (file.parent / "others").write_bytes(content)
    assert SealedTable[Any]("others", Rows).read() is None

    key, settings.SECRET_KEY = settings.SECRET_KEY, "another key of Django, quite long and random"
    assert sealed.read() is None
    settings.SECRET_KEY_FALLBACKS = [key]
    assert sealed.read() is not None
    assert len(caplog.records) == 6
    assert "customer" not in caplog.text


def test_a_table_that_cannot_be_written_is_only_logged(
    sealed: SealedTable[Rows], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "sealed").write_text("a file where the folder should be")
    sealed.keep(SECRET)
    assert "the sealed copy of rows is not written" in caplog.text
