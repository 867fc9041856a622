"""Media are fetched under the policy of their caller, with real servers on this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.clock import FakeClock
from tests.outbound.recording import RecordedNetwork
from tests.outbound.servers import Server, answer, certificate, redirect, serving
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, LimitReached, Overloaded
from vinery_serving.core.media import MediaKind, PathSource, UrlSource
from vinery_serving.media import fetching
from vinery_serving.media.denials import Denial, DenialReason, MediaDenied, MediaNotFetched
from vinery_serving.media.fetching import Fetched, FetchLimits, MediaFetcher, Wanted
from vinery_serving.media.policy import FolderRule, Level, MediaPolicy, UrlRule
from vinery_serving.media.steps import Step, StepKind

HERE = ("127.0.0.0/8", "::1/128")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.fixture
def network() -> RecordedNetwork:
    names = {f"{each}.example": [["127.0.0.1"]] for each in "abc"}
    return RecordedNetwork(names=names | {"private.example": [["10.0.0.1"]]})


@pytest.fixture
def fetcher(network: RecordedNetwork) -> MediaFetcher:
    return MediaFetcher(network.client())


def rule(server: Server, host: str = "a.example", **values: Any) -> UrlRule:
    """A rule that allows a host of this machine, which is not public, over http."""
    usual = {"schemes": frozenset({"http"}), "ports": frozenset({server.port}), "networks": HERE}
    return UrlRule(id=7, host=host, **usual | values)


def policy_of(*rules: UrlRule) -> MediaPolicy:
    return MediaPolicy((Level("platform", urls=rules, folders=()),))


def wanted(url: str, index: int = 0) -> Wanted:
    return Wanted(index, UrlSource(url), MediaKind.IMAGE, f"messages[{index}].content[1]")


async def fetch(
    fetcher: MediaFetcher, url: str, policy: MediaPolicy, project: int = 1, key: int = 1
) -> Fetched:
    [fetched] = await fetcher.fetch_all([wanted(url)], policy, key=key, project=project)
    return fetched


async def denied(fetcher: MediaFetcher, url: str, policy: MediaPolicy) -> Denial:
    with pytest.raises(MediaDenied) as caught:
        await fetch(fetcher, url, policy)
    assert caught.value.param == "messages[0].content[1]"
    assert caught.value.status == 400
    return caught.value.denial


async def failed(fetcher: MediaFetcher, url: str, policy: MediaPolicy) -> str:
    with pytest.raises(MediaNotFetched) as caught:
        await fetch(fetcher, url, policy)
    assert caught.value.param == "messages[0].content[1]"
    return caught.value.message


# -- Rules


async def test_an_allowed_file_is_fetched(fetcher: MediaFetcher, server: Server) -> None:
    policy = policy_of(rule(server, max_pixels=99))
    fetched = await fetch(fetcher, f"http://a.example:{server.port}/cat.png", policy)
    assert fetched == Fetched(0, b"picture", "image/png", max_pixels=99)


async def test_nothing_is_allowed_without_a_rule(
    fetcher: MediaFetcher, server: Server, network: RecordedNetwork
) -> None:
    url = f"http://a.example:{server.port}/secret?token=1"
    for policy in (MediaPolicy(), MediaPolicy(()), MediaPolicy((Level("platform"),))):
        denial = await denied(fetcher, url, policy)
        assert denial == Denial(
            DenialReason.NO_RULE, "platform", scheme="http", host="a.example", port=server.port
        )
    assert network.resolved == network.connected == []


@table(
    "host, url",
    [
        ("a.example", "http://b.example:{port}/"),
        ("a.example", "https://a.example:{port}/"),
        ("a.example", "http://a.example/"),
        ("a.example", "http://x.a.example:{port}/"),
        ("*.example", "http://example:{port}/"),
        ("*.a.example", "http://a.example:{port}/"),
        ("*.a.example", "http://evila.example:{port}/"),
        ("*.a.example", "http://a.example.evil:{port}/"),
    ],
)
async def test_a_rule_allows_its_host_scheme_and_port_alone(
    fetcher: MediaFetcher, server: Server, host: str, url: str
) -> None:
    denial = await denied(fetcher, url.format(port=server.port), policy_of(rule(server, host)))
    assert denial.reason is DenialReason.NO_RULE
    assert server.num_connections == 0


@pytest.mark.parametrize("host", ["A.EXAMPLE", "a.example."])
async def test_a_host_is_compared_in_its_one_form(
    fetcher: MediaFetcher, server: Server, host: str
) -> None:
    policy = policy_of(rule(server))
    assert (await fetch(fetcher, f"http://{host}:{server.port}/", policy)).data == b"picture"


async def test_every_level_must_allow_and_the_strictest_value_counts(
    fetcher: MediaFetcher, server: Server
) -> None:
    url = f"http://a.example:{server.port}/"
    wide = Level("platform", urls=(rule(server, "*.example", max_pixels=50),), folders=())
    narrow = Level("project", "pictures", urls=(replace(rule(server, max_pixels=40), id=8),))
    silent = Level("organization")
    fetched = await fetch(fetcher, url, MediaPolicy((wide, silent, narrow)))
    assert fetched.max_pixels == 40

    other = Level("organization", "acme", urls=(rule(server, "b.example"),))
    denial = await denied(fetcher, url, MediaPolicy((wide, other, narrow)))
    assert (denial.reason, denial.level) == (DenialReason.NO_RULE, "organization")

    small = replace(narrow, urls=(replace(rule(server, max_bytes=3), id=9),))
    denial = await denied(fetcher, url, MediaPolicy((wide, small)))
    assert denial.reason is DenialReason.MAX_BYTES
    assert (denial.level, denial.rule_id, denial.detail) == ("project", 9, "3")


async def test_all_rules_are_checked_before_anything_is_fetched(
    fetcher: MediaFetcher, server: Server, network: RecordedNetwork
) -> None:
    urls = (f"http://a.example:{server.port}/", "http://b.example/")
    with pytest.raises(MediaDenied) as caught:
        await fetcher.fetch_all(
            [wanted(url, index) for index, url in enumerate(urls)],
            policy_of(rule(server)),
            key=1,
            project=1,
        )
    assert caught.value.param == "messages[1].content[1]"
    assert network.resolved == []


async def test_an_address_that_is_not_public_needs_the_permission_of_every_level(
    fetcher: MediaFetcher, server: Server, network: RecordedNetwork
) -> None:
    url = f"http://a.example:{server.port}/"
    allowing = Level("platform", urls=(rule(server),), folders=())
    silent = Level("project", urls=(replace(rule(server, networks=()), id=8),))
    denial = await denied(fetcher, url, MediaPolicy((allowing, silent)))
    assert denial.reason is DenialReason.ADDRESS
    assert (denial.level, denial.rule_id, denial.detail) == ("project", 8, "127.0.0.1")
    denial = await denied(
        fetcher,
        "http://private.example/",
        policy_of(UrlRule(1, "private.example", frozenset({"http"}), networks=HERE)),
    )
    assert denial.detail == "10.0.0.1"
    assert network.connected == []


async def test_a_message_names_the_rules_and_the_host_but_not_the_path(
    fetcher: MediaFetcher,
) -> None:
    with pytest.raises(MediaDenied) as caught:
        await fetch(fetcher, "https://a.example/secret?token=1", MediaPolicy())
    assert "The media rules of the platform do not allow https://a.example" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "token" not in repr(caught.value.denial)


@table(
    "url", ["a.example/x.png", "ftp://a.example/", "http://me:word@a.example/", "http://0x7f.1/"]
)
async def test_a_text_that_is_no_url_is_refused_by_its_field(
    fetcher: MediaFetcher, url: str
) -> None:
    assert await failed(fetcher, url, MediaPolicy())


# -- Redirects


async def test_a_redirect_is_followed_where_a_rule_allows_its_target(
    fetcher: MediaFetcher, server: Server
) -> None:
    server.answers["/1"] = redirect(f"http://b.example:{server.port}/2", "308 Permanent Redirect")
    server.answers["/2"] = redirect("3?x")
    rules = rule(server, max_pixels=50), rule(server, "b.example", max_pixels=40)
    fetched = await fetch(fetcher, f"http://a.example:{server.port}/1", policy_of(*rules))
    assert (fetched.data, fetched.max_pixels) == (b"picture", 40)
    assert [path for path, _ in server.requests] == ["/1", "/2", "/3?x"]
    assert all(
        "referer" not in headers and "cookie" not in headers for _, headers in server.requests
    )


async def test_each_redirect_needs_a_rule_of_its_own(
    fetcher: MediaFetcher, server: Server, network: RecordedNetwork
) -> None:
    server.answer = redirect(f"http://b.example:{server.port}/")
    denial = await denied(fetcher, f"http://a.example:{server.port}/", policy_of(rule(server)))
    assert (denial.reason, denial.host) == (DenialReason.NO_RULE, "b.example")
    assert network.resolved == ["a.example"]
    assert len(server.requests) == 1


@pytest.mark.parametrize("max_redirects", [0, 2])
async def test_the_number_of_redirects_is_limited(
    fetcher: MediaFetcher, server: Server, max_redirects: int
) -> None:
    server.answer = redirect("/again")
    policy = policy_of(rule(server, max_redirects=max_redirects))
    denial = await denied(fetcher, f"http://a.example:{server.port}/", policy)
    assert denial.reason is DenialReason.MAX_REDIRECTS
    assert denial.detail == str(max_redirects)
    assert len(server.requests) == max_redirects + 1


@pytest.mark.parametrize("location", ["file:///etc/passwd", "//me@b.example/", "\x80", "http://1"])
async def test_a_redirect_to_what_is_no_url_is_refused(
    fetcher: MediaFetcher, server: Server, location: str
) -> None:
    server.answer = redirect(location.encode("latin-1"))
    policy = policy_of(rule(server), rule(server, "*.example"))
    assert await failed(fetcher, f"http://a.example:{server.port}/", policy)
    assert len(server.requests) == 1


async def test_a_redirect_without_a_target_ends_at_the_limit_of_redirects(
    fetcher: MediaFetcher, server: Server
) -> None:
    server.answer = answer(b"", status="302 Found")
    denial = await denied(fetcher, f"http://a.example:{server.port}/", policy_of(rule(server)))
    assert denial.reason is DenialReason.MAX_REDIRECTS


# -- Responses


@table(
    "status",
    ["204 No Content", "206 Partial Content", "304 Not Modified", "404 Not Found", "503 x"],
)
async def test_only_the_status_200_has_a_file(
    fetcher: MediaFetcher, server: Server, status: str
) -> None:
    server.answer = answer(b"", status=status)
    message = await failed(fetcher, f"http://a.example:{server.port}/", policy_of(rule(server)))
    assert f"answered {status[:3]}" in message


@table(
    "allowed, declared, is_allowed",
    [
        ((), "image/png", True),
        ((), "IMAGE/PNG; charset=utf-8", True),
        ((), "video/mp4", True),
        ((), "application/pdf", True),
        ((), "application/octet-stream", True),
        ((), None, True),
        ((), "text/html", False),
        ((), "image/<script>", False),
        ((), "application/json", False),
        (("image/*",), "image/webp", True),
        (("image/*",), "video/mp4", False),
        (("image/png",), "image/png", True),
        (("image/png",), "image/pngx", False),
        (("image/png",), None, False),
        (("image/png",), "application/octet-stream", False),
    ],
)
async def test_the_declared_type_must_be_allowed(
    network: RecordedNetwork,
    server: Server,
    allowed: tuple[str, ...],
    declared: str | None,
    *,
    is_allowed: bool,
) -> None:
    fetcher = MediaFetcher(network.client())  # which has kept nothing
    server.answer = answer(headers=() if declared is None else (f"content-type: {declared}",))
    url, policy = f"http://a.example:{server.port}/", policy_of(rule(server, content_types=allowed))
    if is_allowed:
        assert (await fetch(fetcher, url, policy)).data == b"picture"
    else:
        denial = await denied(fetcher, url, policy)
        assert denial.reason is DenialReason.CONTENT_TYPE
        assert denial.detail == ("invalid" if declared == "image/<script>" else declared or "")


async def test_a_file_with_more_bytes_than_a_rule_allows_is_refused(
    fetcher: MediaFetcher, server: Server
) -> None:
    server.answer = answer(b"x" * 11)
    url = f"http://a.example:{server.port}/"
    denial = await denied(fetcher, url, policy_of(rule(server, max_bytes=10)))
    assert (denial.reason, denial.detail) == (DenialReason.MAX_BYTES, "10")
    assert len((await fetch(fetcher, url, policy_of(rule(server, max_bytes=11)))).data) == 11


async def test_a_compressed_file_is_refused(fetcher: MediaFetcher, server: Server) -> None:
    server.answer = answer(headers=("content-type: image/png", "content-encoding: gzip"))
    message = await failed(fetcher, f"http://a.example:{server.port}/", policy_of(rule(server)))
    assert "compressed" in message


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_a_server_that_drips_is_left_when_the_time_of_its_rule_is_over(
    fetcher: MediaFetcher, server: Server
) -> None:
    server.answer = drip
    policy = policy_of(rule(server, timeout_s=0.2))
    denial = await denied(fetcher, f"http://a.example:{server.port}/", policy)
    assert (denial.reason, denial.detail) == (DenialReason.TIMEOUT, "0.2")


async def test_the_time_of_a_rule_counts_for_all_redirects_together(
    fetcher: MediaFetcher, server: Server
) -> None:
    async def slow_redirect(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(redirect("/again"))

    server.answer = slow_redirect
    policy = policy_of(rule(server, timeout_s=0.3, max_redirects=1000))
    denial = await denied(fetcher, f"http://a.example:{server.port}/", policy)
    assert denial.reason is DenialReason.TIMEOUT


async def test_tls_is_checked(tmp_path: Path, network: RecordedNetwork) -> None:
    server_tls, client_tls = certificate(tmp_path, "a.example")
    fetcher = MediaFetcher(network.client(client_tls))
    async with serving(tls=server_tls) as server:
        https = {"schemes": frozenset({"https"})}
        policy = policy_of(rule(server, **https), rule(server, "b.example", **https))
        fetched = await fetch(fetcher, f"https://a.example:{server.port}/", policy)
        assert fetched.data == b"picture"
        message = await failed(fetcher, f"https://b.example:{server.port}/", policy)
        assert "SSLCertVerificationError" in message


# -- Many fetches


async def test_the_same_url_in_one_request_is_fetched_once(
    fetcher: MediaFetcher, server: Server
) -> None:
    server.answer = answer(headers=("content-type: image/png", "cache-control: no-store"))
    one, other = (f"http://a.example:{server.port}/{each}" for each in "12")
    asked = [wanted(url, index) for index, url in enumerate((one, other, one, one))]
    fetched = await fetcher.fetch_all(asked, policy_of(rule(server)), key=1, project=1)
    assert [each.index for each in fetched] == [0, 1, 2, 3]
    assert sorted(path for path, _ in server.requests) == ["/1", "/2"]


async def test_a_file_is_kept_for_a_short_time_within_its_project(
    network: RecordedNetwork, server: Server
) -> None:
    clock = FakeClock()
    fetcher = MediaFetcher(network.client(), clock=clock)
    url, policy = f"http://a.example:{server.port}/", policy_of(rule(server))
    for project in (1, 1, 2):
        await fetch(fetcher, url, policy, project)
    assert len(server.requests) == 2
    clock.pass_s(61)
    await fetch(fetcher, url, policy)
    assert len(server.requests) == 3


async def test_a_file_that_the_server_forbids_to_keep_is_fetched_again(
    fetcher: MediaFetcher, server: Server
) -> None:
    server.answer = answer(headers=("content-type: image/png", "cache-control: private, No-Store"))
    for _ in range(2):
        await fetch(fetcher, f"http://a.example:{server.port}/", policy_of(rule(server)))
    assert len(server.requests) == 2


async def test_a_rule_that_changed_finds_nothing_that_was_kept(
    fetcher: MediaFetcher, server: Server
) -> None:
    url = f"http://a.example:{server.port}/"
    await fetch(fetcher, url, policy_of(rule(server)))
    await denied(fetcher, url, MediaPolicy())
    await denied(fetcher, url, policy_of(rule(server, max_bytes=2)))
    await denied(fetcher, url, policy_of(rule(server, networks=())))


async def test_the_files_of_one_request_have_a_limit_in_all(
    network: RecordedNetwork, server: Server
) -> None:
    fetcher = MediaFetcher(network.client(), FetchLimits(max_bytes_of_request=20))
    urls = [f"http://a.example:{server.port}/{each}" for each in range(3)]
    asked = [wanted(url, index) for index, url in enumerate(urls)]
    with pytest.raises(InvalidRequest, match="more than 0 MB in all"):
        await fetcher.fetch_all(asked, policy_of(rule(server)), key=1, project=1)
    assert len(await fetcher.fetch_all(asked[:2], policy_of(rule(server)), key=1, project=1)) == 2


class Gate:
    """Servers that answer when the test lets them."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.num_waiting = 0
        self.most_waiting = 0
        self._arrived = asyncio.Condition()

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        async with self._arrived:
            self.num_waiting += 1
            self._arrived.notify_all()
        self.most_waiting = max(self.most_waiting, self.num_waiting)
        await self.is_open.wait()
        self.num_waiting -= 1
        writer.write(answer())

    async def wait_for(self, num: int) -> None:
        async with asyncio.timeout(30), self._arrived:
            await self._arrived.wait_for(lambda: self.num_waiting >= num)


async def test_a_key_has_a_bounded_number_of_fetches_and_leaves_others_their_turns(
    network: RecordedNetwork, server: Server
) -> None:
    gate = server.answer = Gate()
    limits = FetchLimits(max_running=3, max_running_of_key=2, max_waiting_of_key=4)
    fetcher = MediaFetcher(network.client(), limits)
    policy = policy_of(rule(server))

    def start(name: str, key: int) -> asyncio.Task[Fetched]:
        url = f"http://a.example:{server.port}/{name}"
        return asyncio.create_task(fetch(fetcher, url, policy, key=key))

    tasks = [start(f"one-{each}", key=1) for each in range(6)]
    await gate.wait_for(2)
    with pytest.raises(LimitReached, match="4 files of this key"):
        await start("one-too-many", key=1)
    tasks.append(start("other", key=2))
    await gate.wait_for(3)
    gate.is_open.set()
    assert len(await asyncio.gather(*tasks)) == 7
    assert gate.most_waiting == 3


async def test_the_wait_for_a_turn_has_a_deadline(network: RecordedNetwork, server: Server) -> None:
    gate = server.answer = Gate()
    fetcher = MediaFetcher(network.client(), FetchLimits(max_running=1, wait_s=0.02))
    url, policy = f"http://a.example:{server.port}/", policy_of(rule(server))
    first = asyncio.create_task(fetch(fetcher, f"{url}1", policy))
    await gate.wait_for(1)
    with pytest.raises(Overloaded):
        await fetch(fetcher, f"{url}2", policy, key=2)
    gate.is_open.set()
    await first


async def test_an_error_ends_the_other_fetches_of_its_request(
    network: RecordedNetwork, server: Server
) -> None:
    server.answer, server.answers["/bad"] = Gate(), answer(status="404 Not Found")
    fetcher = MediaFetcher(network.client(), FetchLimits(max_running=3, max_running_of_key=3))
    urls = [f"http://a.example:{server.port}/{each}" for each in ("1", "2", "bad")]
    asked = [wanted(url, index) for index, url in enumerate(urls)]
    with pytest.raises(MediaNotFetched) as caught:
        await fetcher.fetch_all(asked, policy_of(rule(server)), key=1, project=1)
    assert caught.value.param == "messages[2].content[1]"
    server.answer = answer()  # and their turns are free
    assert len(await fetcher.fetch_all(asked[:2], policy_of(rule(server)), key=1, project=1)) == 2


async def test_a_client_that_leaves_ends_its_fetches(
    network: RecordedNetwork, server: Server
) -> None:
    gate = server.answer = Gate()
    fetcher = MediaFetcher(network.client(), FetchLimits(max_running=1))
    url, policy = f"http://a.example:{server.port}/", policy_of(rule(server))
    task = asyncio.create_task(fetch(fetcher, url, policy))
    await gate.wait_for(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.answer = answer()
    assert (await fetch(fetcher, url, policy)).data == b"picture"


# -- Local files


def folders(path: Path, **values: Any) -> MediaPolicy:
    return MediaPolicy((Level("platform", urls=(), folders=(FolderRule(5, str(path), **values),)),))


async def read(
    fetcher: MediaFetcher, source: PathSource | UrlSource, policy: MediaPolicy
) -> Fetched:
    asked = Wanted(0, source, MediaKind.IMAGE, "messages[0].content[1]")
    [fetched] = await fetcher.fetch_all([asked], policy, key=1, project=1)
    return fetched


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "pictures"
    folder.mkdir()
    (folder / "a b.png").write_bytes(b"picture")
    return folder


async def test_a_file_in_an_allowed_folder_is_read_by_path_and_by_url(
    fetcher: MediaFetcher, folder: Path
) -> None:
    policy = folders(folder, max_pixels=9)
    for source in (
        PathSource(f"{folder}/a b.png"),
        PathSource(f"file://{folder}/a%20b.png"),
        UrlSource(f"file://{folder}/a%20b.png"),
    ):
        assert await read(fetcher, source, policy) == Fetched(0, b"picture", None, max_pixels=9)


async def test_a_changed_file_is_read_anew(fetcher: MediaFetcher, folder: Path) -> None:
    source, policy = PathSource(f"{folder}/a b.png"), folders(folder)
    await read(fetcher, source, policy)
    (folder / "a b.png").write_bytes(b"another")
    assert (await read(fetcher, source, policy)).data == b"another"


async def test_a_folder_without_a_rule_is_refused_whether_the_file_exists_or_not(
    fetcher: MediaFetcher, folder: Path
) -> None:
    refusals = []
    for name in ("a b.png", "missing"):
        for policy in (MediaPolicy(), MediaPolicy(()), folders(folder / "below")):
            with pytest.raises(MediaDenied) as caught:
                await read(fetcher, PathSource(f"{folder}/{name}"), policy)
            refusals.append((caught.value.message, caught.value.denial))
    assert len(set(refusals)) == 1
    assert refusals[0][1] == Denial(DenialReason.NO_RULE, "platform", folder=str(folder))


async def test_every_level_must_allow_the_folder(fetcher: MediaFetcher, folder: Path) -> None:
    wide = folders(folder.parent).levels[0]
    narrow = Level("project", folders=(FolderRule(6, str(folder), max_bytes=3),))
    other = Level("organization", folders=(FolderRule(6, "/elsewhere"),))
    source = PathSource(f"{folder}/a b.png")
    with pytest.raises(MediaDenied) as caught:
        await read(fetcher, source, MediaPolicy((wide, narrow)))
    denial = caught.value.denial
    assert (denial.reason, denial.level, denial.rule_id) == (DenialReason.MAX_BYTES, "project", 6)
    with pytest.raises(MediaDenied) as caught:
        await read(fetcher, source, MediaPolicy((wide, other)))
    assert caught.value.denial.level == "organization"


async def test_a_file_that_cannot_be_read_is_reported_by_its_field(
    fetcher: MediaFetcher, folder: Path
) -> None:
    for path, reason in (
        (f"{folder}/missing", "no such file"),
        (f"{folder}/../x", "without"),
        ("a b.png", "absolute"),
    ):
        with pytest.raises(MediaNotFetched, match=reason) as caught:
            await read(fetcher, PathSource(path), folders(folder))
        assert caught.value.param == "messages[0].content[1]"


async def test_a_disk_that_does_not_answer_ends_the_wait_at_the_deadline(
    network: RecordedNetwork, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = threading.Event()
    monkeypatch.setattr(fetching, "read_file", lambda *_: may_answer.wait() and b"")
    fetcher = MediaFetcher(network.client(), FetchLimits(file_s=0.02))
    try:
        with pytest.raises(MediaNotFetched, match="in time"):
            await read(fetcher, PathSource(f"{folder}/a b.png"), folders(folder))
    finally:
        may_answer.set()


# -- The tester


async def test_the_tester_sees_each_step_of_a_fetch(fetcher: MediaFetcher, server: Server) -> None:
    server.answers["/1"] = redirect(f"http://b.example:{server.port}/2")
    policy = policy_of(rule(server), rule(server, "*.example"))
    source = UrlSource(f"http://a.example:{server.port}/1")
    result = await fetcher.examine(source, policy)
    assert result.error is None
    assert result.content is not None
    assert result.content.data == b"picture"
    assert result.steps == (
        Step(StepKind.RULE, f"a.example allows http://a.example:{server.port}", "platform", 7),
        Step(StepKind.ADDRESSES, "a.example has the addresses 127.0.0.1"),
        Step(StepKind.RESPONSE, "status 302, type not declared"),
        Step(StepKind.REDIRECT, f"to http://b.example:{server.port}"),
        Step(StepKind.RULE, f"*.example allows http://b.example:{server.port}", "platform", 7),
        Step(StepKind.ADDRESSES, "b.example has the addresses 127.0.0.1"),
        Step(StepKind.RESPONSE, "status 200, type image/png"),
        Step(StepKind.BYTES, "7 bytes"),
    )


async def test_the_tester_sees_the_steps_up_to_a_refusal(
    fetcher: MediaFetcher, server: Server
) -> None:
    server.answer = answer(headers=("content-type: text/html",))
    result = await fetcher.examine(
        UrlSource(f"http://a.example:{server.port}/"), policy_of(rule(server))
    )
    assert isinstance(result.error, MediaDenied)
    assert [step.kind for step in result.steps] == [
        *(StepKind.RULE, StepKind.ADDRESSES, StepKind.RESPONSE, StepKind.DENIED)
    ]
    assert result.steps[-1].rule_id == 7
    result = await fetcher.examine(UrlSource("no URL"), MediaPolicy())
    assert [step.kind for step in result.steps] == [StepKind.FAILED]


async def test_the_tester_keeps_nothing(fetcher: MediaFetcher, server: Server) -> None:
    source, policy = UrlSource(f"http://a.example:{server.port}/"), policy_of(rule(server))
    await fetcher.examine(source, policy)
    await fetch(fetcher, source.url, policy)
    await fetcher.examine(source, policy)
    assert len(server.requests) == 3


async def test_the_tester_sees_the_rule_of_a_folder(fetcher: MediaFetcher, folder: Path) -> None:
    result = await fetcher.examine(PathSource(f"{folder}/a b.png"), folders(folder))
    assert [step.kind for step in result.steps] == [StepKind.RULE, StepKind.BYTES]
