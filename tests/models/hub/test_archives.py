"""Archives are unpacked below their folder only, and within limits."""

import bz2
import tarfile
from pathlib import Path

import pytest

from tests.models.hub.archives import FILES, write_special, write_tar, write_zip, write_zip_link
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

    monkeypatch.setattr(archive_module, "_MAX_MEMBERS", 10)
    for names in ([f"{n}" for n in range(11)], [f"{n}/" for n in range(11)]):
        archive = write(tmp_path / "m", dict.fromkeys(names, b""))  # type: ignore[operator]
        with pytest.raises(PullFailed, match="more than 10 files"):
            unpack(archive, "m", target)


def test_headers_count_as_bytes_and_files_with_holes_are_refused(
    tmp_path: Path, target: Path
) -> None:
    folder = tarfile.TarInfo("a/")
    folder.type = tarfile.DIRTYPE
    archive = tmp_path / "m.tar.bz2"
    archive.write_bytes(bz2.compress(folder.tobuf() * 9000 + bytes(1024)))
    with pytest.raises(PullFailed, match="than a model would"):
        unpack(archive, "m", target)

    # A chain of blocks, each with 21 holes, and no end: 20 MB in some hundred bytes.
    sparse = bytearray(tarfile.TarInfo("w").tobuf())
    sparse[156:157] = tarfile.GNUTYPE_SPARSE
    sparse[482] = 1
    sparse[148:156] = b"%06o\0 " % (sum(sparse[:148]) + sum(sparse[156:512]) + 8 * 32)
    archive.write_bytes(bz2.compress(bytes(sparse) + (b"\0" * 504 + b"\1" + b"\0" * 7) * 40_000))
    with pytest.raises(PullFailed, match="a file has holes"):
        unpack(archive, "m", target)

    with tarfile.open(tmp_path / "m.tar", "w", format=tarfile.PAX_FORMAT) as packed:
        member = tarfile.TarInfo("w")
        member.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(2**45)}
        packed.addfile(member)
    with pytest.raises(PullFailed, match="no plain file"):
        unpack(tmp_path / "m.tar", "m", target)


@table("names", [("a", "a/b"), ("a/b", "a")])
@table("write", [write_tar, write_zip])
def test_a_name_of_a_file_and_a_folder_is_a_sentence(
    tmp_path: Path, names: tuple[str, ...], write: object
) -> None:
    target = tmp_path / "_".join((*names, write.__name__)).replace("/", "-")  # type: ignore[attr-defined]
    target.mkdir()
    archive = write(tmp_path / "m", dict.fromkeys(names, b"x"))  # type: ignore[operator]
    with pytest.raises(PullFailed, match="a file and a folder of one name at 'a"):
        unpack(archive, "m", target)


def test_a_zip_whose_list_is_long_is_not_read(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_zip(tmp_path / "m.zip", {f"{n}": b"" for n in range(100)})
    monkeypatch.setattr(archive_module, "_MAX_LIST_BYTES", 4000)
    with pytest.raises(PullFailed, match="the list of its files is too long"):
        unpack(archive, "m.zip", target)


@pytest.mark.parametrize("size", [0, 100, -20_000])
def test_a_damaged_archive_is_a_sentence(tmp_path: Path, target: Path, size: int) -> None:
    for archive in (write_tar(tmp_path / "m.tgz", FILES), write_zip(tmp_path / "m.zip", FILES)):
        archive.write_bytes(archive.read_bytes()[:size])

        with pytest.raises(PullFailed, match="no archive that can be read, or is damaged"):
            unpack(archive, archive.name, target)
