"""The state of a model's files differs after each change, and cut weights are found unread."""

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import TINY_CHAT
from tests.tables import table
from vinery_serving.core.model_files import folder_state
from vinery_serving.node.model_files import EngineFacts, UnusableWeights, check_weights, read_facts
from vinery_serving.processes import apart


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


# -- In a process of its own


async def test_facts_come_from_files_that_others_have_spoiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def facts_of(**asked: bool) -> EngineFacts:
        return await read_facts([folder], **{"generates": True, "checks_weights": True, **asked})

    for name in ("config.json", "tokenizer_config.json"):
        shutil.copy(TINY_CHAT / name, folder)
    assert await facts_of() == EngineFacts(kv_numbers=1280, max_context=2048)

    cut(folder / "openvino_model.bin", 10)
    assert "openvino_model.bin is cut" in (await facts_of()).error
    assert (await facts_of(checks_weights=False)).error == ""

    monkeypatch.setitem(apart._LIMITS, resource.RLIMIT_AS, 2**29)
    (folder / "openvino_model.xml").write_text("<a>" * 10_000_000)
    facts = await facts_of()
    assert facts.error.startswith(f"Reading the files of {folder} fails, or takes more than")
    assert facts.is_passing

    with (folder / "config.json").open("wb") as config:
        config.truncate(2 * 2**30)
    assert "config.json is larger than 32 MB" in (await facts_of()).error
