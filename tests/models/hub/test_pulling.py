"""Files are fetched once, checked, and appear together: whatever goes wrong on the way."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, until
from tests.fakes.hub import FakeHub, Fault
from tests.models.hub.models import TINY_CHAT
from vinery_serving.models.hub import pull as pulling
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.origins import pull
from vinery_serving.models.hub.pull import PullFolders
from vinery_serving.models.hub.repository import wanted_files
from vinery_serving.prompting.folder import ModelFolder

MAX_ATTEMPTS = 2
WEIGHTS = "openvino_model.bin"
WEIGHTS_BYTES = 4_780_421
SMALL = "config.json"

_PROGRAM = """
import sys
from pathlib import Path
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.origins import pull
hub = Hub.of_environment()
pull(hub, hub.repository("acme/tiny"), Path(sys.argv[1]), lambda *_: None)
"""


# Enough of a model to go wrong: each request costs time.
FILES = {
    name: (TINY_CHAT / name).read_bytes()
    for name in (SMALL, "generation_config.json", "openvino_detokenizer.bin", WEIGHTS)
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "_MAX_ATTEMPTS", MAX_ATTEMPTS)
    monkeypatch.setattr(pulling, "_FIRST_WAIT_S", 0)
    monkeypatch.setattr(pulling, "_STALL_S", 60)


@pytest.fixture
def tiny(hub: FakeHub) -> FakeHub:
    hub.add("acme/tiny", FILES)
    return hub


def pulled(hub: FakeHub, models: Path, *patterns: str) -> Path:
    own = Hub(hub.endpoint)
    found = wanted_files(own.repository("acme/tiny"), patterns)
    return pull(own, found, models, lambda *_: None, patterns=patterns)


def is_like_the_model(folder: Path) -> bool:
    return {each.name: each.read_bytes() for each in folder.iterdir()} == FILES


def test_a_repository_becomes_a_folder_and_a_part_another(tiny: FakeHub, tmp_path: Path) -> None:
    folder = pulled(tiny, tmp_path)

    commit = tiny.repositories["acme/tiny"].branches["main"]
    assert folder == tmp_path / "acme--tiny" / commit[:12]
    assert is_like_the_model(folder)
    assert not list((tmp_path / ".partial").iterdir())

    part = pulled(tiny, tmp_path, "*.json")
    assert {each.suffix for each in part.iterdir()} == {".json"}
    assert part != pulled(tiny, tmp_path)

    with pytest.raises(PullFailed, match="No file of acme/tiny matches"):
        pulled(tiny, tmp_path, "*.gguf")


def test_progress_counts_bytes_and_nothing_is_fetched_again(tiny: FakeHub, tmp_path: Path) -> None:
    own, seen = Hub(tiny.endpoint), []
    found = own.repository("acme/tiny")

    pull(own, found, tmp_path, lambda *report: seen.append(report))
    assert seen[0] == ("fetching config.json", 0, found.size_bytes)
    assert seen[-1] == ("fetching openvino_model.bin", found.size_bytes, found.size_bytes)

    pulled(tiny, tmp_path)
    assert len(tiny.fetches(WEIGHTS)) == 2  # the redirect, and the storage


def test_a_cut_or_silent_connection_goes_on_at_the_next_byte(
    tiny: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.fault(WEIGHTS, Fault(cut_after=1_000_000), Fault(cut_after=2_000_000))

    folder = pulled(tiny, tmp_path)

    starts = [each.first_byte for each in tiny.fetches(WEIGHTS) if each.is_storage]
    assert starts == [0, 1_000_000, 3_000_000]
    assert is_like_the_model(folder)

    # A server that knows no ranges sends all again.
    tiny.fault(WEIGHTS, Fault(cut_after=1_000_000), Fault(ignores_range=True))
    assert is_like_the_model(pulled(tiny, tmp_path / "again"))

    tiny.requests.clear()
    tiny.fault(WEIGHTS, Fault(stall_after=1_000_000))
    # On a busy machine, more attempts may have to wait so long.
    monkeypatch.setattr(pulling, "_STALL_S", 0.5)
    monkeypatch.setattr(pulling, "_MAX_ATTEMPTS", 20)
    assert is_like_the_model(pulled(tiny, tmp_path / "silent"))
    assert 1_000_000 in {each.first_byte for each in tiny.fetches(WEIGHTS)}


def test_attempts_are_limited_and_the_time_that_a_hub_asks_for_is_waited(
    tiny: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.fault(WEIGHTS, *[Fault(status=503)] * MAX_ATTEMPTS)
    with pytest.raises(HubUnavailable, match="answers 503"):
        pulled(tiny, tmp_path)
    assert sum(each.is_storage for each in tiny.fetches(WEIGHTS)) == MAX_ATTEMPTS

    tiny.fault(WEIGHTS, *[Fault(cut_after=10)] * 5)
    monkeypatch.setattr(pulling, "_MAX_ATTEMPTS_IN_ALL", 5)
    with pytest.raises(HubUnavailable):
        pulled(tiny, tmp_path)

    waits: list[float] = []
    monkeypatch.setattr("vinery_serving.models.hub.pull.time.sleep", waits.append)
    tiny.fault(WEIGHTS, Fault(status=429, retry_after_s=7), Fault(status=429, retry_after_s=9999))
    monkeypatch.setattr(pulling, "_MAX_ATTEMPTS", 3)
    pulled(tiny, tmp_path)
    assert waits == [7, pulling._MAX_ASKED_WAIT_S]


@pytest.mark.parametrize("file", [WEIGHTS, SMALL])
@pytest.mark.parametrize("wrong", ["shorter", "longer", "other"])
def test_a_wrong_content_is_refetched(tiny: FakeHub, tmp_path: Path, file: str, wrong: str) -> None:
    right = (TINY_CHAT / file).read_bytes()
    body = {"shorter": right[:-9], "longer": right + b"9", "other": right[:-1] + b"9"}[wrong]
    own = Hub(tiny.endpoint)
    found = own.repository("acme/tiny")
    tiny.fault(file, Fault(body=body))

    folder = pull(own, found, tmp_path, lambda *_: None)

    assert is_like_the_model(folder)


@pytest.mark.parametrize("wrong", [b"\0" * WEIGHTS_BYTES, b"short"])
def test_a_content_that_is_wrong_twice_fails(tiny: FakeHub, tmp_path: Path, wrong: bytes) -> None:
    tiny.fault(WEIGHTS, Fault(body=wrong), Fault(body=wrong))

    with pytest.raises(PullFailed, match=r"openvino_model\.bin"):
        pulled(tiny, tmp_path)
    assert not (tmp_path / "acme--tiny").exists()


def test_a_killed_pull_fetches_only_the_missing_bytes(tiny: FakeHub, tmp_path: Path) -> None:
    tiny.fault(WEIGHTS, Fault(stall_after=1_000_000))
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(tmp_path)], cwd=REPOSITORY)
    try:
        until(lambda: _has_begun(tmp_path, 1_000_000), timeout_s=60)
    finally:
        process.kill()
        process.wait()
    num_requests = len(tiny.requests)

    folder = pulled(tiny, tmp_path)

    again = [each.file for each in tiny.requests[num_requests:] if "/api/" not in each.path]
    assert tiny.fetches(WEIGHTS)[-1].first_byte == 1_000_000
    assert "openvino_detokenizer.bin" not in again  # it was complete before
    assert is_like_the_model(folder)


def _has_begun(models: Path, num_bytes: int) -> bool:
    files = models.glob(".partial/*/*/unfinished/*")
    return any(each.stat().st_size >= num_bytes for each in files)


def test_a_new_commit_leaves_the_folder_of_the_old_one_and_can_be_served(
    tiny: FakeHub, tmp_path: Path
) -> None:
    old = pulled(tiny, tmp_path)
    tiny.add("acme/tiny", {**FILES, "README.md": b"new"})

    new = pulled(tiny, tmp_path)
    assert is_like_the_model(old)
    assert (new / "README.md").read_bytes() == b"new"

    tiny.add_folder("acme/tiny", TINY_CHAT)
    assert ModelFolder.read(pulled(tiny, tmp_path)).max_context == 2048


def test_the_token_goes_to_the_hub_only(
    tiny: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.repositories["acme/tiny"].gate = "private"
    monkeypatch.setenv("HF_TOKEN", tiny.token)

    pulled(tiny, tmp_path)

    with_token = {each.is_storage for each in tiny.requests if "authorization" in each.headers}
    assert with_token == {False}
    assert any(each.is_storage for each in tiny.requests)


def test_a_full_disk_another_process_and_a_folder_that_is_none_are_named(
    tiny: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pulling, "free_bytes", lambda _: 1000)
        with pytest.raises(PullFailed, match="missing files take 5 MB"):
            pulled(tiny, tmp_path)
    assert not tiny.fetches(WEIGHTS)

    found = Hub(tiny.endpoint).repository("acme/tiny")
    with (
        PullFolders.of_repository(tmp_path, found).locked(),
        pytest.raises(PullFailed, match="Another process pulls the same files"),
    ):
        pulled(tiny, tmp_path)

    (tmp_path / "models").write_text("a file")
    with pytest.raises(PullFailed, match="cannot be stored in"):
        pulled(tiny, tmp_path / "models")

    tiny.fault(SMALL, Fault(), Fault(status=404, error_code="EntryNotFound"))
    with pytest.raises(PullFailed, match="answers 404"):
        pulled(tiny, tmp_path)


def test_a_damaged_beginning_is_found(tiny: FakeHub, tmp_path: Path) -> None:
    tiny.fault(WEIGHTS, *[Fault(cut_after=1_000_000), Fault(status=500), Fault(status=500)])
    with pytest.raises(HubUnavailable):
        pulled(tiny, tmp_path)
    (beginning,) = tmp_path.glob(".partial/*/*/unfinished/*")
    beginning.write_bytes(b"\0" * 1_000_000)
    assert is_like_the_model(pulled(tiny, tmp_path))
