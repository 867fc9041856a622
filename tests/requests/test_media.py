"""The media of a request are fetched under the rules of its caller, and refusals are listed."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.tables import table
from vinery_accounts.keys.table import ANONYMOUS, Caller
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import (
    InlineSource,
    MediaKind,
    MediaPart,
    MediaSource,
    PathSource,
    UrlSource,
)
from vinery_serving.gateway.endpoints.callers import fetch_media
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.media.fetching import Fetched, MediaFetcher, Wanted
from vinery_serving.media.rules import DenialReason, Level, MediaDenied, MediaPolicy
from vinery_serving.media.tables.denials import DenialQueue
from vinery_serving.media.tables.policies import MediaPolicies, Scope

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
