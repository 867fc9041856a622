"""The real client reads lists of a hub, and every refusal names what to do."""

import pytest

from tests.fakes.hub import FakeHub, Fault
from tests.models.hub.models import TINY_CHAT, openvino_files
from tests.tables import table
from vinery_serving.models.hub.client import Hub
from vinery_serving.models.hub.errors import HubUnavailable, PullFailed
from vinery_serving.models.hub.repository import Repository


def read(hub: FakeHub, name: str = "acme/tiny", revision: str | None = None) -> Repository:
    return Hub(hub.endpoint).repository(name, revision)


def test_files_come_with_sizes_and_digests_and_no_weights_are_fetched(hub: FakeHub) -> None:
    commit = hub.add_folder("acme/tiny-chat", TINY_CHAT, cardData={"license": "apache-2.0"})

    found = read(hub, "acme/tiny-chat")

    weights, config = found.file("openvino_model.bin"), found.file("config.json")
    assert (found.commit, found.revision, found.licence) == (commit, "main", "apache-2.0")
    assert weights and weights.sha256 and weights.size_bytes == 4_780_421
    assert config and config.git_sha1 and config.sha256 is None
    assert found.config["model_type"] == "qwen3"

    assert not hub.fetches("openvino_model.bin")


def test_branches_and_commits_are_revisions_and_missing_ones_are_named(hub: FakeHub) -> None:
    old = hub.add("acme/tiny", openvino_files())
    new = hub.add("acme/tiny", openvino_files(), branch="next")
    assert read(hub, revision="next").commit == new
    assert read(hub, revision=old).commit == old

    with pytest.raises(PullFailed, match="has no repository acme/none that may be read"):
        read(hub, "acme/none")
    with pytest.raises(PullFailed, match="acme/tiny has no revision v9"):
        read(hub, revision="v9")

    hub.repositories["acme/tiny"].listed["openvino_model.bin"] = {"size": None}
    with pytest.raises(PullFailed, match=r"lists no size of openvino_model\.bin"):
        read(hub)


def test_the_endpoint_is_a_url_of_the_environment_without_a_password(hub: FakeHub) -> None:
    assert Hub.of_environment().endpoint == hub.endpoint
    for url in ("ftp://hub", "hub.example", "http://", "https://[::1", "http://-hub.example"):
        with pytest.raises(PullFailed, match="HF_ENDPOINT must be a URL"):
            Hub.of_environment(url)

    with pytest.raises(PullFailed, match="Leave the password out") as error:
        Hub.of_environment("https://user:secret@hub.example")
    assert "secret" not in str(error.value)

    with FakeHub() as gone:
        endpoint = gone.endpoint
    with pytest.raises(HubUnavailable, match="cannot be reached"):
        Hub(endpoint).repository("acme/tiny")


@table(
    "name", ["../etc", "a/b/c", "/abs", "a/..", "acme/x y", "", "acme/a--b", ".hidden/x", "a\\b"]
)
def test_a_name_that_could_not_be_a_folder_is_refused(hub: FakeHub, name: str) -> None:
    with pytest.raises(PullFailed, match="no name of a repository"):
        read(hub, name)
    assert not hub.requests


@pytest.mark.parametrize(
    ("gate", "sentence"),
    [("gated", "is gated. Accept its conditions"), ("private", "a private one needs HF_TOKEN")],
)
def test_what_needs_a_token_is_read_with_one(
    hub: FakeHub, gate: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("acme/tiny", openvino_files())
    hub.repositories["acme/tiny"].gate = gate
    with pytest.raises(PullFailed, match=sentence):
        read(hub)

    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert read(hub).has("openvino_model.xml")


@table(
    "fault, error, sentence",
    [
        (Fault(status=403), PullFailed, "no repository acme/tiny that may be read"),
        (Fault(status=429), HubUnavailable, "limits requests now"),
        (Fault(status=500), HubUnavailable, "answers 500. Try again later"),
        (Fault(status=418), PullFailed, "answers 418"),
    ],
)
def test_other_answers_become_sentences(
    hub: FakeHub, fault: Fault, error: type[PullFailed], sentence: str
) -> None:
    hub.add("acme/tiny", openvino_files())
    hub.fault("api", fault)

    with pytest.raises(error, match=sentence):
        read(hub)


@table(
    "path, content, sentence",
    [
        *((path, b"x", "is not safe") for path in ("../x.bin", "/etc/passwd", "a/../../x", "a//b")),
        *((path, b"x", "is not safe") for path in ("c:\\x", "a\nb", ".", "x/")),
        ("Config.json", b"{}", "upper and lower case"),
        ("config.json", b"[]", r"config\.json of acme/tiny is no JSON object"),
    ],
)
def test_a_wrong_path_is_refused(hub: FakeHub, path: str, content: bytes, sentence: str) -> None:
    hub.add("acme/tiny", {**openvino_files(), path: content})

    with pytest.raises(PullFailed, match=sentence):
        read(hub)
