"""Fetches one URL and the URLs that it redirects to, each under the rules of all levels.

A redirect is a new URL: read, allowed by rules, resolved and checked like the first. The strictest
values of all rules of the chain count: bytes, pixels, redirects, and the time from the first DNS
query to the last byte.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from vinery_accounts.outbound.client import Client, ExchangeFailed, Response, Route, TooLarge
from vinery_accounts.outbound.urls import Url, UrlRefused, join, read_url
from vinery_serving.media.cache import Content
from vinery_serving.media.denials import DenialReason, MediaDenied, MediaNotFetched
from vinery_serving.media.permits import Granted, UrlPermit, permit_url
from vinery_serving.media.policy import MediaPolicy, UrlRule
from vinery_serving.media.steps import Observe, Step, StepKind

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OK: Final = 200
_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,64}")
_ACCEPT: Final = {"accept": "image/*, video/*, application/pdf, */*;q=0.1"}


@dataclass(slots=True)
class Chain:
    """The URLs so far, with the rules that allow them."""

    policy: MediaPolicy
    param: str
    observe: Observe
    permits: list[UrlPermit] = field(default_factory=list)

    def enter(self, url: Url) -> UrlPermit:
        """The permit of the next URL. Raises `MediaDenied`."""
        permit = permit_url(self.policy, url, self.param)
        for each in permit.granted:
            text = f"{each.rule.host} allows {url.origin}"
            self.observe(Step(StepKind.RULE, text, each.level.scope, each.rule.id))
        self.permits.append(permit)
        self._check_redirects()
        return permit

    def strictest(self, value: Callable[[UrlRule], float]) -> tuple[UrlPermit, Granted[UrlRule]]:
        """The rule of the chain with the smallest value."""
        rules = [(permit, each) for permit in self.permits for each in permit.granted]
        return min(rules, key=lambda pair: value(pair[1].rule))

    @property
    def max_bytes(self) -> int:
        return self.strictest(_max_bytes)[1].rule.max_bytes

    @property
    def max_pixels(self) -> int:
        return self.strictest(_max_pixels)[1].rule.max_pixels

    @property
    def timeout_s(self) -> float:
        return self.strictest(_timeout_s)[1].rule.timeout_s

    def _check_redirects(self) -> None:
        permit, by = self.strictest(_max_redirects)
        number = by.rule.max_redirects
        if len(self.permits) - 1 > number:
            message = f"There are more redirects than the {number} that {permit.url.host} may have."
            raise permit.denied(DenialReason.MAX_REDIRECTS, by, message, str(number))

    def too_large(self) -> MediaDenied:
        permit, by = self.strictest(_max_bytes)
        number = by.rule.max_bytes
        message = f"The file has more bytes than the {number} that {permit.url.host} may send."
        return permit.denied(DenialReason.MAX_BYTES, by, message, str(number))

    def too_slow(self) -> MediaDenied:
        permit, by = self.strictest(_timeout_s)
        message = (
            f"{self.permits[-1].url.host} did not send the file within {by.rule.timeout_s:g} s."
        )
        return permit.denied(DenialReason.TIMEOUT, by, message, f"{by.rule.timeout_s:g}")


def _max_bytes(rule: UrlRule) -> float:
    return rule.max_bytes


def _max_pixels(rule: UrlRule) -> float:
    return rule.max_pixels


def _max_redirects(rule: UrlRule) -> float:
    return rule.max_redirects


def _timeout_s(rule: UrlRule) -> float:
    return rule.timeout_s


def read_media_url(text: str, param: str) -> Url:
    """Raises `MediaNotFetched` for a text that is not a URL."""
    try:
        return read_url(text)
    except UrlRefused as error:
        raise MediaNotFetched(str(error), param=param) from None


async def download(client: Client, text: str, chain: Chain) -> Content:
    """Raises `MediaDenied` and `MediaNotFetched`."""
    url = read_media_url(text, chain.param)
    start_s = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(None) as deadline:
            while True:
                permit = chain.enter(url)
                deadline.reschedule(start_s + chain.timeout_s)
                result = await _hop(client, permit, chain)
                if isinstance(result, Content):
                    return result
                url = result
    except TimeoutError:
        raise chain.too_slow() from None
    except TooLarge:
        raise chain.too_large() from None
    except ExchangeFailed as error:
        raise MediaNotFetched(str(error), param=chain.param) from None


async def _hop(client: Client, permit: UrlPermit, chain: Chain) -> Url | Content:
    """The file, or the URL that this one redirects to."""
    route = await client.route(permit.url, permit.check_address)
    _note_addresses(chain.observe, route)
    async with client.exchange(route, headers=_ACCEPT) as response:
        content_type = _type_of(response)
        text = f"status {response.status}, type {content_type or 'not declared'}"
        chain.observe(Step(StepKind.RESPONSE, text))
        if response.status in _REDIRECTS:
            return _target(permit.url, response, chain)
        if response.status != _OK:
            message = f"{permit.url.host} answered {response.status}."
            raise MediaNotFetched(message, param=chain.param)
        permit.check_type(content_type)
        data = await response.read(chain.max_bytes)
        chain.observe(Step(StepKind.BYTES, f"{len(data)} bytes"))
        may_be_kept = "no-store" not in response.headers.get("cache-control", "").lower()
        return Content(data, content_type, chain.max_pixels, may_be_kept)


def _note_addresses(observe: Observe, route: Route) -> None:
    addresses = ", ".join(route.addresses)
    observe(Step(StepKind.ADDRESSES, f"{route.url.host} has the addresses {addresses}"))


def _type_of(response: Response) -> str | None:
    """The declared type without parameters, in lower case; `invalid` for what is none."""
    declared = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared and not _TYPE.fullmatch(declared):
        return "invalid"
    return declared or None


def _target(url: Url, response: Response, chain: Chain) -> Url:
    try:
        target = join(url, response.headers.get("location", ""))
    except UrlRefused as error:
        message = f"{url.host} redirects to a URL that is refused. {error}"
        raise MediaNotFetched(message, param=chain.param) from None
    chain.observe(Step(StepKind.REDIRECT, f"to {target.origin}"))
    return target
