"""Models from archives and from files of this machine, by the job that pulls them."""

import hashlib
import io
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.hub import FakeHub, Fault
from tests.models.hub.archives import FILES, write_tar, write_zip
from tests.models.hub.gguf_files import write_gguf
from tests.models.hub.models import TINY_CHAT, checkpoint_files
from tests.tables import table
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.origins import ArchiveOrigin, FilesOrigin, discard, run
from vinery_serving.models.hub.remote import WebFile
from vinery_serving.models.jobs import JobDocument, JobFailed, Reporter


def job(origin: Any, home: Path) -> JobDocument:
    parameters = msgspec.to_builtins(origin)
    return JobDocument(
        kind="pull", job_id=1, node_pid=1, model="m", home=home, parameters=parameters
    )


def pulled(origin: Any, home: Path) -> dict[str, Any]:
    return run(job(origin, home), Reporter(io.StringIO()))


@pytest.fixture
def url(hub: FakeHub, tmp_path: Path) -> str:
    """An archive on a server, with a folder in it."""
    archive = write_tar(tmp_path / "m.tar.gz", FILES, prefix="tiny/").read_bytes()
    hub.add("acme/archive", {"m.tar.gz": archive})
    return f"{hub.endpoint}/acme/archive/resolve/main/m.tar.gz"


def digest(tmp_path: Path) -> str:
    return hashlib.sha256((tmp_path / "m.tar.gz").read_bytes()).hexdigest()


def test_an_archive_needs_its_digest_a_server_and_no_metadata_service(
    url: str, tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PullFailed, match="needs its SHA-256"):
        ArchiveOrigin.look(url)
    with pytest.raises(JobFailed, match="its digest differs"):
        pulled(ArchiveOrigin.look(url, "0" * 64), tmp_path)

    with pytest.raises(PullFailed):
        ArchiveOrigin.look(f"{hub.endpoint}/acme/archive/resolve/main/none.zip", "0" * 64)

    monkeypatch.setattr(FakeHub, "storage", "http://169.254.169.254")
    with pytest.raises(PullFailed, match="metadata service"):
        ArchiveOrigin.look(url, "0" * 64)


def test_archives_that_change_are_not_mixed(url: str, hub: FakeHub, tmp_path: Path) -> None:
    old = WebFile(url, WebFile(url).look().etag)
    with old.open(1, 5) as stream:
        assert stream.start == 1
    hub.add("acme/archive", {"m.tar.gz": b"new"})

    with old.open(1, 5) as stream:
        assert (stream.start, b"".join(stream.parts)) == (0, b"new")


@table(
    "url, sentence",
    [
        ("https://user:secret@store/m.zip", "Leave the password out"),
        ("ftp://store/m.zip?signature=secret", "begins with https:// or s3://"),
        ("https://[::1/m.zip", "begins with https://"),
        ("file:///etc/passwd", "begins with https:// or s3://"),
        ("https://169.254.169.254/latest/meta-data/m.zip", "metadata service"),
        ("https://[fe80::1]/latest/meta-data/m.zip", "metadata service"),
        ("https://[::ffff:169.254.169.254]/latest/meta-data/m.zip", "metadata service"),
    ],
)
def test_other_urls_are_refused_without_their_secrets(url: str, sentence: str) -> None:
    with pytest.raises(PullFailed, match=sentence) as error:
        ArchiveOrigin.look(url)
    assert "secret" not in str(error.value)


def test_folders_archives_and_gguf_files_of_this_machine_are_pulled(tmp_path: Path) -> None:
    result = pulled(FilesOrigin.look(TINY_CHAT), tmp_path)

    folder = Path(result["folder"])
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == FILES
    assert "precision" not in result

    archive = write_zip(tmp_path / "tiny.zip", FILES)
    folder = Path(pulled(FilesOrigin.look(archive), tmp_path)["folder"])
    assert {each.name for each in folder.iterdir()} == set(FILES)

    file = write_gguf(tmp_path / "tiny.gguf", "llama")
    folder = Path(pulled(FilesOrigin.look(file), tmp_path)["folder"])
    assert (folder / "openvino_model.xml").is_file()
    assert (folder / "config.json").is_file()
    assert file.is_file()

    archive = write_zip(tmp_path / "new.zip", checkpoint_files())
    assert pulled(FilesOrigin.look(archive), tmp_path)["precision"] == "int8"

    archive = write_zip(tmp_path / "bad.zip", {"config.json": b"{}", "model.pt": b"x"})
    with pytest.raises(JobFailed, match="pickle format"):
        pulled(FilesOrigin.look(archive), tmp_path)

    bomb = b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1 << 40)
    archive = write_zip(tmp_path / "bomb.zip", {"m.gguf": bomb})
    with pytest.raises(JobFailed, match=r"m\.gguf is no GGUF file, or is damaged"):
        pulled(FilesOrigin.look(archive), tmp_path)

    with pytest.raises(JobFailed, match="parameters of the pull are wrong"):
        pulled({"kind": "hub"}, tmp_path)


def test_an_archive_is_fetched_unpacked_and_found_after_its_beginning_was_removed(
    url: str, hub: FakeHub, tmp_path: Path
) -> None:
    origin = ArchiveOrigin.look(url, digest(tmp_path))
    hub.fault("m.tar.gz", Fault(status=404))
    with pytest.raises(JobFailed):
        pulled(origin, tmp_path)
    assert list((tmp_path / "models/.partial").iterdir())

    discard(job(origin, tmp_path))
    assert not list((tmp_path / "models/.partial").iterdir())

    hub.fault("m.tar.gz", Fault(), Fault(cut_after=1_000_000))
    origin = ArchiveOrigin.look(url, digest(tmp_path))
    result = pulled(origin, tmp_path)
    assert Path(result["folder"]).name == "tiny"
    assert {each.name for each in Path(result["folder"]).iterdir()} == set(FILES)
    assert hub.fetches("m.tar.gz")[-1].first_byte == 1_000_000
    assert result["source"]["url"] == url
