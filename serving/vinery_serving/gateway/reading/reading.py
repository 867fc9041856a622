"""Reads the bodies of requests: small ones here, and large ones in a worker process.

A worker also translates schemas and patterns, and runs templates that came with a request: these
may be short and take long, and decodes all media. A request with a large body never becomes
objects of this process.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self, cast

from vinery_serving.core.dialects import DIALECTS, Dialect
from vinery_serving.core.media import InlineSource, MediaPart
from vinery_serving.core.pooling import PoolingDraft, PoolingRequest
from vinery_serving.core.request import (
    PROMPT_FIELDS,
    Conversation,
    Endpoint,
    GenerationRequest,
    RawPrompts,
)
from vinery_serving.core.unused import NOTHING_UNUSED, Unused
from vinery_serving.gateway.engines.directory import Engine, LoadedModel
from vinery_serving.gateway.preparing.output_grammar import may_have_grammar
from vinery_serving.gateway.preparing.prepared import Draft
from vinery_serving.gateway.preparing.rendering import count_tokens, detokenize, tokenize
from vinery_serving.gateway.reading.request_worker import FetchMedia, RequestWorker, decode_media
from vinery_serving.gateway.running.pooling import draft as draft_pooling
from vinery_serving.gateway.workers.pool import Worker, WorkerPool
from vinery_serving.protocols.common.exchange import Exchange
from vinery_serving.protocols.messages import exchange as messages
from vinery_serving.protocols.pooling.common import PoolingExchange
from vinery_serving.protocols.pooling.parsing import parse_pooling
from vinery_serving.protocols.responses import exchange as responses
from vinery_serving.protocols.tokens import (
    DetokenizeExchange,
    TokenizeExchange,
    parse_detokenize,
    parse_tokenize,
)

# A body of this size takes less than 5 ms of CPU time from JSON to tokens, whatever it contains
# (measured: 8.5 ms for 8 KiB of tool arguments with a token for each character, 5.5 ms for 8 KiB of
# empty input items).
SMALL_BODY_BYTES: Final = 4 * 1024

# An answer of `/tokenize` may be longer than its body. So many pad tokens take no time.
_SHORT_PADDING: Final = 4096


@dataclass(frozen=True, slots=True)
class Head:
    """What the web process decides about before a request is prepared."""

    model: str | None
    is_streamed: bool = False
    answer_id: str | None = None
    has_template: bool = False  # whether the request has a chat template of its own
    # Whether what follows may take long although the body is small.
    may_take_long: bool = False
    # The field that is most likely the cause if it does.
    costly_param: str | None = None
    unused: Unused = NOTHING_UNUSED
    media: tuple[MediaPart, ...] = ()  # all media of the request
    end_user: str = ""


def head_of(request: GenerationRequest) -> Head:
    prompt, grammar = request.prompt, request.grammar
    has_template = isinstance(prompt, Conversation) and _has_template(prompt)
    has_grammar = may_have_grammar(request)
    param = "tools" if has_grammar else PROMPT_FIELDS[request.endpoint]
    if grammar is not None:
        param = grammar.param or "response_format"
    return Head(
        request.model,
        request.is_streamed,
        request.handling.answer_id,
        has_template=has_template,
        may_take_long=has_grammar or _is_shortened(prompt),
        costly_param="chat_template" if has_template else param,
        unused=request.unused,
        media=request.media,
        end_user=request.handling.end_user,
    )


def without_files(head: Head) -> Head:
    """Return the head without the files that came with the request: they stay in the worker."""
    if not head.media:
        return head
    empty = InlineSource(b"")
    media = tuple(
        replace(part, source=empty) if isinstance(part.source, InlineSource) else part
        for part in head.media
    )
    return replace(head, media=media)


def _is_shortened(prompt: Conversation | RawPrompts) -> bool:
    """Whether the prompt may be rendered several times."""
    return isinstance(prompt, Conversation) and prompt.drops_oldest


def _has_template(conversation: Conversation) -> bool:
    return conversation.rendering.template is not None


class Parse(Protocol):
    """`serving.protocols.parse`."""

    def __call__(
        self, endpoint: Endpoint, body: bytes, dialect: Dialect, *, fingerprint: str | None
    ) -> Exchange: ...


class Prepare(Protocol):
    """`serving.flow.preparing.prepare`."""

    def __call__(
        self,
        request: GenerationRequest,
        model: LoadedModel,
        *,
        deadline_s: float,
        request_id: str,
        lane: tuple[int, int],
    ) -> Draft: ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """What reads a small request in the web process."""

    parse: Parse
    prepare: Prepare


class GenerationReader:
    """One request for generation: call `parse`, then `prepare`, within its `async with`."""

    def __init__(self, pool: WorkerPool, key: Hashable, num_bytes: int, here: InProcess) -> None:
        """A body of so many bytes is read by `here` if it is small."""
        self._here = here
        self._worker = RequestWorker(pool, key)
        self._is_small = num_bytes <= SMALL_BODY_BYTES
        self._head = Head(None)
        self._exchange: Exchange | None = None  # None: a worker has parsed the body
        self._body = b""  # while it must be parsed in a worker again
        self._arguments: tuple[str, str, str | None] = ("", "", None)

    async def __aenter__(self) -> Self:
        """Raises `ServingError` while no worker is available for a large body."""
        if not self._is_small:
            await self._worker.take("body")
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._worker.__aexit__(*error)

    async def parse(
        self, body: bytes, endpoint: Endpoint, tree: str, fingerprint: str | None
    ) -> Head:
        """Raises `InvalidRequest`."""
        self._arguments = str(endpoint), tree, fingerprint
        if self._is_small:
            self._exchange = self._here.parse(
                endpoint, body, DIALECTS[tree], fingerprint=fingerprint
            )
            self._head = head_of(self._exchange.request)
        else:
            self._head = await self._parse_in_worker(body)
        if self._head.media:
            self._body = body
        return self._head

    async def prepare(
        self,
        engine: Engine,
        fetch: FetchMedia,
        *,
        deadline_s: float,
        request_id: str,
        lane: tuple[int, int] = (0, 0),
    ) -> tuple[Exchange, Draft]:
        """Return the request as its protocol needs it, and its prepared form. Raises
        `InvalidRequest`."""
        options = {"deadline_s": deadline_s, "request_id": request_id, "lane": lane}
        if self._head.media:
            await decode_media(self._worker, self._head.media, engine, fetch, self._parse_again)
            self._body = b""
        elif self._exchange is not None:
            return self._exchange, await self._prepare_small(self._exchange, engine, options)
        prepared = await self._worker.held.call("prepare_parsed", engine.entry, options)
        return cast("tuple[Exchange, Draft]", prepared)

    async def _prepare_small(
        self, exchange: Exchange, engine: Engine, options: Mapping[str, Any]
    ) -> Draft:
        if not _takes_long(self._head):
            return self._here.prepare(exchange.request, engine, **options)
        worker = await self._worker.take("grammar")
        _confine(worker, self._head)
        return cast(
            Draft, await worker.call("prepare_request", exchange.request, engine.entry, options)
        )

    async def _parse_again(self) -> None:
        await self._parse_in_worker(self._body)

    async def _parse_in_worker(self, body: bytes) -> Head:
        return await _parsed(self._worker.held, body, "parse_request", *self._arguments)


@dataclass(frozen=True, slots=True)
class TokensJob:
    """What an endpoint of a model's tokenizer does."""

    # From a body and the URL's tree. Raises `InvalidRequest`.
    parse: Callable[[bytes, str], tuple[Head, Any]]
    # From the second value of `parse`. Returns the answer as JSON.
    answer: Callable[[Any, LoadedModel], bytes]


def _tokenize_head(body: bytes, tree: str) -> tuple[Head, TokenizeExchange]:
    exchange = parse_tokenize(body, DIALECTS[tree])
    request = exchange.request
    has_template = isinstance(request.prompt, Conversation) and _has_template(request.prompt)
    padding = request.padding
    is_long = padding is not None and padding.length > _SHORT_PADDING
    head = Head(
        request.model,
        has_template=has_template,
        may_take_long=is_long,
        unused=exchange.unused,
        media=request.media,
    )
    return head, exchange


def _detokenize_head(body: bytes, tree: str) -> tuple[Head, DetokenizeExchange]:
    exchange = parse_detokenize(body)
    return Head(exchange.model, unused=exchange.unused), exchange


def _counted_response(body: bytes, tree: str) -> tuple[Head, GenerationRequest]:
    request = responses.parse_count(body, DIALECTS[tree])
    return head_of(request), request


def _counted_message(body: bytes, tree: str) -> tuple[Head, GenerationRequest]:
    request = messages.parse_count(body, DIALECTS[tree])
    return head_of(request), request


TOKENS_JOBS: Mapping[str, TokensJob] = {
    "tokenize": TokensJob(
        _tokenize_head, lambda exchange, model: exchange.body(tokenize(exchange.request, model))
    ),
    "detokenize": TokensJob(
        _detokenize_head,
        lambda exchange, model: exchange.body(detokenize(exchange.token_ids, model)),
    ),
    "responses/input_tokens": TokensJob(
        _counted_response, lambda request, model: responses.count_body(count_tokens(request, model))
    ),
    "messages/count_tokens": TokensJob(
        _counted_message, lambda request, model: messages.count_body(count_tokens(request, model))
    ),
}


async def answer_tokens(
    pool: WorkerPool,
    key: Hashable,
    name: str,
    body: bytes,
    tree: str,
    engine_of: Callable[[Head], Awaitable[Engine]],
    fetch: FetchMedia,
) -> bytes:
    """Return the JSON answer of an endpoint of a model's tokenizer, one of `TOKENS_JOBS`.
    `engine_of` admits the request, once, and finds its engine. Raises `ServingError`."""
    engine: Engine | None = None
    if len(body) <= SMALL_BODY_BYTES:
        head, parsed = TOKENS_JOBS[name].parse(body, tree)
        engine = await engine_of(head)
        if not _takes_long(head) and not head.media:
            return TOKENS_JOBS[name].answer(parsed, engine)
    async with RequestWorker(pool, key) as worker:

        async def parse() -> Head:
            return await _parsed(worker.held, body, "parse_tokens", name, tree)

        await worker.take("tokens")
        head = await parse()
        engine = engine or await engine_of(head)
        if head.media:
            await decode_media(worker, head.media, engine, fetch, parse)
        return cast(bytes, await worker.held.call("answer_tokens", name, engine.entry))


async def read_pooling(
    pool: WorkerPool,
    key: Hashable,
    endpoint: Endpoint,
    body: bytes,
    engine_of: Callable[[Head], Awaitable[Engine]],
    *,
    is_v2: bool = False,
) -> tuple[PoolingExchange, PoolingDraft]:
    """Return a request for vectors or scores as its protocol needs it, and its tokens. `engine_of`
    admits the request, and finds its engine; `is_v2`: of a path of Cohere's second API. Raises
    `ServingError`."""
    if len(body) <= SMALL_BODY_BYTES:
        exchange = parse_pooling(endpoint, body, is_v2=is_v2)
        engine = await engine_of(pooling_head(exchange.request))
        return exchange, draft_pooling(exchange.request, engine)
    async with RequestWorker(pool, key) as worker:
        await worker.take("pooling")
        head = await _parsed(worker.held, body, "parse_pooling", str(endpoint), is_v2)
        engine = await engine_of(head)
        read = await worker.held.call("draft_pooling", engine.entry)
        return cast("tuple[PoolingExchange, PoolingDraft]", read)


def pooling_head(request: PoolingRequest) -> Head:
    return Head(
        request.model,
        costly_param=request.param,
        unused=request.unused,
        end_user=request.end_user,
    )


async def _parsed(worker: Worker, body: bytes, job: str, *arguments: Any) -> Head:
    head = cast(Head, await worker.call(job, *arguments, body=body))
    _confine(worker, head)
    return head


def _confine(worker: Worker, head: Head) -> None:
    """A client's template may escape from its sandbox: no other client may use its process."""
    worker.param = head.costly_param
    if head.has_template:
        worker.use_once()


def _takes_long(head: Head) -> bool:
    return head.has_template or head.may_take_long
