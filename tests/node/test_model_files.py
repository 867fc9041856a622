"""The state of a model's files differs after each change, and cut weights are found unread."""

import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import TINY_CHAT
from tests.tables import table
from vinery_serving.node.model_files import UnusableWeights, check_weights, folder_state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in TINY_CHAT.glob("openvino_*"):
        shutil.copy(file, tmp_path)
    return tmp_path


def cut(file: Path, num_bytes: int) -> None:
    file.write_bytes(file.read_bytes()[:num_bytes])


@pytest.mark.parametrize("name", ["openvino_model.bin", "openvino_tokenizer.bin"])
def test_a_cut_file_is_named_with_both_sizes(folder: Path, name: str) -> None:
    size = (folder / name).stat().st_size
    cut(folder / name, size - 1)

    with pytest.raises(UnusableWeights) as error:
        check_weights(folder)

    assert str(error.value) == (
        f"The weights file {name} is cut: it has {size - 1:,} bytes, and the graph needs {size:,}. "
        "Copy the folder again."
    )


def test_a_whole_or_longer_file_passes_and_a_missing_one_is_named(folder: Path) -> None:
    check_weights(folder)
    with (folder / "openvino_model.bin").open("ab") as weights:
        weights.write(b"padding")
    check_weights(folder)

    (folder / "openvino_detokenizer.bin").unlink()
    with pytest.raises(UnusableWeights, match=r"file openvino_detokenizer\.bin is missing in "):
        check_weights(folder)


@table(
    "text",
    [
        "<net><layers/></net>",  # without constants
        # What is no graph is left to its reader.
        "no graph",
        "<net><layers><layer type='Const'><data offset='x'/>",
    ],
)
def test_some_graphs_need_no_weights(tmp_path: Path, text: str) -> None:
    (tmp_path / "openvino_model.xml").write_text(text)
    check_weights(tmp_path)


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


@table("text", ["<a>" * 100_000 + "</a>" * 100_000, "<a>" + "<b c='d'/>" * 1_000_000 + "</a>"])
def test_a_hostile_graph_takes_no_memory(tmp_path: Path, text: str) -> None:
    (tmp_path / "openvino_model.xml").write_text(text)
    tracemalloc.start()
    check_weights(tmp_path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 16 << 20
