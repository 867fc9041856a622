"""The state of a model's files differs after each change."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import TINY_CHAT
from tests.tables import table
from vinery_serving.core.model_files import folder_state
from vinery_serving.node import fit
from vinery_serving.node.fit import EngineFacts, read_facts
from vinery_serving.processes.apart import NoAnswer


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


async def test_facts_come_from_files_that_others_have_spoiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(TINY_CHAT, tmp_path / "model"))
    facts = await read_facts([folder], generates=True)
    assert facts == EngineFacts(kv_numbers=1280, max_context=2048)

    with (folder / "config.json").open("wb") as config:
        config.truncate(2 * 2**30)
    assert "config.json is larger than 32 MB" in (await read_facts([folder], generates=True)).error

    async def killed(*_: object, **__: object) -> bytes:
        raise NoAnswer("takes too long")

    monkeypatch.setattr(fit, "run_apart", killed)
    facts = await read_facts([folder], generates=True)
    assert facts.error == f"Reading the files of {folder} takes too long."
    assert facts.is_passing
