"""The usage journal: an append-only file that one process owns for its lifetime."""

import os
import threading
from pathlib import Path

import pytest

from vinery_accounts.usage import journal as journal_module
from vinery_accounts.usage.journal import Journal, journals_in, read_lines, sweep_drafts


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path / "usage")


def orphaned(journal: Journal) -> Journal:
    """The journal after its owner's death, adopted by another process."""
    journal.close()
    adopted = Journal.adopt(journal.path)
    assert adopted is not None
    return adopted


def written_to(journal: Journal) -> bytes:
    return journal.path.read_bytes()


def test_a_journal_rewritten_or_removed_before_its_lock_is_not_adopted(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_flock = journal_module.fcntl.flock
    is_rewritten = False

    def is_rewritten_meanwhile(fd: int, how: int) -> None:
        nonlocal is_rewritten
        if not is_rewritten:
            is_rewritten = True
            journal.replace(b"new\n")
        real_flock(fd, how)

    monkeypatch.setattr(journal_module.fcntl, "flock", is_rewritten_meanwhile)
    assert Journal.adopt(journal.path) is None
    assert is_rewritten

    journal.close()

    def another_finder_was_faster(fd: int, how: int) -> None:
        journal.path.unlink()
        real_flock(fd, how)

    monkeypatch.setattr(journal_module.fcntl, "flock", another_finder_was_faster)
    assert Journal.adopt(journal.path) is None


def test_a_torn_last_line_is_left_out_and_allocated_space_is_no_line(journal: Journal) -> None:
    journal.append(b"one\n")
    with journal.path.open("ab") as torn:
        torn.write(b"tw")
    adopted = orphaned(journal)
    assert adopted.read(0, 100) == b"one\n"
    assert adopted.read(4, 100) == b""
    assert adopted.read(0, 1) == b"one\n"

    journal = Journal.create(journal.path.parent)
    journal.allocate(1000)
    journal.append(b"one\n")
    with journal.path.open("r+b") as torn:
        torn.seek(4)
        torn.write(b"tw")
    adopted = orphaned(journal)
    assert adopted.path.stat().st_size > 1000
    assert adopted.read(0, 10_000) == b"one\n"
    assert adopted.size_bytes == 6


def test_no_failed_or_short_write_stays(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.append(b"old\n")
    monkeypatch.setattr(os, "pwrite", lambda fd, lines, at: 0)
    with pytest.raises(OSError, match="whole"):
        journal.replace(b"new\n")
    monkeypatch.undo()
    journal.append(b"older\n")
    assert written_to(journal) == b"old\nolder\n"
    journal.close()
    assert list(journal.path.parent.iterdir()) == [journal.path]

    journal = Journal.create(journal.path.parent)
    journal.append(b"one\n")
    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, line, at: real_pwrite(fd, line[:-2], at))
    with pytest.raises(OSError, match="whole"):
        journal.append(b"a long line that does not fit\n")
    assert journal.read(0, 100) == b"one\n"
    monkeypatch.undo()
    journal.append(b"two\n")
    assert journal.read(0, 100) == b"one\ntwo\n"
    assert orphaned(journal).read(0, 100) == b"one\ntwo\n"


def test_space_is_allocated_for_lines_and_for_replacements(journal: Journal) -> None:
    journal.allocate(1000)
    room_bytes = journal.room_bytes
    journal.append(b"one\n")
    assert journal.room_bytes == room_bytes - 4 >= 1000 - 4
    journal.allocate(room_bytes)
    assert journal.room_bytes >= room_bytes

    journal.replace(b"new\n", 5000)
    assert journal.room_bytes >= 5000
    assert journal.read(0, 100) == b"new\n"


def test_a_file_system_that_cannot_allocate_gets_zeros(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    journal.append(b"one\n")
    journal.allocate(1000)
    assert journal.room_bytes >= 1000
    assert written_to(journal).rstrip(b"\0") == b"one\n"
    assert journal.path.stat().st_size >= 1004
    monkeypatch.delattr(os, "posix_fallocate")
    journal.allocate(1_000_000)
    assert journal.path.stat().st_size >= 1_000_004


def test_a_replacement_that_is_killed_or_fails_leaves_the_journal_with_its_owner(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(path: Path, target: Path) -> None:
        raise Killed

    folder = journal.path.parent
    journal.append(b"old\n")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Path, "rename", killed)
        journal.replace(b"new\n")
    journal = orphaned(journal)
    (draft,) = set(folder.iterdir()) - {journal.path}
    with pytest.raises(FileExistsError):
        journal.replace(b"new\n")
    draft.unlink()
    journal.append(b"older\n")
    assert written_to(journal) == b"old\nolder\n"

    for number in range(5):
        journal.append(b"a long line that is replaced\n")
        journal.replace(b"%d\n" % number)
        journal.append(b"new\n")
    assert written_to(journal).rstrip(b"\0") == journal.read(0, 100) == b"4\nnew\n"
    assert Journal.adopt(journal.path) is None
    assert orphaned(journal).read(0, 1000) == b"4\nnew\n"
    assert list(folder.iterdir()) == [journal.path]


def test_a_folder_lists_journals_each_adopted_once(journal: Journal, tmp_path: Path) -> None:
    draft = journal.path.with_suffix(".draft")
    draft.write_bytes(b"half a rewri")
    assert journals_in(journal.path.parent) == [journal.path]
    sweep_drafts(journal.path.parent)
    assert list(journal.path.parent.iterdir()) == [journal.path]
    assert journals_in(tmp_path / "nowhere") == []
    sweep_drafts(tmp_path / "nowhere")

    journal.append(b"one\n")
    assert Journal.adopt(journal.path) is None
    adopted = orphaned(journal)
    assert adopted.read(0, 100) == b"one\n"
    assert Journal.adopt(journal.path) is None
    adopted.path.unlink()
    assert Journal.adopt(journal.path) is None
    journal = Journal.create(tmp_path / "deep" / "usage")
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.path.parent == tmp_path / "deep" / "usage"
    assert Journal.create(journal.path.parent).path != journal.path


def test_the_lines_of_a_journal_are_copied_while_its_owner_has_it(journal: Journal) -> None:
    journal.allocate(100_000)
    for line in (b"first\n", b"second\n"):
        journal.append(line)

    assert read_lines(journal.path) == b"first\nsecond\n"
    journal.append(b"torn")
    assert read_lines(journal.path) == b"first\nsecond\n"

    journal.close()
    journal.path.unlink()
    assert read_lines(journal.path) == b""


def test_a_copy_has_all_unstored_lines_whatever_is_replaced_meanwhile(journal: Journal) -> None:
    """The owner appends numbers, and replaces the lines up to one that is named as stored. So
    each copy has a first line with the last stored number, and then all others without a gap."""
    journal.append(b"%09d\n" % 0)
    is_over = threading.Event()
    written = [0]

    def own() -> None:
        stored = 0
        while not is_over.is_set():
            for _ in range(50):
                journal.append(b"%09d\n" % (written[0] + 1))
                written[0] += 1
            kept = range(written[0] - 20, written[0] + 1)
            stored = kept[0] - 1
            journal.replace(b"".join(b"%09d\n" % number for number in (stored, *kept)))

    owner = threading.Thread(target=own)
    owner.start()
    try:
        for _ in range(300):
            at_least = written[0]
            numbers = [int(line) for line in read_lines(journal.path).splitlines()]
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert numbers[-1] >= at_least
    finally:
        is_over.set()
        owner.join()
        journal.remove()
