"""Runs prepared requests, and goes on with the next engine when one ends.

The gateway has the prompt, the parameters and the tokens so far, so another engine can continue
where the lost one was. A client sees a pause and keep-alives.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from msgspec import structs

from vinery_serving.core import errors
from vinery_serving.core.events import Completed, Event, Finished, FinishReason
from vinery_serving.core.pooling import PoolingDraft
from vinery_serving.core.result import Result, ResultBuilder
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.engines.suspects import Run, Work
from vinery_serving.gateway.preparing.prepared import Origin, PreparedRequest
from vinery_serving.gateway.preparing.steering import check_engine
from vinery_serving.gateway.running.attempt import AnswersReader, started
from vinery_serving.gateway.running.grants import TokenGrants, TokenSource
from vinery_serving.transport import messages
from vinery_serving.transport.client import (
    EngineClient,
    EngineDisconnected,
    OutputStream,
    VectorStream,
)

Batches = AsyncGenerator[list[Event], None]
MAX_LOST_ENGINES: Final = 8  # how many engines may end under one request, whatever the reason
_NEXT_TRY_S: Final = 0.02  # A connection that has just broken is noticed within this time
# After this long without an event a stream gets a comment, so that no proxy closes it.
SILENCE_S: Final = 15.0


async def whole(
    prepared: PreparedRequest, tokens: TokenSource | None = None, batches: Batches | None = None
) -> Result:
    """Return the complete answer. Output tokens are reserved from `tokens`; None: they are not
    counted. `batches` come instead of those of `run`. Raises `ServingError`."""
    builder = ResultBuilder()
    async with aclosing(batches or run(prepared, tokens, may_restart=True)) as read:
        async for events in read:
            for event in events:
                builder.feed(event)
    return prepared.best_of(builder.result())


async def run(
    prepared: PreparedRequest, tokens: TokenSource | None = None, *, may_restart: bool = False
) -> Batches:
    """Yield batches of events, from `Started` to `Completed`, and an empty batch for each
    `SILENCE_S` without events. `tokens` as in `whole`. Raises `ServingError`, also after some
    events. `may_restart`: an answer that the next engine cannot continue exactly begins with
    another `Started`, instead of ending with `NotContinued`."""
    if not prepared.submits:
        yield _without_tokens(prepared)
        return
    engine = prepared.engine
    engine.quarantine.check(engine.entry.name, prepared.submits)
    answers = _Answers(prepared, tokens)
    try:
        if engine.replicas.is_connected:
            await answers.submit(goes_on=False)
        else:  # the model wakes, or its engine is started again
            async for _ in _silences(answers.submit(goes_on=False)):
                yield []
        sent_at = time.monotonic()
        while not answers.is_complete:
            try:
                events = await answers.next()
                if may_restart:
                    answers.check()
            except (EngineDisconnected, errors.NotContinued) as lost:
                if isinstance(lost, errors.NotContinued) and not may_restart:
                    raise
                async for _ in _silences(answers.resume(lost)):
                    yield []
                continue
            now = time.monotonic()
            # Tokens without events, such as hidden reasoning, do not end the silence.
            if events or now - sent_at >= SILENCE_S:
                sent_at = now
                yield events
            answers.check()
    finally:
        answers.end()


class _EngineRun(Run):
    """The present engine of a request, and what an engine's end means for the request."""

    def __init__(self, engine: Engine, meter: Meter) -> None:
        super().__init__(engine.suspects)
        self.engine, self._meter = engine, meter

    async def next_engine(self, *, goes_on: bool) -> messages.Hello:
        """Wait for the request's turn and for an engine. Raises `ServingError`."""
        await self.take_turn()
        self.engine, hello = await self.engine.ready(goes_on=goes_on)
        return hello

    def lost(self, lost: EngineDisconnected, work: Sequence[Work]) -> None:
        """Note the end of the engine, which was to do this work. Raises `EngineLost` if the
        request must not go on."""
        if not lost.is_planned:
            self.engine_ended()
        self.ended()
        if self.is_at_fault:
            self.engine.quarantine.add(self.engine.entry.name, work)
            raise errors.EngineLost(
                "Engines ended twice while they ran this request. Do not repeat it."
            )
        if self._meter.num_continuations == MAX_LOST_ENGINES:
            raise errors.EngineLost("The engine was restarted too often while it ran this request.")
        self._meter.num_continuations += 1


class _Answers:
    def __init__(self, prepared: PreparedRequest, tokens: TokenSource | None) -> None:
        self._prepared = prepared
        # None: tokens are not counted, or all of them are reserved, as for a beam search.
        self._tokens = tokens if prepared.request.beams is None else None
        self._meter = prepared.meter
        self._run = _EngineRun(prepared.engine, prepared.meter)
        self._submits: list[messages.Submit] = []
        self._grants: TokenGrants | None = None
        self._output: OutputStream | None = None
        self._reader: AnswersReader | None = None
        self._may_pause = False  # before its first token, because it has no grant

    @property
    def is_complete(self) -> bool:
        return self._reader is not None and self._reader.is_complete

    async def next(self) -> list[Event]:
        """Return the next events; none after `SILENCE_S`. Raises `EngineDisconnected`, and
        `ServingError` for a request that was refused."""
        assert self._output is not None
        assert self._reader is not None
        if self._may_pause:
            self._may_pause = False
            await self._grant_paused()
        updates = await self._output.next(SILENCE_S)
        events = self._reader.take(updates)
        if self._run.has_turn and any(isinstance(each, messages.TokenOutput) for each in updates):
            self._run.generated()
        grants = self._grants
        if grants is not None and self._meter.tokens.num_output_tokens >= grants.next_check_at:
            await self._reader.extend(grants)
        return events

    async def _grant_paused(self) -> None:
        """Reserve the next tokens of an answer whose grants were used before it: by the process
        that has read its beginning, or by the summary."""
        reader, grants = self._reader, self._grants
        while reader is not None and grants is not None and not grants.is_last:
            ((id_, num_used),) = reader.num_used.items()
            if grants.num_granted[id_] > num_used:
                return
            before = grants.num_granted[id_]
            await reader.extend(grants)
            if grants.num_granted[id_] == before:
                return  # all that the answer may have

    def check(self) -> None:
        """Raise the `ServingError` with which the engine has ended the request."""
        if self._reader is not None and self._reader.failure is not None:
            raise self._reader.failure

    async def resume(self, lost: EngineDisconnected | errors.NotContinued) -> None:
        """Go on with the next engine, or start again where exact continuation failed. Raises
        `ServingError` if the request must not go on, or no engine is ready in time."""
        if isinstance(lost, EngineDisconnected):
            self._run.lost(lost, self._prepared.submits)
        else:
            self.end()
            self._drop()
        await self.submit(goes_on=True)

    def end(self) -> None:
        """Free the request in the engine."""
        self._run.ended()
        if self._output is not None and self._reader is not None:
            self._output.cancel(self._reader.num_used)

    async def submit(self, *, goes_on: bool) -> None:
        """Give the request to an engine, once one is ready. Raises `ServingError`."""
        left_s = self._prepared.submits[0].deadline_s - self._meter.total_s
        try:
            async with asyncio.timeout(left_s):
                while True:
                    hello = await self._run.next_engine(goes_on=goes_on)
                    try:
                        output = self._submit(hello)
                    except EngineDisconnected:  # the engine ends at this moment
                        await asyncio.sleep(_NEXT_TRY_S)
                        continue
                    await output.send_rest()
                    if self._grants is not None and self._reader is not None:
                        self._reader.grant_last(self._grants)
                    return
        except TimeoutError:
            raise errors.DeadlineExceeded("No engine could run the request in time.") from None

    def _submit(self, hello: messages.Hello) -> OutputStream:
        """Raises `EngineDisconnected`, and `ServingError` if this engine cannot run the request."""
        first = self._prepared.submits[0]
        client = self._run.engine.replicas.choose(first.prompt_ids, self._cache_key(first, hello))
        hello = client.hello or hello
        check_engine(self._prepared.request, hello)
        if self._reader is None or not self._reader.is_accepted:
            self._begin(client)
        submits = [self._for_engine(each, hello) for each in self._submits]
        is_new = self._reader is None
        if self._reader is None:
            self._reader = AnswersReader(self._prepared, submits)
            if (trail := self._prepared.trail) is not None and trail.known:
                self._reader.replay(trail)
                is_new, self._may_pause = False, True
        output = client.submit(submits if is_new else self._reader.remaining(submits))
        self._output = output
        self._reader.read_from(output)
        self._run.submitted(client)
        return output

    def _begin(self, client: EngineClient) -> None:
        """Begin from the start: no client has received anything."""
        if self._reader is not None:
            self._drop()
        n = self._prepared.request.n
        self._submits = [_with_ids(submit, client, n) for submit in self._prepared.submits]
        if self._tokens is not None:
            max_tokens = {submit.id: submit.max_new_tokens for submit in self._submits}
            spent = self._meter.earlier.num_output_tokens
            self._grants = TokenGrants(self._tokens, max_tokens, spent)
            self._may_pause = spent > 0

    def _drop(self) -> None:
        """Forget the generated tokens, which no client has received."""
        self._reader = None
        self._meter.restart()

    def _for_engine(self, submit: messages.Submit, hello: messages.Hello) -> messages.Submit:
        logits, num_granted = submit.logits, submit.num_granted
        if not hello.has_logits_hook:
            # Only the budget of a reasoning effort can be left, which is not a guarantee.
            logits = None
        if self._grants is not None:
            # A choice that has ended has no grant.
            num_granted = self._grants.num_granted.get(submit.id, 0)
        cache_key = self._cache_key(submit, hello)
        return structs.replace(submit, logits=logits, cache_key=cache_key, num_granted=num_granted)

    def _cache_key(self, submit: messages.Submit, hello: messages.Hello) -> bytes | None:
        """Return the key, but for a salt of the organisation alone that the engine does not know.
        Cached tokens are then not reported, see `attempt`."""
        is_asked = self._prepared.request.handling.cache_salt is not None
        return submit.cache_key if is_asked or hello.supports_cache_salt else None


async def _silences(waiting: Awaitable[object]) -> AsyncGenerator[None, None]:
    """Wait, and yield after each `SILENCE_S`. Raises what `waiting` does."""
    task = asyncio.ensure_future(waiting)
    try:
        while True:
            await asyncio.wait([task], timeout=SILENCE_S)
            if task.done():
                task.result()
                return
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _without_tokens(prepared: PreparedRequest) -> list[Event]:
    prepared.meter.has_begun = True
    choices = range(prepared.request.num_choices)
    finished = [Finished(choice, FinishReason.LENGTH) for choice in choices]
    completed = Completed(prepared.meter.billed_tokens, int(time.time()))
    return [*started(prepared), *finished, completed]


def _with_ids(submit: messages.Submit, client: EngineClient, n: int) -> messages.Submit:
    """The submission with an id for each answer: a beam search has all answers of its prompt."""
    submit = structs.replace(submit, id=client.new_id())
    if submit.beams is None:
        return submit
    others = tuple(client.new_id() for _ in range(n - 1))
    return structs.replace(submit, other_ids=others)


# -- Vectors and scores
#
# Vectors are the same on every engine. When an engine ends, the next computes the missing vectors.


async def pool(
    draft: PoolingDraft, engine: Engine, meter: Meter, origin: Origin
) -> tuple[bytes, ...]:
    """Return a vector for each text: float32 little endian, (num_dimensions,); a score is a vector
    of one number. Raises `ServingError`."""
    run = _Pooling(draft, engine, meter, origin)
    try:
        async with asyncio.timeout(origin.deadline_s - meter.total_s):
            return await run.vectors()
    except TimeoutError:
        raise errors.DeadlineExceeded("No engine could run the request in time.") from None
    finally:
        run.end()


class _Pooling:
    def __init__(self, draft: PoolingDraft, engine: Engine, meter: Meter, origin: Origin) -> None:
        self._draft, self._meter, self._origin = draft, meter, origin
        self._run = _EngineRun(engine, meter)
        self._vectors: dict[int, bytes] = {}  # by the index of the text
        self._stream: VectorStream | None = None
        self._is_taken = False  # by an engine that has ended since

    async def vectors(self) -> tuple[bytes, ...]:
        """Raises `ServingError`, and what `asyncio.timeout` does."""
        engine = self._run.engine
        engine.quarantine.check(engine.entry.name, [self._message(range(self._num_texts), 0)])
        while len(self._vectors) < self._num_texts:
            self._check(await self._run.next_engine(goes_on=self._is_taken))
            try:
                await self._ask()
            except EngineDisconnected as lost:
                self._is_taken = self._is_taken or self._stream is not None
                self._run.lost(lost, [self._message(range(self._num_texts), 0)])
                await asyncio.sleep(_NEXT_TRY_S)
        return tuple(self._vectors[index] for index in range(self._num_texts))

    def end(self) -> None:
        self._run.ended()
        if self._stream is not None:
            self._stream.cancel()

    @property
    def _num_texts(self) -> int:
        return len(self._draft.texts)

    def _check(self, hello: messages.Hello) -> None:
        """Raises `InvalidRequest` for more dimensions than the vectors have."""
        wanted = self._draft.dimensions
        if wanted is not None and wanted > hello.num_dimensions:
            raise errors.InvalidRequest(
                f"`dimensions` must be at most {hello.num_dimensions}, which is how many numbers "
                "the vectors of this model have.",
                param="dimensions",
            )

    async def _ask(self) -> None:
        """Get the vectors that are missing. Raises `EngineDisconnected`, and `ServingError` for a
        request that the engine refuses."""
        missing = [each for each in range(self._num_texts) if each not in self._vectors]
        client = self._run.engine.replicas.choose()
        self._stream = client.pool(self._message(missing, client.new_id()))
        self._run.submitted(client)
        is_complete = False
        while not is_complete:
            for each in await self._stream.next():
                if isinstance(each, messages.Rejected):
                    raise errors.error_from_code(each.code, each.message)
                self._take(each, missing)
                is_complete = each.is_last

    def _take(self, found: messages.TextVectors, missing: Sequence[int]) -> None:
        meter = self._meter
        width = len(found.vectors) // len(found.indexes)
        for row, index in enumerate(found.indexes):
            self._vectors[missing[index]] = found.vectors[row * width : (row + 1) * width]
        if not meter.has_begun:
            meter.has_begun = True
            meter.queue_s = found.queue_s
        if self._run.has_turn:
            self._run.generated()

    def _message(self, indexes: Iterable[int], id_: int) -> messages.PoolTexts:
        draft, origin, wanted = self._draft, self._origin, list(indexes)
        return messages.PoolTexts(
            id=id_,
            texts=tuple(draft.texts[each] for each in wanted),
            second_starts=tuple(draft.second_starts[each] for each in wanted),
            deadline_s=max(0.0, origin.deadline_s - self._meter.total_s),
            dimensions=draft.dimensions or 0,
            request_id=origin.request_id,
            lane=origin.lane,
            goes_on=self._is_taken,
        )
