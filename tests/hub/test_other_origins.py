"""Models from archives and from files of this machine, by the job that pulls them."""

import hashlib
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.hub import FakeHub, Fault
from tests.hub.archives import FILES, write_tar, write_zip
from tests.hub.gguf_files import write_gguf
from tests.hub.models import TINY_CHAT, checkpoint_files
from tests.tables import table
from vinery_serving.hub.errors import PullFailed
from vinery_serving.hub.origins import ArchiveOrigin, FilesOrigin
from vinery_serving.hub.pull_job import discard, run
from vinery_serving.hub.remote import WebFile
from vinery_serving.jobs.progress import JobDocument, JobFailed, Reporter


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


def test_an_archive_is_fetched_unpacked_and_found(url: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.fault("m.tar.gz", Fault(), Fault(cut_after=1_000_000))
    origin = ArchiveOrigin.look(url, digest(tmp_path))

    result = pulled(origin, tmp_path)

    assert Path(result["folder"]).name == "tiny"
    assert {each.name for each in Path(result["folder"]).iterdir()} == set(FILES)
    assert hub.fetches("m.tar.gz")[-1].first_byte == 1_000_000
    assert result["source"]["url"] == url


def test_another_digest_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="its digest differs"):
        pulled(ArchiveOrigin.look(url, "0" * 64), tmp_path)


def test_an_archive_without_tls_needs_a_digest(url: str) -> None:
    with pytest.raises(PullFailed, match="needs its SHA-256"):
        ArchiveOrigin.look(url)


def test_an_archive_that_changes_is_not_mixed_with_the_old_one(
    url: str, hub: FakeHub, tmp_path: Path
) -> None:
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
        ("file:///etc/passwd", "begins with https:// or s3://"),
    ],
)
def test_other_urls_are_refused_without_their_secrets(url: str, sentence: str) -> None:
    with pytest.raises(PullFailed, match=sentence) as error:
        ArchiveOrigin.look(url)
    assert "secret" not in str(error.value)


@table("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]"])
def test_the_metadata_service_of_a_cloud_is_refused(host: str) -> None:
    with pytest.raises(PullFailed, match="metadata service"):
        ArchiveOrigin.look(f"https://{host}/latest/meta-data/m.zip")


def test_a_redirect_to_a_metadata_service_is_refused(
    url: str, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeHub, "storage", "http://169.254.169.254")

    with pytest.raises(PullFailed, match="metadata service"):
        ArchiveOrigin.look(url, "0" * 64)


def test_a_missing_archive_is_a_sentence(hub: FakeHub) -> None:
    hub.add("acme/archive", {"x": b"x"})

    with pytest.raises(PullFailed):
        ArchiveOrigin.look(f"{hub.endpoint}/acme/archive/resolve/main/none.zip", "0" * 64)


def test_a_folder_is_copied(tmp_path: Path) -> None:
    result = pulled(FilesOrigin.look(TINY_CHAT), tmp_path)

    folder = Path(result["folder"])
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == FILES
    assert "precision" not in result


def test_a_local_archive_is_unpacked(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "tiny.zip", FILES)

    folder = Path(pulled(FilesOrigin.look(archive), tmp_path)["folder"])

    assert {each.name for each in folder.iterdir()} == set(FILES)


def test_a_local_gguf_file_becomes_a_folder_and_stays(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", "llama")

    folder = Path(pulled(FilesOrigin.look(file), tmp_path)["folder"])

    assert (folder / "openvino_model.xml").is_file()
    assert (folder / "config.json").is_file()
    assert file.is_file()


def test_a_checkpoint_in_an_archive_is_converted_then(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "new.zip", checkpoint_files())

    assert pulled(FilesOrigin.look(archive), tmp_path)["precision"] == "int8"


def test_what_will_not_load_fails_with_the_reason(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "bad.zip", {"config.json": b"{}", "model.pt": b"x"})

    with pytest.raises(JobFailed, match="pickle format"):
        pulled(FilesOrigin.look(archive), tmp_path)


def test_wrong_parameters_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="parameters of the pull are wrong"):
        pulled({"kind": "hub"}, tmp_path)


def test_what_is_unfinished_is_removed_on_request(url: str, hub: FakeHub, tmp_path: Path) -> None:
    origin = ArchiveOrigin.look(url, digest(tmp_path))
    hub.fault("m.tar.gz", Fault(status=404))
    with pytest.raises(JobFailed):
        pulled(origin, tmp_path)
    assert list((tmp_path / "models/.partial").iterdir())

    discard(job(origin, tmp_path))

    assert not list((tmp_path / "models/.partial").iterdir())
