"""The media of a request are fetched under the rules of its caller, and refusals are listed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.media.path_attacks import PATH_ATTACKS, build
from tests.outbound.attacks import ATTACKS, FORBIDDEN_IPV4, FORBIDDEN_IPV6, NAMES
from tests.outbound.recording import RecordedNetwork, listening_everywhere
from tests.tables import table
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_serving.core.data_urls import is_data_url
from vinery_serving.core.dialects import V1, V3, Dialect
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import (
    InlineSource,
    MediaKind,
    MediaPart,
    MediaSource,
    PathSource,
    UrlSource,
)
from vinery_serving.core.request import Endpoint
from vinery_serving.gateway.endpoints.callers import fetch_media
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.media.fetching import Fetched, MediaFetcher, Wanted
from vinery_serving.media.rules import (
    DenialReason,
    FolderRule,
    Level,
    MediaDenied,
    MediaPolicy,
    UrlRule,
)
from vinery_serving.media.tables.denials import DenialQueue
from vinery_serving.media.tables.policies import MediaPolicies, Scope
from vinery_serving.protocols import parse

CALLER = Caller(
    user_id=1, username="ada", key_id=5, key_name="laptop", project_id=3, organization_id=2
)
URL = UrlSource("https://pictures.example/a.png?secret")


class Fetches:
    """Answers every fetch with a file, and keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[Wanted], MediaPolicy, object, object]] = []

    async def fetch_all(
        self, wanted: Sequence[Wanted], policy: MediaPolicy, *, key: object, project: object
    ) -> tuple[Fetched, ...]:
        self.asked.append((wanted, policy, key, project))
        return tuple(Fetched(b"file", "image/png", 1000) for _ in wanted)


def media_of(*sources: MediaSource) -> list[MediaPart]:
    return [
        MediaPart(MediaKind.IMAGE, source, f"messages[0].content[{at}].image_url")
        for at, source in enumerate(sources)
    ]


def new_runtime(fetcher: Any, levels: Mapping[Scope, Level] | None = None) -> Runtime:
    runtime = SimpleNamespace(
        media=fetcher, media_policies=MediaPolicies(levels), media_denials=DenialQueue()
    )
    return cast(Runtime, runtime)


def covers(num_bytes: int) -> None:
    """There is memory for any number."""


async def fetch(
    fetcher: Any, media: Sequence[MediaPart], levels: Mapping[Scope, Level] | None = None
) -> Mapping[int, InlineSource]:
    return await fetch_media(new_runtime(fetcher, levels), CALLER, media, Meter(), covers)


async def test_only_files_that_did_not_come_with_the_request_are_fetched() -> None:
    fetches, meter = Fetches(), Meter()
    covered: list[int] = []
    media = media_of(InlineSource(b"a"), URL, PathSource("/a.png"))

    files = await fetch_media(new_runtime(fetches), CALLER, media, meter, covered.append)

    assert files == {1: InlineSource(b"file", 1000), 2: InlineSource(b"file", 1000)}
    ((wanted, policy, key, project),) = fetches.asked
    assert [each.source for each in wanted] == [URL, PathSource("/a.png")]
    assert wanted[0].param == "messages[0].content[1].image_url"
    assert (policy, key, project) == (MediaPolicies().policy_of(2, 3), 5, 3)
    assert covered == [8]
    assert meter.media.fetch_s > 0

    assert await fetch(Fetches(), media_of(InlineSource(b"a"))) == {}


@table("caller", [CALLER, ANONYMOUS])
async def test_without_a_rule_nothing_is_fetched_and_the_refusal_is_listed(caller: Caller) -> None:
    runtime, media = new_runtime(MediaFetcher()), media_of(InlineSource(b"a"), URL)

    with pytest.raises(MediaDenied) as caught:
        await fetch_media(runtime, caller, media, Meter(), covers)

    assert caught.value.param == "messages[0].content[1].image_url"
    ((organization_id, _, denial),) = runtime.media_denials._waiting
    assert organization_id == (caller.organization_id or 0)
    assert denial.reason is DenialReason.NO_RULE
    assert denial.host == "pictures.example"


@table("most, is_right", [(None, True), (3, True), (2, False)])
async def test_a_rule_limits_the_number_of_media_inline_ones_too(
    most: int | None, is_right: bool
) -> None:
    levels = {(2, 3): Level("project", max_media=most)}
    parts = media_of(InlineSource(b"a"), URL, InlineSource(b"b"))

    if is_right:
        assert len(await fetch(Fetches(), parts, levels)) == 1
        return
    with pytest.raises(InvalidRequest, match="allow 2 pictures") as caught:
        await fetch(Fetches(), parts, levels)
    assert caught.value.param == "messages[0].content[2].image_url"


# -- No field that names a file by URL or path is a way to what no rule allows
#
# Each attack is sent in a field of each API, to the most lenient rules: the rules allow the hosts
# of the attacks, on all used ports, and one folder. Fields: tests/protocols/test_reading_media.py


def requests(url: str) -> Iterator[tuple[Endpoint, Dialect, bytes]]:
    picture = {"type": "image_url", "image_url": {"url": url}}
    file = {"type": "input_file", "file_url": url}
    image = {"type": "image", "source": {"type": "url", "url": url}}
    for endpoint, dialects, field, part in (
        (Endpoint.CHAT, (V1, V3), "messages", picture),
        (Endpoint.RESPONSES, (V1, V3), "input", file),
        (Endpoint.MESSAGES, (V1,), "messages", image),
    ):
        body = {"model": "m", "max_tokens": 1, field: [{"role": "user", "content": [part]}]}
        if endpoint is Endpoint.RESPONSES:
            del body["max_tokens"]
        for dialect in dialects:
            yield endpoint, dialect, json.dumps(body).encode()


async def fetch_body(runtime: Runtime, endpoint: Endpoint, dialect: Dialect, body: bytes) -> None:
    """Read a request and fetch its media, as the web process does."""
    parts = parse(endpoint, body, dialect).request.media
    assert parts
    await fetch_media(runtime, CALLER, parts, Meter(), covers)


async def is_refused(runtime: Runtime, endpoint: Endpoint, dialect: Dialect, body: bytes) -> bool:
    try:
        await fetch_body(runtime, endpoint, dialect, body)
    except InvalidRequest:
        return True
    return False


def runtime_under(level: Level, network: RecordedNetwork) -> Runtime:
    return new_runtime(MediaFetcher(network.client()), {(0, 0): level})


async def test_no_field_of_a_request_reaches_an_address() -> None:
    network = RecordedNetwork()
    hosts = (*map(str, FORBIDDEN_IPV4), *FORBIDDEN_IPV6, *NAMES, "localhost")
    async with listening_everywhere() as server:
        ports = (server.port, 80, 443)
        rules = tuple(UrlRule(1, host, ("http", "https"), ports) for host in hosts)
        runtime = runtime_under(Level("platform", urls=rules, folders=()), network)
        for attack in (*ATTACKS, *(f"http://{name}:{{port}}/" for name in NAMES)):
            for request in requests(attack.replace("{port}", str(server.port))):
                assert await is_refused(runtime, *request), request
        assert network.connected == []
        assert server.num_connections == 0


async def test_an_allowed_url_is_fetched_from_every_field() -> None:
    network = RecordedNetwork(names={"a.example": [["127.0.0.1"]]})
    async with listening_everywhere() as server:
        rule = UrlRule(1, "a.example", ("http",), (server.port,), networks=("127.0.0.0/8",))
        level = Level("platform", urls=(rule,), folders=())
        for number, request in enumerate(requests(f"http://a.example:{server.port}/")):
            await fetch_body(runtime_under(level, network), *request)
            assert server.num_connections == number + 1


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    folder, outside = tmp_path.resolve() / "allowed", tmp_path.resolve() / "outside"
    build(folder, outside)
    return folder, outside


async def test_no_field_of_a_request_reads_a_file(folders: tuple[Path, Path]) -> None:
    folder, outside = folders
    level = Level("platform", urls=(), folders=(FolderRule(1, str(folder)),))
    runtime = runtime_under(level, RecordedNetwork())
    for attack in PATH_ATTACKS:
        if is_data_url(attack):  # the URL contains the file
            continue
        path = attack.replace("{folder}", str(folder)).replace("{outside}", str(outside))
        for request in requests(path):
            assert await is_refused(runtime, *request), request
    for endpoint, dialect, body in requests(f"file://{folder}/a.png"):
        await fetch_body(runtime, endpoint, dialect, body)
