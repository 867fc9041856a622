"""Media are fetched under the policy of their caller, with real servers on this machine."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import until_in_loop
from tests.fakes.clock import FakeClock
from tests.outbound.recording import RecordedNetwork
from tests.outbound.servers import Server, answer, redirect, serving
from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, LimitReached
from vinery_serving.core.media import PathSource, UrlSource
from vinery_serving.media import fetching
from vinery_serving.media.fetching import Fetched, FetchLimits, MediaCache, MediaFetcher, Wanted
from vinery_serving.media.rules import (
    Denial,
    DenialReason,
    FolderRule,
    Level,
    MediaDenied,
    MediaNotFetched,
    MediaPolicy,
    Permit,
    Step,
    UrlRule,
)

HERE = ("127.0.0.0/8", "::1/128")


@pytest.fixture
def network() -> RecordedNetwork:
    names = {f"{each}.example": [["127.0.0.1"]] for each in "abc"}
    return RecordedNetwork(names=names | {"private.example": [["10.0.0.1"]]})


def policy_of(*rules: UrlRule) -> MediaPolicy:
    return MediaPolicy((Level("platform", urls=rules, folders=()),))


def wanted(url: str, index: int = 0) -> Wanted:
    return Wanted(UrlSource(url), f"messages[{index}].content[1]")


@pytest.fixture
def fetcher(network: RecordedNetwork) -> MediaFetcher:
    return MediaFetcher(network.client())


@dataclass
class Web:
    """A server on this machine with several names, and a fetcher."""

    server: Server
    network: RecordedNetwork
    fetcher: MediaFetcher

    def limit(self, **limits: float) -> None:
        self.fetcher = MediaFetcher(self.network.client(), FetchLimits(**limits))  # type: ignore[arg-type]

    def url(self, path: str = "/", host: str = "a.example") -> str:
        return f"http://{host}:{self.server.port}{path}"

    def rule(self, host: str = "a.example", **values: Any) -> UrlRule:
        """A rule that allows a host of this machine, which is not public, over http."""
        ports = (self.server.port,)
        usual = {"schemes": ("http",), "ports": ports, "networks": HERE}
        return UrlRule(id=7, host=host, **usual | values)

    async def fetch(
        self, url: str = "", policy: MediaPolicy | None = None, project: int = 1, key: int = 1
    ) -> Fetched:
        """Fetch a URL, by default the server's, under a policy, by default the server's rule."""
        [fetched] = await self.fetch_all([wanted(url or self.url())], policy, project, key)
        return fetched

    async def fetch_all(
        self,
        asked: Iterable[Wanted],
        policy: MediaPolicy | None = None,
        project: int = 1,
        key: int = 1,
    ) -> Sequence[Fetched]:
        allowing = policy_of(self.rule()) if policy is None else policy
        return await self.fetcher.fetch_all([*asked], allowing, key=key, project=project)

    async def denied(self, url: str = "", policy: MediaPolicy | None = None) -> Denial:
        with pytest.raises(MediaDenied) as caught:
            await self.fetch(url, policy)
        assert caught.value.param == "messages[0].content[1]"
        assert caught.value.status == 400
        return caught.value.denial


@pytest.fixture
async def web(network: RecordedNetwork, fetcher: MediaFetcher) -> AsyncIterator[Web]:
    async with serving() as server:
        yield Web(server, network, fetcher)


# -- Rules


async def test_an_allowed_file_is_fetched_and_its_host_compared_in_its_one_form(web: Web) -> None:
    policy = policy_of(web.rule(max_pixels=99))
    for host in ("a.example", "A.EXAMPLE", "a.example."):
        web.limit()  # a fetcher that has kept nothing
        fetched = await web.fetch(web.url("/cat.png", host), policy)
        assert fetched == Fetched(b"picture", "image/png", max_pixels=99)


async def test_nothing_is_allowed_without_a_rule_and_no_message_names_the_path(web: Web) -> None:
    url = web.url("/secret?token=1")
    for policy in (MediaPolicy(), MediaPolicy(()), MediaPolicy((Level("platform"),))):
        denial = await web.denied(url, policy)
        assert denial == Denial(
            DenialReason.NO_RULE, "platform", scheme="http", host="a.example", port=web.server.port
        )
    assert web.network.resolved == web.network.connected == []
    with pytest.raises(MediaDenied) as caught:
        await web.fetch("https://a.example/secret?token=1", MediaPolicy())
    assert "The media rules of the platform do not allow https://a.example" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "token" not in repr(caught.value.denial)


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
async def test_a_rule_allows_its_host_scheme_and_port_alone(web: Web, host: str, url: str) -> None:
    denial = await web.denied(url.format(port=web.server.port), policy_of(web.rule(host)))
    assert denial.reason is DenialReason.NO_RULE
    assert web.server.num_connections == 0


async def test_every_level_must_allow_and_the_strictest_value_counts(web: Web) -> None:
    url = web.url()
    wide = Level("platform", urls=(web.rule("*.example", max_pixels=50),), folders=())
    narrow = Level("project", "pictures", urls=(replace(web.rule(max_pixels=40), id=8),))
    silent = Level("organization")
    fetched = await web.fetch(url, MediaPolicy((wide, silent, narrow)))
    assert fetched.max_pixels == 40

    other = Level("organization", "acme", urls=(web.rule("b.example"),))
    denial = await web.denied(url, MediaPolicy((wide, other, narrow)))
    assert (denial.reason, denial.level) == (DenialReason.NO_RULE, "organization")

    small = replace(narrow, urls=(replace(web.rule(max_bytes=3), id=9),))
    denial = await web.denied(url, MediaPolicy((wide, small)))
    assert denial.reason is DenialReason.MAX_BYTES
    assert (denial.level, denial.rule_id, denial.detail) == ("project", 9, "3")


async def test_all_rules_are_checked_first_and_the_files_have_a_limit_in_all(web: Web) -> None:
    urls = (web.url(), "http://b.example/")
    with pytest.raises(MediaDenied) as caught:
        await web.fetch_all(wanted(url, index) for index, url in enumerate(urls))
    assert caught.value.param == "messages[1].content[1]"
    assert web.network.resolved == []
    web.limit(max_bytes_of_request=20)
    urls = [web.url(f"/{each}") for each in range(3)]
    asked = [wanted(url, index) for index, url in enumerate(urls)]
    with pytest.raises(InvalidRequest, match="more than 0 MB in all"):
        await web.fetch_all(asked)
    assert len(await web.fetch_all(asked[:2])) == 2


async def test_an_address_that_is_not_public_needs_the_permission_of_every_level(web: Web) -> None:
    url = web.url()
    allowing = Level("platform", urls=(web.rule(),), folders=())
    silent = Level("project", urls=(replace(web.rule(networks=()), id=8),))
    denial = await web.denied(url, MediaPolicy((allowing, silent)))
    assert denial.reason is DenialReason.ADDRESS
    assert (denial.level, denial.rule_id, denial.detail) == ("project", 8, "127.0.0.1")
    rule = UrlRule(1, "private.example", ("http",), networks=HERE)
    denial = await web.denied("http://private.example/", policy_of(rule))
    assert denial.detail == "10.0.0.1"
    assert web.network.connected == []


# -- Redirects


async def test_a_redirect_is_followed_where_a_rule_allows_its_target(web: Web) -> None:
    web.server.answers["/1"] = redirect(web.url("/2", "b.example"), "308 Permanent Redirect")
    web.server.answers["/2"] = redirect("3?x")
    rules = web.rule(max_pixels=50), web.rule("b.example", max_pixels=40)
    fetched = await web.fetch(web.url("/1"), policy_of(*rules))
    assert (fetched.data, fetched.max_pixels) == (b"picture", 40)
    assert [path for path, _ in web.server.requests] == ["/1", "/2", "/3?x"]
    assert all(
        "referer" not in headers and "cookie" not in headers for _, headers in web.server.requests
    )


async def test_each_redirect_needs_a_rule_of_its_own(web: Web) -> None:
    web.server.answer = redirect(web.url("/", "b.example"))
    denial = await web.denied()
    assert (denial.reason, denial.host) == (DenialReason.NO_RULE, "b.example")
    assert web.network.resolved == ["a.example"]
    assert len(web.server.requests) == 1


async def test_the_number_of_redirects_is_limited_also_without_a_target(web: Web) -> None:
    web.server.answer = redirect("/again")
    for max_redirects in (0, 2):
        web.server.requests.clear()
        denial = await web.denied(policy=policy_of(web.rule(max_redirects=max_redirects)))
        assert denial.reason is DenialReason.MAX_REDIRECTS
        assert denial.detail == str(max_redirects)
        assert len(web.server.requests) == max_redirects + 1
    web.server.answer = answer(b"", status="302 Found")
    assert (await web.denied()).reason is DenialReason.MAX_REDIRECTS


# -- Responses


@table(
    "status",
    ["204 No Content", "206 Partial Content", "304 Not Modified", "404 Not Found", "503 x"],
)
async def test_only_the_status_200_has_a_file(web: Web, status: str) -> None:
    web.server.answer = answer(b"", status=status)
    with pytest.raises(MediaNotFetched, match=f"answered {status[:3]}"):
        await web.fetch()


@table(
    "allowed, declared, is_allowed",
    [
        *(((), each, True) for each in ("image/png", "IMAGE/PNG; charset=utf-8", "video/mp4")),
        *(((), each, True) for each in ("application/pdf", "application/octet-stream", None)),
        *(((), each, False) for each in ("text/html", "image/<script>", "application/json")),
        (("image/*",), "image/webp", True),
        (("image/*",), "video/mp4", False),
        (("image/png",), "image/png", True),
        *((("image/png",), each, False) for each in ("image/pngx", "application/octet-stream")),
        (("image/png",), None, False),
    ],
)
async def test_the_declared_type_must_be_allowed(
    web: Web, allowed: tuple[str, ...], declared: str | None, *, is_allowed: bool
) -> None:
    web.limit()  # a fetcher that has kept nothing
    web.server.answer = answer(headers=() if declared is None else (f"content-type: {declared}",))
    policy = policy_of(web.rule(content_types=allowed))
    if is_allowed:
        assert (await web.fetch(policy=policy)).data == b"picture"
    else:
        denial = await web.denied(policy=policy)
        assert denial.reason is DenialReason.CONTENT_TYPE
        assert denial.detail == ("invalid" if declared == "image/<script>" else declared or "")


async def test_a_file_that_is_larger_than_a_rule_allows_is_refused(web: Web) -> None:
    web.server.answer = answer(b"x" * 11)
    denial = await web.denied(policy=policy_of(web.rule(max_bytes=10)))
    assert (denial.reason, denial.detail) == (DenialReason.MAX_BYTES, "10")
    assert len((await web.fetch(policy=policy_of(web.rule(max_bytes=11)))).data) == 11


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_the_time_of_a_rule_ends_drips_and_many_redirects(web: Web) -> None:
    web.server.answer = drip
    denial = await web.denied(policy=policy_of(web.rule(timeout_s=0.2)))
    assert (denial.reason, denial.detail) == (DenialReason.TIMEOUT, "0.2")

    async def slow_redirect(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(redirect("/again"))

    web.server.answer = slow_redirect
    denial = await web.denied(policy=policy_of(web.rule(timeout_s=0.3, max_redirects=1000)))
    assert denial.reason is DenialReason.TIMEOUT


# -- Many fetches


async def test_what_may_not_be_kept_is_fetched_once_for_each_request(web: Web) -> None:
    web.server.answer = answer(headers=("content-type: image/png", "cache-control: no-store"))
    one, other = (web.url(f"/{each}") for each in "12")
    asked = [wanted(url, index) for index, url in enumerate((one, other, one, one))]
    fetched = await web.fetch_all(asked)
    assert [each.data for each in fetched] == [b"picture"] * 4
    assert sorted(path for path, _ in web.server.requests) == ["/1", "/2"]
    web.server.requests.clear()
    web.server.answer = answer(
        headers=("content-type: image/png", "cache-control: private, No-Store")
    )
    for _ in range(2):
        await web.fetch()
    assert len(web.server.requests) == 2


async def test_a_file_is_kept_for_a_short_time_within_its_project_and_its_rule(web: Web) -> None:
    clock = FakeClock()
    web.fetcher = MediaFetcher(web.network.client(), clock=clock)
    for project in (1, 1, 2):
        await web.fetch(project=project)
    assert len(web.server.requests) == 2
    clock.pass_s(61)
    await web.fetch()
    assert len(web.server.requests) == 3
    await web.denied(policy=MediaPolicy())
    await web.denied(policy=policy_of(web.rule(max_bytes=2)))
    await web.denied(policy=policy_of(web.rule(networks=())))


class Gate:
    """Servers that answer when the test lets them."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.num_waiting = 0

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        self.num_waiting += 1
        assert self.num_waiting <= 3
        await self.is_open.wait()
        self.num_waiting -= 1
        writer.write(answer())

    async def wait_for(self, num: int) -> None:
        await until_in_loop(lambda: self.num_waiting >= num)


async def test_a_key_has_a_bounded_number_of_fetches_and_leaves_others_turns(web: Web) -> None:
    gate = web.server.answer = Gate()
    web.limit(max_running=3, max_running_of_key=2, max_waiting_of_key=4)

    def start(name: str, key: int) -> asyncio.Task[Fetched]:
        return asyncio.create_task(web.fetch(web.url(f"/{name}"), key=key))

    tasks = [start(f"one-{each}", key=1) for each in range(6)]
    await gate.wait_for(2)
    with pytest.raises(LimitReached, match="4 files of this key"):
        await start("one-too-many", key=1)
    tasks.append(start("other", key=2))
    await gate.wait_for(3)
    gate.is_open.set()
    assert len(await asyncio.gather(*tasks)) == 7


async def test_an_error_ends_the_other_fetches_of_its_request(web: Web) -> None:
    web.server.answer, web.server.answers["/bad"] = Gate(), answer(status="404 Not Found")
    web.limit(max_running=3, max_running_of_key=3)
    urls = [web.url(f"/{each}") for each in ("1", "2", "bad")]
    asked = [wanted(url, index) for index, url in enumerate(urls)]
    with pytest.raises(MediaNotFetched) as caught:
        await web.fetch_all(asked)
    assert caught.value.param == "messages[2].content[1]"
    web.server.answer = answer()  # and their turns are free
    assert len(await web.fetch_all(asked[:2])) == 2


# -- Local files


def folders(path: Path, **values: Any) -> MediaPolicy:
    return MediaPolicy((Level("platform", urls=(), folders=(FolderRule(5, str(path), **values),)),))


async def read(
    fetcher: MediaFetcher, source: PathSource | UrlSource, policy: MediaPolicy
) -> Fetched:
    asked = Wanted(source, "messages[0].content[1]")
    [fetched] = await fetcher.fetch_all([asked], policy, key=1, project=1)
    return fetched


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "pictures"
    folder.mkdir()
    (folder / "a b.png").write_bytes(b"picture")
    return folder


async def test_a_file_is_read_by_path_or_url_anew(fetcher: MediaFetcher, folder: Path) -> None:
    policy = folders(folder, max_pixels=9)
    for source in (
        PathSource(f"{folder}/a b.png"),
        PathSource(f"file://{folder}/a%20b.png"),
        UrlSource(f"file://{folder}/a%20b.png"),
    ):
        fetched = await read(fetcher, source, policy)
        assert fetched == Fetched(b"picture", None, max_pixels=9, may_be_kept=False)
    source, policy = PathSource(f"{folder}/a b.png"), folders(folder)
    await read(fetcher, source, policy)
    (folder / "a b.png").write_bytes(b"another")
    assert (await read(fetcher, source, policy)).data == b"another"


async def test_a_refusal_does_not_tell_whether_there_is_a_file(
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


async def test_a_file_that_cannot_be_read_in_time_is_reported_by_its_field(
    fetcher: MediaFetcher, folder: Path, network: RecordedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, reason in (
        (f"{folder}/missing", "no such file"),
        (f"{folder}/../x", "without"),
        ("a b.png", "absolute"),
    ):
        with pytest.raises(MediaNotFetched, match=reason) as caught:
            await read(fetcher, PathSource(path), folders(folder))
        assert caught.value.param == "messages[0].content[1]"
    may_answer = threading.Event()
    monkeypatch.setattr(fetching, "read_file", lambda *_: may_answer.wait() and b"")
    fetcher = MediaFetcher(network.client(), FetchLimits(file_s=0.02))
    try:
        with pytest.raises(MediaNotFetched, match="in time"):
            await read(fetcher, PathSource(f"{folder}/a b.png"), folders(folder))
    finally:
        may_answer.set()


# -- The tester


async def test_each_step_of_a_fetch_is_reported_and_nothing_is_kept(web: Web) -> None:
    web.server.answers["/1"] = redirect(web.url("/2", "b.example"))
    policy, steps = policy_of(web.rule(), web.rule("*.example")), list[Step]()
    permit = Permit(policy, "", steps.append)
    content = await web.fetcher.fetch(wanted(web.url("/1")), permit)
    assert content.data == b"picture"
    at = f"example:{web.server.port} (platform, rule 7)"
    assert [(step.name, step.text) for step in steps] == [
        ("rule", f"a.example allows http://a.{at}"),
        ("addresses", "a.example has the addresses 127.0.0.1"),
        ("response", "status 302, type not declared"),
        ("redirect", f"to http://b.example:{web.server.port}"),
        ("rule", f"*.example allows http://b.{at}"),
        ("addresses", "b.example has the addresses 127.0.0.1"),
        ("response", "status 200, type image/png"),
        ("bytes", "7 bytes"),
    ]
    web.server.requests.clear()
    await web.fetch(web.url("/2", "b.example"), policy)
    assert len(web.server.requests) == 1


# -- The cache


def test_the_cache_is_bounded_and_the_oldest_files_leave_first() -> None:
    cache, file = MediaCache(1000, 60), Fetched(b"x" * 300, "image/png", 9)
    for key in ("one", "two", "one", "three", "four"):  # a later file replaces the one before
        cache.put(key, file)
    assert [cache.get(key) for key in ("one", "two", "three", "four")] == [file, None, file, file]
    assert cache.num_bytes == 900
    cache.put("large", replace(file, data=b"x" * 501))
    assert (cache.get("large"), cache.num_bytes) == (None, 900)
    for number in range(2000):
        cache.put(number, replace(file, data=b""))
    assert [number for number in range(2000) if cache.get(number)] == [*range(976, 2000)]
