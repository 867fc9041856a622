"""Which files of models other hosts may fetch."""

import os
from pathlib import Path

import msgspec
import pytest

from vinery_serving.cluster import folders
from vinery_serving.cluster.folders import Folder
from vinery_serving.processes.apart import run_apart


async def read(folder: Path) -> Folder:
    work = folders.read_folder
    answer = await run_apart(work, folder, reads=(folder,), within_s=60, cpu_s=60, nice=19)
    return msgspec.json.decode(answer, type=Folder)


async def test_the_digest_is_of_names_sizes_and_content(tmp_path: Path) -> None:
    a, b, c = (tmp_path / each for each in "abc")
    for each, text in ((a, "1"), (b, "1"), (c, "2")):
        (each / "inner").mkdir(parents=True)
        (each / "inner" / "x").write_text(text)
    os.utime(b / "inner" / "x", (1, 1))
    found = [await read(each) for each in (a, b, c)]
    assert found[0].digest == found[1].digest != found[2].digest
    assert found[0].state == folders.state_of(a) != found[1].state
    (a / "link").symlink_to(b)
    (tmp_path / "d").symlink_to(b)
    for each in (a, tmp_path / "d"):
        with pytest.raises(OSError, match="link"):
            folders.state_of(each)


async def test_only_files_of_the_list_are_opened(tmp_path: Path) -> None:
    folder, run_dir = tmp_path / "m", tmp_path / "run"
    folder.mkdir()
    run_dir.mkdir()
    (folder / "x").write_text("content")
    (tmp_path / "secret").write_text("secret")
    found = await read(folder)
    folders.keep(run_dir, {str(folder): found})
    with folders.opened(run_dir, found.digest, "x") as file:
        assert file.read() == b"content"
    with folders.opened(run_dir, found.digest, "") as file:
        assert file.read() == found.listing
    (folder / "later").write_text("not in the list")
    for name in ("later", "../secret", "/etc/passwd", str(tmp_path / "secret"), ".", "x/../x"):
        with pytest.raises(OSError):
            folders.opened(run_dir, found.digest, name)
    with pytest.raises(OSError):
        folders.opened(run_dir, "0" * 64, "x")
    (folder / "x").unlink()
    (folder / "x").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError):
        folders.opened(run_dir, found.digest, "x")
