"""The tester of the API, the console and the command is no way to what no rule allows.

All of them call `tester.test`, which fetches as a request does, but not through the endpoints.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.media.path_attacks import PATH_ATTACKS, build
from tests.outbound.attacks import ATTACKS, FORBIDDEN_IPV4, FORBIDDEN_IPV6, NAMES
from tests.outbound.recording import RecordedNetwork
from vinery_serving.media.fetching import MediaFetcher
from vinery_serving.media.rules import FolderRule, Level, MediaPolicy, UrlRule
from vinery_serving.media.tables import tester
from vinery_serving.media.tables.policies import MediaPolicies

WEB = ("http", "https")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Connections to its port, on any address of this machine, wait to be accepted."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> RecordedNetwork:
    network = RecordedNetwork()
    monkeypatch.setattr(tester, "MediaFetcher", lambda: MediaFetcher(network.client()))
    return network


def allow(monkeypatch: pytest.MonkeyPatch, level: Level) -> None:
    """The most lenient rules; a rule in a table would be refused for hosts that are no names."""
    monkeypatch.setattr(MediaPolicies, "refresh", lambda _: None)
    monkeypatch.setattr(tester, "choose", lambda _: None)  # no vision model is loaded
    monkeypatch.setattr(MediaPolicies, "policy_of", lambda *_: MediaPolicy((level,)))


def test_no_attack_reaches_an_address_which_the_socket_would_notice(
    monkeypatch: pytest.MonkeyPatch, network: RecordedNetwork, listening: socket.socket
) -> None:
    port = listening.getsockname()[1]
    hosts = (*map(str, FORBIDDEN_IPV4), *FORBIDDEN_IPV6, *NAMES, "localhost")
    rules = tuple(UrlRule(1, host, WEB, (port, 80, 443)) for host in hosts)
    allow(monkeypatch, Level("platform", urls=rules, folders=()))

    attacks = (*ATTACKS, *(f"http://{name}:{{port}}/" for name in NAMES))
    verdicts = [tester.test(each.replace("{port}", str(port)), None, None) for each in attacks]

    assert len(verdicts) >= 300
    assert not any(verdict.is_allowed for verdict in verdicts)
    assert network.connected == []
    with pytest.raises(BlockingIOError):
        listening.accept()

    rule = UrlRule(1, "127.0.0.1", WEB, (port,), networks=("127.0.0.0/8",))
    allow(monkeypatch, Level("platform", urls=(rule,), folders=()))
    listening.settimeout(60)
    accepting = Thread(target=lambda: listening.accept()[0].close())
    accepting.start()

    assert not tester.test(f"http://127.0.0.1:{port}/", None, None).is_allowed
    assert network.connected == ["127.0.0.1"]
    accepting.join()


def test_no_path_of_an_attack_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, outside = tmp_path.resolve() / "allowed", tmp_path.resolve() / "outside"
    build(folder, outside)
    allow(monkeypatch, Level("platform", urls=(), folders=(FolderRule(1, str(folder)),)))

    allowed = f"{folder}/a.png"
    paths = [
        each.replace("{folder}", str(folder)).replace("{outside}", str(outside))
        for each in PATH_ATTACKS
    ]
    # White space around a text that was pasted does not count.
    attacks = [path for path in paths if path.strip() != allowed]
    verdicts = {path: tester.test(path, None, None) for path in attacks}
    assert len(verdicts) >= 100
    names = {path: [step.name for step in verdict.steps] for path, verdict in verdicts.items()}
    assert [path for path, steps in names.items() if "bytes" in steps] == []
    steps = tester.test(allowed, None, None).steps
    assert "bytes" in [step.name for step in steps]
