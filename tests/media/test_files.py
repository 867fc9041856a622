"""Local files are read without following links, and only regular ones."""

import os
import socket
from pathlib import Path

import pytest

from tests.media.path_attacks import PATH_ATTACKS, build
from tests.tables import table
from vinery_serving.media import files
from vinery_serving.media.files import FileRefused, FileTooLarge, is_inside, read_file, read_path

MAX_BYTES = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "allowed"
    build(folder, tmp_path.resolve() / "outside")
    return folder


def test_a_regular_file_is_read_and_only_files_below_a_folder_are_inside(folder: Path) -> None:
    assert read_file(read_path(str(folder / "a.png")), MAX_BYTES) == b"picture"
    assert read_file(read_path(str(folder / "inside" / "a.png")), MAX_BYTES) == b"another"
    assert read_file(str(folder.parent / "outside" / "secret"), MAX_BYTES) == b"secret"
    assert is_inside("/data/a", "/data")
    assert is_inside("/data/a", "/data/")
    assert is_inside("/data/a", "/")
    for path in ("/data", "/data2/a", "/data-x", "/dat", "/"):
        assert not is_inside(path, "/data")


@table(
    "text, path",
    [
        *(("/data/a.png", "/data/a.png"), ("//data///./a.png", "/data/a.png")),
        *(("/data/%2e%2e/a.png", "/data/%2e%2e/a.png"), ("/data/..a/b..", "/data/..a/b..")),
        ("file:///data/a%20b%3F.png", "/data/a b?.png"),
        *(("file://localhost/data/a.png", "/data/a.png"), ("file:/data/a.png", "/data/a.png")),
        *(("FILE:///data/%C3%A4.png", "/data/ä.png"), ("/data/ä b.png", "/data/ä b.png")),
    ],
)
def test_a_path_and_a_url_of_a_file_are_read_as_they_are_written(text: str, path: str) -> None:
    assert read_path(text) == path


@table(
    "text, reason",
    [
        *(("data/a.png", "absolute"), ("/data/../a.png", "without `..`")),
        ("file:///data/%2e%2e/a.png", "without `..`"),
        ("file:///data/%2e%2e%2fa.png", "no slash"),
        *(("file://host/data/a.png", "without a host"), ("file:///data/a.png?x", "%3F")),
        *(("file:///data/100%", "%25"), ("file:///data/%ff", "UTF-8")),
        *(("/data/a\0.png", "control"), ("/data/\ud800", "control")),
        *(("/data/\u202egnp.exe", "invisible"), ("file:///data/%E2%81%A6a.png", "invisible")),
        *(("/" + "a" * 256, "too long"), ("/a" * 2100, "too long")),
    ],
)
def test_a_refused_path_names_what_to_change(text: str, reason: str) -> None:
    with pytest.raises(FileRefused, match=reason):
        read_path(text)


def test_none_of_100_attacks_reads_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(PATH_ATTACKS) >= 100
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(folder)  # the address of a socket is short
        listener.bind("socket")
        for attack in PATH_ATTACKS:
            text = attack.replace("{folder}", str(folder)).replace(
                "{outside}", str(folder.parent / "outside")
            )
            with pytest.raises(FileRefused):
                path = read_path(text)
                if not is_inside(path, str(folder)):
                    raise FileRefused(path)
                read_file(path, MAX_BYTES)


def swap_after_the_first_look(monkeypatch: pytest.MonkeyPatch, path: Path, other: Path) -> None:
    """Let someone replace the file between `stat` and `open`."""
    look = os.stat

    def stat_and_swap(*arguments: object, **options: object) -> os.stat_result:
        status = look(*arguments, **options)  # type: ignore[arg-type]
        if path.name == arguments[0]:
            path.rename(path.with_name("before"))
            other.rename(path)
        return status

    monkeypatch.setattr(files.os, "stat", stat_and_swap)


@pytest.mark.parametrize("other", ["to-secret", "pipe", "inside", "zero"])
def test_a_file_that_is_replaced_while_it_is_opened_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    swap_after_the_first_look(monkeypatch, folder / "a.png", folder / other)
    with pytest.raises(FileRefused):
        read_file(str(folder / "a.png"), MAX_BYTES)


def test_a_folder_that_is_replaced_by_a_link_while_it_is_walked_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open

    def open_and_swap(name: str, *arguments: object, **options: object) -> int:
        descriptor = really_open(name, *arguments, **options)  # type: ignore[arg-type]
        if name == "inside":
            (folder / "inside").rename(folder / "before")
            (folder / "inside").symlink_to(folder.parent / "outside")
        return descriptor

    (folder.parent / "outside" / "a.png").write_text("secret")
    monkeypatch.setattr(files.os, "open", open_and_swap)
    assert read_file(str(folder / "inside" / "a.png"), MAX_BYTES) == b"another"
    monkeypatch.undo()
    with pytest.raises(FileRefused):
        read_file(str(folder / "inside" / "a.png"), MAX_BYTES)


def test_a_large_file_is_refused_whatever_it_declares_and_none_stays_open(folder: Path) -> None:
    (folder / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    (folder / "exact").write_bytes(b"x" * MAX_BYTES)
    assert len(read_file(str(folder / "exact"), MAX_BYTES)) == MAX_BYTES
    with pytest.raises(FileTooLarge):
        read_file(str(folder / "large"), MAX_BYTES)
    with (folder / "sparse").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(FileTooLarge):
        read_file(str(folder / "sparse"), MAX_BYTES)
    assert Path("/proc/self/mountinfo").stat().st_size == 0
    with pytest.raises(FileRefused, match="link"):
        read_file("/proc/self", MAX_BYTES)
    with pytest.raises(FileTooLarge):
        read_file(f"/proc/{os.getpid()}/mountinfo", 10)

    for name in ("a.png", "inside/a.png", "to-outside/secret", "pipe", "missing", "inside"):
        try:
            read_file(str(folder / name), MAX_BYTES)
        except FileRefused:
            continue
    links = Path("/proc/self/fd").iterdir()
    # Other files come and go: those of earlier tests are closed at any collection.
    opened = [str(each.readlink()) for each in links if each.is_symlink()]
    assert [path for path in opened if path.startswith(str(folder.parent))] == []
