"""Archives are unpacked below their folder only, and within limits."""

import tarfile
from pathlib import Path

import pytest

from tests.hub.archives import FILES, write_special, write_tar, write_zip, write_zip_link
from tests.tables import table
from vinery_serving.models.hub import archive as archive_module
from vinery_serving.models.hub.archive import unpack
from vinery_serving.models.hub.errors import PullFailed


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "target"
    folder.mkdir(parents=True)
    return folder


def unpacked(archive: Path, target: Path) -> dict[str, bytes]:
    unpack(archive, archive.name, target)
    files = (each for each in target.rglob("*") if each.is_file())
    return {each.relative_to(target).as_posix(): each.read_bytes() for each in files}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_is_unpacked(tmp_path: Path, target: Path, mode: str) -> None:
    small = {name: content for name, content in FILES.items() if len(content) < 100_000}

    assert unpacked(write_tar(tmp_path / "m.tar", small, mode=mode), target) == small


def test_a_zip_is_unpacked_without_long_headers_or_doubles(tmp_path: Path, target: Path) -> None:
    assert unpacked(write_zip(tmp_path / "m.zip", FILES), target) == FILES

    with tarfile.open(tmp_path / "m.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("x" * 3_000_000))
    with pytest.raises(PullFailed, match="a header is too long"):
        unpack(tmp_path / "m.tar", "m.tar", target)

    archive = write_tar(tmp_path / "m.tar", {"config.json": b"{}", "CONFIG.json": b"{}"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(PullFailed, match="twice"):
        unpack(archive, "m.tar", tmp_path / "empty")


@table("name", ["../x", "/tmp/x", "a/../../x", "a\\..\\x", "c:x", "a//b"])
@table("write", [write_tar, write_zip])
def test_no_file_is_written_outside(tmp_path: Path, target: Path, name: str, write: object) -> None:
    archive = write(tmp_path / "m", {name: b"x"})  # type: ignore[operator]

    with pytest.raises(PullFailed, match="is not safe"):
        unpack(archive, "m", target)
    assert not [each for each in tmp_path.rglob("*") if each.is_file() and each != archive]


@table("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, None])
def test_links_and_devices_are_refused(tmp_path: Path, target: Path, kind: bytes | None) -> None:
    if kind is None:
        archive = write_zip_link(tmp_path / "m", "/etc/passwd")
    else:
        archive = write_special(tmp_path / "m", kind, "/etc/passwd")

    with pytest.raises(PullFailed, match="is no plain file"):
        unpack(archive, "m", target)
    assert not list(target.iterdir())


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_bombs_of_bytes_and_of_files_are_ended(
    tmp_path: Path, target: Path, write: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write(tmp_path / "m", {"openvino_model.bin": bytes(50_000_000)})  # type: ignore[operator]
    with pytest.raises(PullFailed, match="than a model would"):
        unpack(archive, "m", target)
    assert sum(each.stat().st_size for each in target.iterdir()) < 3_000_000

    monkeypatch.setattr(archive_module, "_MAX_FILES", 10)
    archive = write(tmp_path / "m", {f"{n}": b"x" for n in range(11)})  # type: ignore[operator]
    with pytest.raises(PullFailed, match="more than 10 files"):
        unpack(archive, "m", target)


@pytest.mark.parametrize("size", [0, 100, -20_000])
def test_a_damaged_archive_is_a_sentence(tmp_path: Path, target: Path, size: int) -> None:
    for archive in (write_tar(tmp_path / "m.tgz", FILES), write_zip(tmp_path / "m.zip", FILES)):
        archive.write_bytes(archive.read_bytes()[:size])

        with pytest.raises(PullFailed, match="no archive that can be read, or is damaged"):
            unpack(archive, archive.name, target)
