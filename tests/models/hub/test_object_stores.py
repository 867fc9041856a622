"""Archives at s3:// addresses, from a store that speaks S3 by the client that Vinery uses."""

import asyncio
import dataclasses
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.object_store import ObjectStore
from tests.models.hub.archives import FILES, write_tar
from vinery_serving.models.hub import pull, remote
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.origins import ArchiveOrigin
from vinery_serving.models.hub.remote import S3File
from vinery_serving.models.jobs import JobDocument, JobLine
from vinery_serving.node.job_runner import JobEnd, run_job

URL = "s3://models/chat/tiny.tar.gz"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("archive") / "tiny.tar.gz"
    return write_tar(path, FILES, prefix="tiny/").read_bytes()


@pytest.fixture(scope="module")
def running_store(archive: bytes) -> Iterator[ObjectStore]:
    with ObjectStore({"models": {"chat/tiny.tar.gz": archive, "new.bin": b"old"}}) as store:
        yield store


@pytest.fixture
def store(running_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in running_store.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(remote, "_BLOCK_BYTES", 2_000_000)
    monkeypatch.setattr(pull, "_MAX_ATTEMPTS", 2)
    monkeypatch.setattr(pull, "_FIRST_WAIT_S", 0)
    running_store.requests.clear()
    yield running_store
    running_store.cuts, running_store.stalls, running_store.status = [], [], 0


def fetched(origin: ArchiveOrigin, home: Path) -> Path:
    return origin.fetch(home / "models", lambda *_: None)[0]


def test_only_listed_archives_are_pulled(
    store: ObjectStore, archive: bytes, tmp_path: Path
) -> None:
    origin = ArchiveOrigin.look(URL, hashlib.sha256(archive).hexdigest())

    folder = fetched(origin, tmp_path)
    assert (origin.size_bytes, origin.name) == (len(archive), "tiny.tar.gz")
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == FILES

    with pytest.raises(PullFailed, match="its digest differs"):
        fetched(ArchiveOrigin.look(URL, "0" * 64), tmp_path / "other")

    origin = ArchiveOrigin.look(URL)
    listed = msgspec.structs.replace(origin, size_bytes=origin.size_bytes - 1)
    with pytest.raises(PullFailed, match="is longer than listed"):
        fetched(listed, tmp_path / "other")


def test_a_cut_download_goes_on(store: ObjectStore, tmp_path: Path) -> None:
    origin = ArchiveOrigin.look(URL)
    store.cuts = [2_000_000, 1000]

    fetched(origin, tmp_path)
    assert store.first_bytes("tiny.tar.gz")[:3] == ["0", "2000000", "2000000"]


def test_a_store_that_stands_still_or_is_busy_is_left(store: ObjectStore) -> None:
    held = threading.Event()
    store.stalls = [held]
    with (
        pytest.raises(HubUnavailable, match="cannot be reached"),
        S3File(URL).open(0, 0.3) as stream,
    ):
        next(stream.parts)
    held.set()

    store.status = 503
    with pytest.raises(HubUnavailable), S3File(URL).open(0, 5) as stream:
        next(stream.parts)


def test_an_object_that_changes_is_not_mixed_with_the_old_one(store: ObjectStore) -> None:
    old = S3File("s3://models/new.bin", S3File("s3://models/new.bin").look().etag)
    store.put("models", "new.bin", b"new")

    with pytest.raises(PullFailed, match="has changed since its pull began"), old.open(1, 5):
        pass
    with dataclasses.replace(old, etag="").open(1, 5) as stream:
        assert b"".join(stream.parts) == b"ew"


def test_what_is_not_there_is_a_sentence_and_without_the_client_its_package(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("s3://models/none.zip", "s3://nobucket/tiny.tar.gz"):
        with pytest.raises(PullFailed, match=f"{url} cannot be read: .*Check the bucket"):
            ArchiveOrigin.look(url)
    with pytest.raises(PullFailed, match="is a folder of the store"):
        ArchiveOrigin.look("s3://models/chat")
    with pytest.raises(PullFailed, match=r"Leave \? and # out of an s3:// URL"):
        ArchiveOrigin.look(f"{URL}?versionId=3")

    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(PullFailed, match=r"pip install 'vinery-platform\[s3\]'"):
        ArchiveOrigin.look(URL)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another-secret"}, "cannot be read: .*AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "Unable to locate credentials"),
        ({"AWS_ENDPOINT_URL": "store:9000"}, "cannot be read: Invalid endpoint: store:9000"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "Check the network, AWS_ENDPOINT_URL"),
        ({"AWS_PROFILE": "none"}, r"cannot be read: The config profile \(none\) could not"),
    ],
)
def test_wrong_variables_are_named_and_no_secret(
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
    sentence: str,
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(PullFailed, match=sentence) as error:
        ArchiveOrigin.look(URL)

    assert "secret" not in str(error.value)
    assert store.secret not in str(error.value)


def pulled(home: Path, take: Callable[[JobLine], None]) -> tuple[JobDocument, JobEnd]:
    job: dict[str, Any] = {"kind": "pull", "job_id": 1, "node_pid": os.getpid(), "model": "m"}
    parameters = msgspec.to_builtins(ArchiveOrigin.look(URL))
    document = JobDocument(**job, home=home, parameters=parameters)
    return document, asyncio.run(run_job(document, home / "job.log", take))


def test_the_job_has_no_secret(store: ObjectStore, tmp_path: Path) -> None:
    progress: list[JobLine] = []

    document, end = pulled(tmp_path, progress.append)
    assert end.result is not None, end
    kept = repr([document.parameters, end.result, end.error, end.text, progress])
    kept += (tmp_path / "job.log").read_text()
    assert "tiny.tar.gz" in kept
    assert store.secret not in kept
    assert store.key_id not in kept


@pytest.mark.parametrize("name", [".aws/credentials", "named"])
def test_the_job_reads_the_files_of_awss_client(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "user" / name
    file.parent.mkdir(parents=True)
    file.write_text(
        f"[models]\naws_access_key_id={store.key_id}\naws_secret_access_key={store.secret}\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("AWS_PROFILE", "models")
    if name == "named":
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)

    _, end = pulled(tmp_path, lambda _: None)
    assert end.result is not None, end
