"""Tokenizes the texts of embeddings, rerank and score requests, and gets their vectors.

Vectors are the same whichever engine computes them, so the next engine goes on with the texts that
have none when one ends.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from vinery_serving.core.errors import (
    DeadlineExceeded,
    EngineLost,
    InvalidRequest,
    UnsupportedParameter,
    cited,
    error_from_code,
)
from vinery_serving.core.pooling import (
    PoolingDraft,
    PoolingInput,
    PoolingRequest,
    PoolingResult,
    TextPair,
    TextRole,
    Truncation,
)
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway.engines.directory import Engine, LoadedModel
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.engines.suspects import Run
from vinery_serving.prompting.pooling_texts import PairTooLong, PoolingTexts, TokenizedText
from vinery_serving.transport.client import EngineDisconnected, VectorStream
from vinery_serving.transport.messages import Hello, PoolTexts, Rejected, TextVectors

# How many engines may end under one request, whatever the reason.
_MAX_LOST_ENGINES: Final = 8
# A connection that has just broken is noticed within this time.
_NEXT_TRY_S: Final = 0.02


def draft(request: PoolingRequest, model: LoadedModel) -> PoolingDraft:
    """Return the tokens of all inputs. Raises `InvalidRequest`, also for a text that is too long
    and may not be cut."""
    texts = PoolingTexts(model.assets, model.max_context)
    before = _prefix(request, model)
    found = [
        _tokenized(texts, each, before, request, index) for index, each in enumerate(request.inputs)
    ]
    return PoolingDraft(
        texts=tuple(each.as_bytes() for each in found),
        second_starts=tuple(each.second_start for each in found),
        num_tokens=sum(len(each.token_ids) for each in found),
        dimensions=request.dimensions,
    )


def _tokenized(
    texts: PoolingTexts, given: PoolingInput, before: str, request: PoolingRequest, index: int
) -> TokenizedText:
    param = request.param if len(request.inputs) == 1 else f"{request.param}[{index}]"
    most, truncation = texts.max_tokens, request.truncation
    limit = _limit(truncation, most, param)
    keeps_start = truncation is None or truncation.keeps_start
    try:
        if isinstance(given, TextPair):
            most_of_document = request.max_document_tokens
            found = texts.pair(given, limit, most_of_document, keeps_start=keeps_start)
        elif isinstance(given, str):
            found = texts.text(before + given, limit, keeps_start=keeps_start, param=param)
        else:
            found = texts.ids(given, limit, keeps_start=keeps_start, param=param)
    except PairTooLong as error:
        raise InvalidRequest(str(error), param="query") from None
    if not found.token_ids:
        raise InvalidRequest("The text has no tokens: send at least one character.", param=param)
    if most is not None and len(found.token_ids) > most:
        raise InvalidRequest(
            f"`{param}` has {len(found.token_ids)} tokens{_with_query(given)}, and this model "
            f"takes {most}. Send a shorter text, divide it, or let it be cut with "
            f"`truncate_prompt_tokens: -1`{_or_of_documents(request)}.",
            param=param,
            code="context_length_exceeded",
        )
    return found


def _with_query(given: PoolingInput) -> str:
    return " with those of its query" if isinstance(given, TextPair) else ""


def _or_of_documents(request: PoolingRequest) -> str:
    is_ranked = request.endpoint is Endpoint.RERANK
    return " or a smaller `max_tokens_per_doc`" if is_ranked else ""


def _limit(truncation: Truncation | None, most: int | None, param: str) -> int | None:
    """To how many tokens a text is cut; None: it is not."""
    if truncation is None:
        return None
    limit = truncation.max_tokens
    if limit is not None and most is not None and limit > most:
        raise InvalidRequest(
            f"`truncate_prompt_tokens` must be at most {most}, which this model takes.",
            param="truncate_prompt_tokens",
        )
    return most if limit is None else limit


def _prefix(request: PoolingRequest, model: LoadedModel) -> str:
    """The text before each input. Raises `InvalidRequest` for a name that the model lacks."""
    folder, options = model.pooling, model.entry.options
    if request.prompt_name is not None:
        if request.prompt_name not in folder.prompts:
            known = f"only {', '.join(sorted(folder.prompts))}" if folder.prompts else "none"
            raise UnsupportedParameter(
                f"`prompt_name` is `{cited(request.prompt_name)}`, but of such texts this model "
                f"has {known}.",
                param="prompt_name",
            )
        return folder.prompts[request.prompt_name]
    match request.role:
        case TextRole.QUERY:
            return options.query_prefix or folder.prompts.get("query", "")
        case TextRole.DOCUMENT:
            named = folder.prompts.get("document") or folder.prompts.get("passage", "")
            return options.document_prefix or named
        case None:
            return folder.default_prompt


@dataclass(frozen=True, slots=True)
class PreparedPooling:
    """A request with all that running it needs."""

    draft: PoolingDraft
    engine: Engine
    meter: Meter
    deadline_s: float
    request_id: str
    lane: tuple[int, int]


async def pool(prepared: PreparedPooling) -> PoolingResult:
    """Return the vectors. Raises `ServingError`."""
    run = _Pooling(prepared)
    left_s = prepared.deadline_s - prepared.meter.total_s
    try:
        async with asyncio.timeout(left_s):
            vectors = await run.vectors()
    except TimeoutError:
        raise DeadlineExceeded("No engine could run the request in time.") from None
    finally:
        run.end()
    return PoolingResult(vectors, prepared.draft.num_tokens)


class _Pooling:
    """The vectors of one request so far, and the engine that computes the others."""

    def __init__(self, prepared: PreparedPooling) -> None:
        self._prepared = prepared
        self._engine = prepared.engine
        self._run = Run()
        self._vectors: dict[int, bytes] = {}  # by the index of the text
        self._stream: VectorStream | None = None
        self._is_taken = False  # by an engine that has ended since

    async def vectors(self) -> tuple[bytes, ...]:
        """Raises `ServingError`, and what `asyncio.timeout` does."""
        engine = self._prepared.engine
        engine.quarantine.check(engine.entry.name, [self._message(range(self._num_texts), 0)])
        while len(self._vectors) < self._num_texts:
            await self._engine.suspects.take_turn(self._run)
            self._engine, hello = await self._engine.ready(goes_on=self._is_taken)
            self._check(hello)
            try:
                await self._ask()
            except EngineDisconnected as lost:
                self._note_end(lost)
                await asyncio.sleep(_NEXT_TRY_S)
        return tuple(self._vectors[index] for index in range(self._num_texts))

    def end(self) -> None:
        """Free what the engine still has of it."""
        self._engine.suspects.ended(self._run)
        if self._stream is not None:
            self._stream.cancel()

    @property
    def _num_texts(self) -> int:
        return len(self._prepared.draft.texts)

    def _check(self, hello: Hello) -> None:
        """Raises `InvalidRequest` for more dimensions than the vectors have."""
        wanted = self._prepared.draft.dimensions
        if wanted is not None and wanted > hello.num_dimensions:
            raise InvalidRequest(
                f"`dimensions` must be at most {hello.num_dimensions}, which is how many numbers "
                "the vectors of this model have.",
                param="dimensions",
            )

    async def _ask(self) -> None:
        """Get the vectors that are missing. Raises `EngineDisconnected`, and `ServingError` for a
        request that the engine refuses."""
        missing = [each for each in range(self._num_texts) if each not in self._vectors]
        client = self._engine.replicas.choose()
        self._stream = client.pool(self._message(missing, client.new_id()))
        self._engine.suspects.submitted(self._run, client)
        is_complete = False
        while not is_complete:
            found = await self._stream.next()
            if isinstance(found, Rejected):
                raise error_from_code(found.code, found.message)
            self._take(found, missing)
            is_complete = found[-1].is_last

    def _take(self, found: Sequence[TextVectors], missing: Sequence[int]) -> None:
        meter = self._prepared.meter
        for each in found:
            width = len(each.vectors) // len(each.indexes)
            for row, index in enumerate(each.indexes):
                self._vectors[missing[index]] = each.vectors[row * width : (row + 1) * width]
            if not meter.has_begun:
                meter.has_begun = True
                meter.queue_s = each.queue_s
        if self._run.has_turn:
            self._engine.suspects.generated(self._run)

    def _note_end(self, lost: EngineDisconnected) -> None:
        """Raises `EngineLost`."""
        if not lost.is_planned:
            self._engine.suspects.engine_ended(self._run)
        self._engine.suspects.ended(self._run)
        self._is_taken = self._is_taken or self._stream is not None
        meter, name = self._prepared.meter, self._engine.entry.name
        if self._run.is_at_fault:
            self._engine.quarantine.add(name, [self._message(range(self._num_texts), 0)])
            raise EngineLost("Engines ended twice while they ran this request. Do not repeat it.")
        if meter.num_continuations == _MAX_LOST_ENGINES:
            raise EngineLost("The engine was restarted too often while it ran this request.")
        meter.num_continuations += 1

    def _message(self, indexes: Iterable[int], id_: int) -> PoolTexts:
        prepared, wanted = self._prepared, list(indexes)
        texts, starts = prepared.draft.texts, prepared.draft.second_starts
        return PoolTexts(
            id=id_,
            texts=tuple(texts[each] for each in wanted),
            second_starts=tuple(starts[each] for each in wanted),
            deadline_s=max(0.0, prepared.deadline_s - prepared.meter.total_s),
            dimensions=prepared.draft.dimensions or 0,
            request_id=prepared.request_id,
            lane=prepared.lane,
            goes_on=self._is_taken,
        )
