"""One request to a checked address, with real servers on this machine."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.outbound.attacks import ATTACKS, NAMES
from tests.outbound.recording import RecordedNetwork, listening_everywhere
from tests.outbound.servers import Server, answer, certificate, serving
from tests.tables import table
from vinery_accounts.outbound import addresses
from vinery_accounts.outbound import client as http
from vinery_accounts.outbound.client import DaemonThreads, ThreadsBusy
from vinery_accounts.outbound.urls import UrlRefused, read_url

HERE = addresses.read_networks(["127.0.0.1/32", "::1/128"])
MAX_BYTES = 1000


def check_public(address: str) -> None:
    if not addresses.is_public(address):
        raise addresses.AddressRefused(address)


def check_here(address: str) -> None:
    if not addresses.is_within(address, HERE):
        raise addresses.AddressRefused(address)


async def get(
    client: http.Client, url: str, max_bytes: int = MAX_BYTES, check: object = check_here
) -> tuple[http.Response, bytes]:
    async with asyncio.timeout(30):
        route = await client.route(read_url(url), check)  # type: ignore[arg-type]
        async with client.exchange(route) as response:
            return response, await response.read(max_bytes)


# -- Where connections go


async def test_none_of_hundreds_of_attacks_makes_a_connection() -> None:
    assert len(ATTACKS) >= 300
    network = RecordedNetwork()
    client = network.client()
    async with listening_everywhere() as server:
        for attack in (*ATTACKS, *(f"http://{name}:{{port}}/" for name in NAMES)):
            url = attack.replace("{port}", str(server.port))
            with pytest.raises((UrlRefused, addresses.AddressRefused)):
                await get(client, url, check=check_public)
        assert network.connected == []
        assert server.num_connections == 0


async def test_a_name_is_resolved_once_and_only_its_checked_address_is_used() -> None:
    network = RecordedNetwork(names={"a.example": [["127.0.0.1"], ["127.0.0.2"], ["10.0.0.1"]]})
    async with listening_everywhere() as server:
        await get(network.client(), f"http://a.example:{server.port}/")
        assert server.num_connections == 1, "it would notice those of an attack"
    assert network.resolved == ["a.example"]
    assert network.connected == ["127.0.0.1"]
    network = RecordedNetwork(names={"a.example": [["127.0.0.1", "10.0.0.1"]]})
    with pytest.raises(addresses.AddressRefused, match=r"10\.0\.0\.1"):
        await get(network.client(), "http://a.example/")
    assert network.connected == []
    network = RecordedNetwork()
    async with serving() as server:
        await get(network.client(), f"http://127.0.0.1:{server.port}/")
    assert network.resolved == []


async def test_names_are_resolved_by_the_system_and_each_address_is_tried() -> None:
    assert set(await http.resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
    with pytest.raises(http.NotReached, match=r"no host unknown\.invalid"):
        await http.resolve("unknown.invalid", 80)
    with pytest.raises(http.NotReached, match="no host"):
        await get(RecordedNetwork(names={"a.example": [[]]}).client(), "http://a.example/")
    network = RecordedNetwork(names={"a.example": [["::1", "127.0.0.1"]]})
    async with serving() as server:
        _, body = await get(network.client(), f"http://a.example:{server.port}/")
    assert body == b"picture"
    assert network.connected == ["::1", "127.0.0.1"]
    async with serving() as server:
        port = server.port
    with pytest.raises(http.NotReached, match="ConnectionRefusedError"):
        await get(http.Client(), f"http://127.0.0.1:{port}/")


# -- What a request has


async def test_a_request_identifies_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    network = RecordedNetwork(names={"a.example": [["127.0.0.1"]]})
    async with serving() as server:
        server.answer = answer(headers=("set-cookie: a=b",))
        for _ in range(2):
            await get(network.client(), f"http://a.example:{server.port}/p?q#f")
    headers = {"host": f"a.example:{server.port}", "user-agent": "Vinery"}
    headers |= {"accept-encoding": "identity", "connection": "close"}
    assert server.requests == [("/p?q", headers)] * 2


async def test_tls_has_the_name_and_its_certificate_is_checked(tmp_path: Path) -> None:
    server_tls, client_tls = certificate(tmp_path, "a.example")
    network = RecordedNetwork(names={each: [["127.0.0.1"]] for each in ("a.example", "b.example")})
    client = network.client(client_tls)
    async with serving(tls=server_tls) as server:
        _, body = await get(client, f"https://a.example:{server.port}/")
        assert body == b"picture"
        assert server.server_names == ["a.example"]
        assert server.requests[0][1]["host"] == f"a.example:{server.port}"
        for host in ("b.example", "127.0.0.1"):
            with pytest.raises(http.NotReached, match="SSLCertVerificationError"):
                await get(client, f"https://{host}:{server.port}/")
        assert len(server.requests) == 1


# -- Responses


@pytest.fixture
async def server() -> object:
    async with serving() as server:
        yield server


async def fetched(server: Server, sent: object, client: http.Client | None = None) -> bytes:
    server.answer = sent  # type: ignore[assignment]
    _, body = await get(client or http.Client(), f"http://127.0.0.1:{server.port}/")
    return body


async def test_bodies_up_to_their_length_are_read_and_no_redirect_followed(server: Server) -> None:
    server.answer = answer(b"", status="302 Found", headers=("Location: /next", "X-A: 1", "x-a: 2"))
    response, _ = await get(http.Client(), f"http://127.0.0.1:{server.port}/")
    assert response.status == 302
    assert response.headers["location"] == "/next"
    assert response.headers["x-a"] == "1, 2"
    assert len(server.requests) == 1
    until_the_end = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 500
    chunks = b"".join(b"1\r\n%c\r\n" % (48 + each % 10) for each in range(500)) + b"0\r\n\r\n"
    assert await fetched(server, until_the_end) == b"x" * 500
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert await fetched(server, head + chunks) == b"0123456789" * 50
    assert await fetched(server, answer(b"x" * 5000, length=10)) == b"x" * 10
    for num_bytes in (0, 1, MAX_BYTES):
        assert await fetched(server, answer(b"x" * num_bytes)) == b"x" * num_bytes


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"64\r\n" + b"x" * 100 + b"\r\n")
        await writer.drain()


async def test_an_endless_body_and_a_length_above_the_limit_are_refused(server: Server) -> None:
    with pytest.raises(http.TooLarge, match=f"{MAX_BYTES} bytes"):
        await fetched(server, endless)

    async def only_head(writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", length=MAX_BYTES + 1))
        await asyncio.Event().wait()

    with pytest.raises(http.TooLarge):
        await fetched(server, only_head)


@table(
    "sent",
    [
        answer(b"x" * 10, length=11),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1e3\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\nabcd",
        *(b"HTTP/1.1 100 \r\n\r\n" * 5000 + answer(), b"SSH-2.0-server\r\n\r\n", b""),
        *(
            answer(b"\x1f\x8b", headers=(f"content-encoding: {each}",))
            for each in ("gzip", "br", "deflate", "zstd", "identity, gzip", "GZIP")
        ),
    ],
)
async def test_a_wrong_or_compressed_response_is_refused(server: Server, sent: bytes) -> None:
    with pytest.raises(http.BadResponse):
        await fetched(server, sent)


async def test_a_silent_server_is_left_after_the_read_deadline(server: Server) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    with pytest.raises(http.NotReached, match="in time"):
        await fetched(server, silent, http.Client(read_s=0.05))


async def test_a_server_that_drips_is_left_when_the_caller_does(server: Server) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        for letter in b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 10_000:
            writer.write(bytes([letter]))
            await writer.drain()
            await asyncio.sleep(0.01)

    server.answer = drip
    client = http.Client(read_s=5)
    route = await client.route(read_url(f"http://127.0.0.1:{server.port}/"), check_here)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), client.exchange(route) as response:
            await response.read(MAX_BYTES)


async def test_a_handshake_that_does_not_begin_ends_at_the_connect_deadline() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    running = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = running.sockets[0].getsockname()[1]
    try:
        with pytest.raises(http.NotReached, match="in time"):
            await get(http.Client(connect_s=0.05), f"https://127.0.0.1:{port}/")
    finally:
        running.close()


async def test_a_connection_whose_encryption_breaks_is_reported(tmp_path: Path) -> None:
    server_tls, client_tls = certificate(tmp_path, "127.0.0.1")

    async def no_tls(writer: asyncio.StreamWriter) -> None:
        """Send bytes below the encryption."""
        writer.transport._ssl_protocol._transport.write(b"\x17\x03\x03\x00\x10" + b"x" * 16)  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async with serving(tls=server_tls) as server:
        server.answer = no_tls
        with pytest.raises(http.NotReached, match="SSLError"):
            await get(RecordedNetwork().client(client_tls), f"https://127.0.0.1:{server.port}/")


# -- Name servers that do not answer


async def test_waits_for_names_and_threads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    may_answer = threading.Event()
    monkeypatch.setattr(http.socket, "getaddrinfo", lambda *_, **__: may_answer.wait() and [])
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await http.Client().route(read_url("http://a.example/"), check_here)
    finally:
        may_answer.set()

    may_end, threads = threading.Event(), DaemonThreads(2)
    calls = [asyncio.ensure_future(threads.call(may_end.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ThreadsBusy):
        await threads.call(may_end.wait)
    may_end.set()
    assert await asyncio.gather(*calls) == [True, True]
    assert await threads.call(lambda: 1) == 1

    def fail() -> None:
        raise OSError("no such name")

    with pytest.raises(OSError, match="no such name"):
        await DaemonThreads(1).call(fail)


async def test_an_owner_of_names_that_nobody_answers_leaves_look_ups_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_answer, asked = threading.Event(), list[bytes]()

    def look_up(host: bytes, *_: object, **__: object) -> list[tuple[str, tuple[str]]]:
        asked.append(host)
        if host.startswith(b"slow"):
            may_answer.wait()
        return [("", ("192.0.2.1",))]

    monkeypatch.setattr(http.socket, "getaddrinfo", look_up)
    monkeypatch.setattr(http, "_lookups", DaemonThreads(8, max_each=3))
    monkeypatch.setattr(http, "_MAX_TRIES", 2)
    try:
        with http.lookups_of("eve"):
            slow = [asyncio.ensure_future(http.resolve(f"slow{at}", 80)) for at in range(6)]
            done, waiting = await asyncio.wait(slow, timeout=30, return_when="FIRST_EXCEPTION")
            while len(done) < 3:
                more, waiting = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
                done |= more
            with pytest.raises(http.NotReached, match="Too many names"):
                await http.resolve("quick", 80)
        with http.lookups_of("anna"):
            assert await http.resolve("quick", 80) == ("192.0.2.1",)
        assert len(asked) == 3 + 1
    finally:
        may_answer.set()
    await asyncio.gather(*waiting)
    with http.lookups_of("eve"):
        assert await http.resolve("quick", 80) == ("192.0.2.1",)
    assert all(isinstance(each.exception(), http.NotReached) for each in done)
