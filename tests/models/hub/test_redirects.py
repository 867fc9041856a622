"""No URL and no redirect of a pull reaches an address that no setting names."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest

from tests.outbound.attacks import ATTACKS, NAMES
from tests.outbound.recording import RecordedNetwork, listening_everywhere
from tests.outbound.servers import answer, certificate, redirect, serving
from vinery_serving.models.hub import web
from vinery_serving.models.hub.client import Hub, search
from vinery_serving.models.hub.errors import PullFailed
from vinery_serving.models.hub.remote import WebFile, remote_of
from vinery_serving.models.hub.repository import Repository, RepositoryFile

START = "127.0.0.7"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> RecordedNetwork:
    """`start.example` is the only server that pulls may reach."""
    network = RecordedNetwork(names={"start.example": [[START]], "both.example": [[START, "::1"]]})
    monkeypatch.setattr(web, "CLIENT", network.client())
    monkeypatch.setenv("VINERY_JOB_NETWORKS", f"{START}/32")
    return network


async def refused(question: Callable[[], object]) -> str:
    with pytest.raises(PullFailed) as caught:
        await asyncio.to_thread(question)
    return str(caught.value)


def read_file(endpoint: str) -> bytes:
    repository = Repository("acme/tiny", "main", "0" * 40, ())
    with Hub(endpoint).open(repository, RepositoryFile("m.bin", 9), 0, 5) as stream:
        return b"".join(stream.parts)


async def test_none_of_hundreds_of_attacks_is_fetched_by_a_redirect(
    network: RecordedNetwork,
) -> None:
    async with listening_everywhere() as server:
        attacks = [
            each.replace("{port}", str(server.port))
            for each in (*ATTACKS, *(f"http://{name}:{{port}}/" for name in NAMES))
        ]
        start = f"http://start.example:{server.port}/m.zip"
        sent = [url for url in attacks if not set(url) & set("\r\n\0") and url.isprintable()]
        for url in sent:
            server.answer = redirect(url.encode())
            await refused(WebFile(start).look)
        assert len(sent) >= 900
        server.answer = redirect(f"http://127.0.0.1:{server.port}/m.bin")
        assert "127.0.0.1 is not public" in await refused(
            lambda: read_file(f"http://start.example:{server.port}")
        )
        assert set(network.connected) == {START}
        hosts = {headers["host"] for _, headers in server.requests}
        assert hosts == {f"start.example:{server.port}"}


async def test_a_hub_may_be_private_and_its_redirects_may_not(
    network: RecordedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINERY_JOB_NETWORKS", "")
    async with serving() as server:
        server.answer = answer(b"weights")
        endpoint = f"http://127.0.0.1:{server.port}"
        assert await asyncio.to_thread(read_file, endpoint) == b"weights"
        server.answer = redirect(f"http://127.0.0.2:{server.port}/")
        assert "VINERY_JOB_NETWORKS" in await refused(lambda: read_file(endpoint))
    assert network.connected == ["127.0.0.1"] * 2


async def test_a_question_to_a_hub_is_redirected_within_the_hub_only(
    network: RecordedNetwork,
) -> None:
    name = "acme/tiny"
    moved = redirect("/api/models/acme/moved")
    async with serving() as other, serving() as server:
        hub = Hub(f"http://127.0.0.1:{server.port}")
        server.answer = redirect(f"http://127.0.0.1:{other.port}/latest/meta-data/")
        assert "Set HF_ENDPOINT" in await refused(lambda: hub.repository(name))
        assert "Set HF_ENDPOINT" in await refused(lambda: search(hub, "tiny"))
        server.answers = {f"/api/models/{name}/revision/main?blobs=true": moved}
        server.answers |= {f"/api/models/{name}?blobs=true": moved}
        server.answer = answer(b'{"id": "acme/moved", "siblings": []}')
        assert "names no commit" in await refused(lambda: hub.repository(name))
        assert other.num_connections == 0
    huggingface_hub.close_session()


async def test_https_never_falls_to_http(
    network: RecordedNetwork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server_tls, client_tls = certificate(tmp_path, "start.example")
    monkeypatch.setattr(web, "CLIENT", network.client(client_tls))
    async with serving(START) as plain, serving(START, tls=server_tls) as server:
        server.answer = redirect(f"http://start.example:{plain.port}/m.zip")
        url = f"https://start.example:{server.port}/m.zip"
        for is_checked in (False, True):
            assert "from https:// to http://" in await refused(
                remote_of(url, is_checked=is_checked).look
            )
        server.answers = {"/m.zip": redirect("/n.zip")}
        server.answer = answer(b"x" * 9)
        assert (await asyncio.to_thread(WebFile(url).look)).size_bytes == 9
        assert plain.num_connections == 0


async def test_behind_a_proxy_addresses_in_urls_are_checked_and_names_are_the_proxys(
    network: RecordedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with serving() as proxy:
        proxy.answer = answer(b"x" * 7)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        found = await asyncio.to_thread(WebFile("http://store.example/m.zip").look)
        assert found.size_bytes == 7
        assert proxy.requests[0][0] == "http://store.example/m.zip"
        await refused(WebFile("http://10.0.0.1/m.zip").look)
        assert len(proxy.requests) == 1
    assert network.connected == []
