"""The state of a model's files differs after each change of a file."""

import os
from collections.abc import Callable
from pathlib import Path

from tests.tables import table
from vinery_serving.node.folder_state import folder_state


def a_folder(home: Path) -> Path:
    folder = home / "model"
    folder.mkdir(parents=True)
    (home / "weights").write_bytes(b"1234")
    (folder / "openvino_model.xml").write_bytes(b"1234")
    (folder / "openvino_model.bin").symlink_to(home / "weights")
    (folder / "broken").symlink_to(home / "nowhere")
    return folder


def replace_with_same_size_and_time(file: Path) -> None:
    stamps = file.stat()
    new = file.with_name("new")
    new.write_bytes(b"5678")
    os.utime(new, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    new.replace(file)


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "config.json").write_text("{}"),
    lambda folder: (folder / "openvino_model.xml").unlink(),
    lambda folder: (folder / "openvino_model.xml").write_bytes(b"123"),
    lambda folder: os.utime(folder / "openvino_model.xml", ns=(1, 1)),
    lambda folder: replace_with_same_size_and_time(folder / "openvino_model.xml"),
    lambda folder: (folder.parent / "weights").write_bytes(b"123"),
    lambda folder: (folder.parent / "nowhere").write_bytes(b""),
]


@table("number", range(len(CHANGES)))
def test_a_change_is_seen(tmp_path: Path, number: int) -> None:
    folder = a_folder(tmp_path / str(number))
    before = folder_state([folder])
    assert folder_state([folder]) == before
    CHANGES[number](folder)
    assert folder_state([folder]) != before


def test_a_folder_that_appears_is_a_change(tmp_path: Path) -> None:
    folder, later = a_folder(tmp_path), tmp_path / "later"
    before = folder_state([folder, later])
    later.mkdir()
    (later / "file").write_text("")
    assert folder_state([folder, later]) != before
    assert folder_state([later]) != ()
