"""Fetches the media that requests name by URL or path, under the policy of their callers.

One `MediaFetcher` for each web process. All rules of a request are checked before anything is
fetched, and again for every redirect. Fetches are bounded for each key and in all, the same URL in
one request is fetched once, and a file is kept for a short time within its project.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from vinery_accounts.outbound.client import Client
from vinery_accounts.outbound.threads import DaemonThreads, ThreadsBusy
from vinery_serving.core.errors import InvalidRequest, Overloaded
from vinery_serving.core.media import MediaKind, PathSource, UrlSource
from vinery_serving.core.turns import FairTurns, TurnMessages
from vinery_serving.media.cache import Content, MediaCache
from vinery_serving.media.denials import MediaDenied, MediaNotFetched
from vinery_serving.media.files import (
    FileRefused,
    FileTooLarge,
    is_file_url,
    read_file,
    read_path,
)
from vinery_serving.media.hops import Chain, download, read_media_url
from vinery_serving.media.permits import FilePermit, permit_file, permit_url
from vinery_serving.media.policy import MediaPolicy
from vinery_serving.media.steps import Observe, Step, StepKind, ignore

_MESSAGES: Final = TurnMessages(
    late="Too many files are being fetched; try again shortly.",
    crowded="Too many files wait to be fetched; try again shortly.",
    too_many="{num} files of this key wait to be fetched already. Send fewer requests at the same "
    "time.",
)
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Of one web process, whatever the rules allow."""

    max_running: int = 32
    max_running_of_key: int = 8
    max_waiting_of_key: int = 64
    wait_s: float = 10.0  # for a turn
    max_bytes_of_request: int = 64 * _MIB  # of all files of one request
    file_s: float = 10.0  # to read a local file, which may lie on another machine
    cache_bytes: int = 64 * _MIB
    cache_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file that a request names."""

    index: int
    source: UrlSource | PathSource
    kind: MediaKind
    param: str  # the path of the request's field, for error messages


@dataclass(frozen=True, slots=True)
class Fetched:
    """The file of the `Wanted` with the same index."""

    index: int
    data: bytes
    content_type: str | None  # as the server declared it
    max_pixels: int  # of a picture in it, before it is scaled


@dataclass(frozen=True, slots=True)
class Examination:
    """What fetching a URL or file would do for a caller. Either `content` or `error` is None."""

    steps: tuple[Step, ...]
    content: Content | None
    error: InvalidRequest | None


@dataclass(slots=True)
class _Budget:
    """The bytes that the files of one request may still have."""

    max_bytes: int
    num_bytes: int = 0

    def take(self, content: Content, param: str) -> None:
        self.num_bytes += len(content.data)
        if self.num_bytes > self.max_bytes:
            raise InvalidRequest(
                f"The files that this request names have more than {self.max_bytes // _MIB} MB in "
                "all. Name fewer or smaller ones.",
                param=param,
            )


class MediaFetcher:
    """Belongs to one event loop."""

    def __init__(
        self,
        client: Client | None = None,
        limits: FetchLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client or Client()
        self._limits = limits or FetchLimits()
        self._cache = MediaCache(self._limits.cache_bytes, self._limits.cache_s, clock)
        self._threads = DaemonThreads(self._limits.max_running)
        self._turns = FairTurns(
            self._limits.max_running,
            max_waiting=self._limits.max_waiting_of_key,
            wait_s=self._limits.wait_s,
            refuse=_MESSAGES,
            max_each=self._limits.max_running_of_key,
        )

    async def fetch_all(
        self, wanted: Sequence[Wanted], policy: MediaPolicy, *, key: Hashable, project: Hashable
    ) -> tuple[Fetched, ...]:
        """The files in the order of `wanted`. Raises `InvalidRequest` with the `param` of one that
        cannot be fetched (`MediaDenied` if the rules refuse it), and `LimitReached` or `Overloaded`
        if too many others are being fetched."""
        sources = _first_of_each_source(wanted)
        for each in sources:
            _check(each, policy)
        budget = _Budget(self._limits.max_bytes_of_request)

        async def fetch(each: Wanted) -> Content:
            content = await self._cached(each, policy, key, project)
            budget.take(content, each.param)
            return content

        contents = await _all(fetch, sources)
        return tuple(_fetched(each, contents[each.source]) for each in wanted)

    async def examine(self, source: UrlSource | PathSource, policy: MediaPolicy) -> Examination:
        """Fetch without the cache and without a turn, and report each step. Keeps nothing."""
        steps: list[Step] = []
        try:
            content = await self._fetch(
                Wanted(0, source, MediaKind.IMAGE, ""), policy, steps.append
            )
        except InvalidRequest as error:
            return Examination((*steps, _last_step(error)), None, error)
        return Examination(tuple(steps), content, None)

    async def _cached(
        self, wanted: Wanted, policy: MediaPolicy, key: Hashable, project: Hashable
    ) -> Content:
        entry = (policy, wanted.source)
        kept = self._cache.get(project, entry)
        if kept is not None:
            return kept
        async with self._turns.turn(key):
            content = await self._fetch(wanted, policy, ignore)
        if content.may_be_kept:
            digest = await asyncio.to_thread(_digest, content.data)
            self._cache.put(project, entry, content, digest)
        return content

    async def _fetch(self, wanted: Wanted, policy: MediaPolicy, observe: Observe) -> Content:
        match wanted.source:
            case UrlSource(url) if not is_file_url(url):
                return await download(self._client, url, Chain(policy, wanted.param, observe))
            case source:
                return await self._read_file(_permit_file(source, policy, wanted.param), observe)

    async def _read_file(self, permit: FilePermit, observe: Observe) -> Content:
        for each in permit.granted:
            text = f"{each.rule.folder} allows {permit.path}"
            observe(Step(StepKind.RULE, text, each.level.scope, each.rule.id))
        data = await self._read_in_time(permit)
        observe(Step(StepKind.BYTES, f"{len(data)} bytes"))
        # The file may be changed, and is here already.
        return Content(data, None, permit.max_pixels, may_be_kept=False)

    async def _read_in_time(self, permit: FilePermit) -> bytes:
        try:
            async with asyncio.timeout(self._limits.file_s):
                return await self._threads.call(partial(read_file, permit.path, permit.max_bytes))
        except FileTooLarge:
            raise permit.too_large() from None
        except FileRefused as error:
            raise MediaNotFetched(str(error), param=permit.param) from None
        except TimeoutError:
            message = "The file could not be read in time."
            raise MediaNotFetched(message, param=permit.param) from None
        except ThreadsBusy:
            raise Overloaded(_MESSAGES.late) from None


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _first_of_each_source(wanted: Iterable[Wanted]) -> list[Wanted]:
    first: dict[UrlSource | PathSource, Wanted] = {}
    for each in wanted:
        first.setdefault(each.source, each)
    return list(first.values())


def _check(wanted: Wanted, policy: MediaPolicy) -> None:
    """Raises `InvalidRequest` if the rules do not allow the URL or file."""
    match wanted.source:
        case UrlSource(url) if not is_file_url(url):
            permit_url(policy, read_media_url(url, wanted.param), wanted.param)
        case source:
            _permit_file(source, policy, wanted.param)


def _permit_file(source: UrlSource | PathSource, policy: MediaPolicy, param: str) -> FilePermit:
    try:
        path = read_path(source.url if isinstance(source, UrlSource) else source.path)
    except FileRefused as error:
        raise MediaNotFetched(str(error), param=param) from None
    return permit_file(policy, path, param)


async def _all(
    fetch: Callable[[Wanted], Coroutine[None, None, Content]], sources: Sequence[Wanted]
) -> dict[UrlSource | PathSource, Content]:
    """Fetch side by side. The first error ends the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {each.source: group.create_task(fetch(each)) for each in sources}
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return {source: task.result() for source, task in tasks.items()}


def _fetched(wanted: Wanted, content: Content) -> Fetched:
    return Fetched(wanted.index, content.data, content.content_type, content.max_pixels)


def _last_step(error: InvalidRequest) -> Step:
    if isinstance(error, MediaDenied):
        denial = error.denial
        return Step(StepKind.DENIED, error.message, denial.level, denial.rule_id)
    return Step(StepKind.FAILED, error.message)
