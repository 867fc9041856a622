"""Fetches the media that requests name by URL or path, under the policy of their callers.

Each web process has a `MediaFetcher`. All rules of a request are checked before anything is
fetched, and again for every redirect: the target is read, allowed by rules, resolved and checked
like the first URL. Fetches are bounded for each key and in all, the same URL in one request is
fetched once, and a file is kept for a short time within its project.
"""

import asyncio
import re
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from vinery_accounts.outbound import client as outbound
from vinery_accounts.outbound.urls import Url, UrlRefused, join, read_url
from vinery_serving.core.errors import InvalidRequest, Overloaded
from vinery_serving.core.media import PathSource, UrlSource
from vinery_serving.core.turns import FairTurns, TurnMessages
from vinery_serving.media.files import FileRefused, FileTooLarge, is_file_url, read_file, read_path
from vinery_serving.media.rules import MediaNotFetched, MediaPolicy, Permit, Step, Target

_MESSAGES: Final = TurnMessages(
    late="Too many files are being fetched; try again shortly.",
    crowded="Too many files wait to be fetched; try again shortly.",
    too_many="{num} files of this key wait to be fetched already. Send fewer requests at the same "
    "time.",
)
_MIB: Final = 2**20
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ACCEPT: Final = {"accept": "image/*, video/*, application/pdf, */*;q=0.1"}


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one web process, whatever the rules allow."""

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
    source: UrlSource | PathSource
    param: str  # the path of the request's field, for error messages


@dataclass(frozen=True, slots=True)
class Fetched:
    data: bytes
    content_type: str | None  # as the server declared, in lower case
    max_pixels: int  # that the rules allow in an unscaled picture
    may_be_kept: bool = True  # False: `no-store`, or a local file


class MediaFetcher:
    """Belongs to one event loop."""

    def __init__(
        self,
        client: outbound.Client | None = None,
        limits: FetchLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client or outbound.Client()
        self._limits = limits or FetchLimits()
        self._cache = MediaCache(self._limits.cache_bytes, self._limits.cache_s, clock)
        self._threads = outbound.DaemonThreads(self._limits.max_running)
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
        """The files in the order of `wanted`. Raises `InvalidRequest` with the `param` of a file
        that cannot be fetched (`MediaDenied` if the rules refuse it), and `LimitReached` or
        `Overloaded` if too many others are being fetched."""
        first: dict[UrlSource | PathSource, Wanted] = {}
        for each in wanted:
            first.setdefault(each.source, each)
        for each in first.values():
            Permit(policy, each.param).enter(_target(each))
        most_bytes, num_bytes = self._limits.max_bytes_of_request, 0

        async def fetch(each: Wanted) -> Fetched:
            nonlocal num_bytes
            content = await self._cached(each, policy, key, project)
            num_bytes += len(content.data)
            if num_bytes > most_bytes:
                raise InvalidRequest(
                    f"The files that this request names have more than {most_bytes // _MIB} MB in "
                    "all. Name fewer or smaller ones.",
                    param=each.param,
                )
            return content

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {each.source: group.create_task(fetch(each)) for each in first.values()}
        except ExceptionGroup as errors:  # the first error has ended the others
            raise errors.exceptions[0] from None
        return tuple(tasks[each.source].result() for each in wanted)

    async def _cached(
        self, wanted: Wanted, policy: MediaPolicy, key: Hashable, project: Hashable
    ) -> Fetched:
        # The whole policy: a rule that changed meanwhile finds nothing.
        entry = (project, policy, wanted.source)
        if (kept := self._cache.get(entry)) is not None:
            return kept
        async with self._turns.turn(key):
            content = await self.fetch(wanted, Permit(policy, wanted.param))
        if content.may_be_kept:
            self._cache.put(entry, content)
        return content

    async def fetch(self, wanted: Wanted, permit: Permit) -> Fetched:
        """Fetch without the cache and without a turn. Raises `InvalidRequest` and `Overloaded`."""
        target = _target(wanted)
        if isinstance(target, Url):
            return await _download(self._client, target, permit)
        permit.enter(target)
        data = await self._read_in_time(target, permit)
        permit.observe(Step("bytes", True, f"{len(data)} bytes"))
        # The file may be changed, and is here already.
        return Fetched(data, None, permit.max_pixels, may_be_kept=False)

    async def _read_in_time(self, path: str, permit: Permit) -> bytes:
        try:
            async with asyncio.timeout(self._limits.file_s):
                return await self._threads.call(partial(read_file, path, permit.max_bytes))
        except FileTooLarge:
            raise permit.too_large() from None
        except FileRefused as error:
            raise MediaNotFetched(str(error), param=permit.param) from None
        except TimeoutError:
            raise MediaNotFetched(
                "The file could not be read in time.", param=permit.param
            ) from None
        except outbound.ThreadsBusy:
            raise Overloaded(_MESSAGES.late) from None


def _target(wanted: Wanted) -> Target:
    """Return the URL or path that a request names. Raises `MediaNotFetched` for another text."""
    source = wanted.source
    text = source.url if isinstance(source, UrlSource) else source.path
    try:
        is_path = isinstance(source, PathSource) or is_file_url(text)
        return read_path(text) if is_path else read_url(text)
    except (FileRefused, UrlRefused) as error:
        raise MediaNotFetched(str(error), param=wanted.param) from None


async def _download(client: outbound.Client, url: Url, permit: Permit) -> Fetched:
    start_s = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(None) as deadline:
            while True:
                permit.enter(url)
                deadline.reschedule(start_s + permit.timeout_s)
                result = await _hop(client, url, permit)
                if isinstance(result, Fetched):
                    return result
                url = result
    except TimeoutError:
        raise permit.too_slow() from None
    except outbound.TooLarge:
        raise permit.too_large() from None
    except outbound.ExchangeFailed as error:
        raise MediaNotFetched(str(error), param=permit.param) from None


async def _hop(client: outbound.Client, url: Url, permit: Permit) -> Url | Fetched:
    """The file, or the target of the redirect."""
    route = await client.route(url, permit.check_address)
    addresses = ", ".join(route.addresses)
    permit.observe(Step("addresses", True, f"{url.host} has the addresses {addresses}"))
    async with client.exchange(route, headers=_ACCEPT) as response:
        content_type = _declared_type(response)
        text = f"status {response.status}, type {content_type or 'not declared'}"
        permit.observe(Step("response", True, text))
        if response.status in _REDIRECTS:
            return _redirected(url, response, permit)
        if response.status != 200:
            raise MediaNotFetched(f"{url.host} answered {response.status}.", param=permit.param)
        permit.check_type(content_type)
        data = await response.read(permit.max_bytes)
        permit.observe(Step("bytes", True, f"{len(data)} bytes"))
        may_be_kept = "no-store" not in response.headers.get("cache-control", "").lower()
        return Fetched(data, content_type, permit.max_pixels, may_be_kept)


def _declared_type(response: outbound.Response) -> str | None:
    """The declared type without parameters, in lower case; `invalid` for another text."""
    declared = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_valid = re.fullmatch(r"([a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,64})?", declared)
    return declared or None if is_valid else "invalid"


def _redirected(url: Url, response: outbound.Response, permit: Permit) -> Url:
    try:
        target = join(url, response.headers.get("location", ""))
    except UrlRefused as error:
        raise MediaNotFetched(
            f"{url.host} redirects to a URL that is refused. {error}", param=permit.param
        ) from None
    permit.observe(Step("redirect", None, f"to {target.origin}"))
    return target


class MediaCache:
    """Keeps files for the next question about the same picture: at most `max_bytes` for up to
    `max_age_s`, and the oldest leave first."""

    def __init__(
        self, max_bytes: int, max_age_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._clock = clock
        self._entries: dict[Hashable, tuple[Fetched, float]] = {}  # the oldest first
        self.num_bytes = 0

    def get(self, key: Hashable) -> Fetched | None:
        """The content, if it was put within the last `max_age_s`."""
        while self._entries and next(iter(self._entries.values()))[1] <= self._clock():
            self._drop(next(iter(self._entries)))
        return self._entries[key][0] if key in self._entries else None

    def put(self, key: Hashable, content: Fetched) -> None:
        """Keep the content, unless it is larger than half of the cache."""
        if len(content.data) > self._max_bytes // 2:
            return
        if key in self._entries:
            self._drop(key)
        self._entries[key] = content, self._clock() + self._max_age_s
        self.num_bytes += len(content.data)
        while self.num_bytes > self._max_bytes or len(self._entries) > 1024:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: Hashable) -> None:
        content, _ = self._entries.pop(key)
        self.num_bytes -= len(content.data)
