"""Turns engines' updates about one request into events, from acceptance to the last token."""

import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never, cast

from msgspec import structs

from vinery_serving.core.errors import ServingError, cited, error_from_code
from vinery_serving.core.events import (
    QUOTA,
    Arrived,
    Completed,
    Event,
    Finished,
    FinishReason,
    FirstToken,
    Progress,
    PromptScored,
    Started,
    TextDelta,
    TokensGenerated,
)
from vinery_serving.core.request import Conversation, Endpoint, RawPrompts, Role
from vinery_serving.gateway.preparing.prepared import PreparedRequest, Trail
from vinery_serving.gateway.preparing.steering import num_top_of_prompt
from vinery_serving.gateway.running.grants import TokenGrants
from vinery_serving.output.detokenize import Decoder
from vinery_serving.output.reader import ChoiceReader
from vinery_serving.output.writer import merged
from vinery_serving.transport import messages
from vinery_serving.transport.client import GenerationUpdate, OutputStream


def _exposes_cached(prepared: PreparedRequest, submit: messages.Submit) -> bool:
    """Whether the client may see how much of the prompt was cached. If other organisations share
    the cache, the number would confirm a guess of their prompts."""
    has_organization = submit.lane[0] != 0
    is_separate = submit.cache_key is not None
    return not has_organization or is_separate or prepared.engine.entry.options.share_prefix_cache


def started(prepared: PreparedRequest) -> list[Event]:
    """The first event, and the texts before the answers of a request with `echo`."""
    request, prompts = prepared.request, prepared.prompts
    ids = tuple(prompt.token_ids for prompt in prompts) if request.wants_token_ids else ()
    wants_texts = request.wants_prompt_text or request.wants_token_ids
    texts = tuple(map(prepared.text_of, prompts)) if wants_texts else ()
    own_texts = map(prepared.engine.assets.text_of, prompts) if request.counts_prompt_chars else ()
    first = Started(
        request.num_choices,
        ids,
        texts,
        tuple(map(len, own_texts)),
        sum(prompt.num_tokens for prompt in prompts),
        prepared.submits[0].sampling if request.endpoint is Endpoint.RESPONSES else None,
    )
    echoes = enumerate(text for text in _echoed(prepared) for _ in range(request.n))
    return [first, *(TextDelta(choice, text) for choice, text in echoes if text)]


def _echoed(prepared: PreparedRequest) -> Sequence[str]:
    prompt = prepared.request.prompt
    if not prompt.echo:
        return ()
    if isinstance(prompt, Conversation):
        last = prompt.messages[-1] if prompt.messages else None
        return (last.text,) if last is not None and last.role is Role.ASSISTANT else ()
    if num_top_of_prompt(prepared.request) is not None:
        return ()  # an echo with log-probabilities comes with them
    return [prepared.engine.assets.text_of(each) for each in prepared.prompts]


class IntervalBuffer:
    """Holds the events of one choice until they have `interval` tokens: `stream_interval`. The
    first and the last event are never held. Tokens are still read as they arrive, so a stop string
    ends a choice as early as without a buffer."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._held: list[Event] = []
        self._num_tokens = 0
        self._has_released = False

    def add(self, events: Sequence[Event], num_tokens: int) -> list[Event]:
        """Add the events of `num_tokens` more tokens. Returns the events to send now."""
        self._held += events
        self._num_tokens += num_tokens
        is_over = bool(events) and isinstance(events[-1], Finished)
        if is_over or not self._has_released or self._num_tokens >= self._interval:
            return self.release()
        return []

    def release(self) -> list[Event]:
        """Return all held events, adjacent text as one delta and all ids as one event."""
        ids = [each for each in self._held if isinstance(each, TokensGenerated)]
        events = merged(each for each in self._held if not isinstance(each, TokensGenerated))
        if ids:
            joined = tuple(id_ for each in ids for id_ in each.token_ids)
            text = "".join(each.text for each in ids)
            events.insert(0, TokensGenerated(ids[0].choice, joined, text))
        self._held = []
        self._num_tokens = 0
        self._has_released = self._has_released or bool(events)
        return events


@dataclass(slots=True)
class _Choice:
    """The state of one choice. `raw` decodes all tokens, for requests with token ids."""

    index: int
    reader: ChoiceReader
    raw: Decoder | None
    buffer: IntervalBuffer | None
    token_ids: "array[int]" = field(default_factory=lambda: array("i"))  # all that were read
    num_proposed: int = 0
    num_accepted: int = 0
    logprob_sum: float = 0.0
    num_logprobs: int = 0


class AnswersReader:
    """Converts updates about the choices of one request to events. Engines may change meanwhile:
    a choice goes on after its tokens so far."""

    def __init__(self, prepared: PreparedRequest, submits: Sequence[messages.Submit]) -> None:
        """Call `read_from` next."""
        request = prepared.request
        ids = [id_ for submit in submits for id_ in submit.ids]
        self._prepared = prepared
        self._meter = prepared.meter
        self._output: OutputStream
        interval = request.handling.stream_interval
        is_buffered = request.is_streamed and interval > 1
        self._shows_first = request.is_streamed and request.dialect.shows_first_token
        self._choices = {
            id_: _Choice(
                index,
                prepared.reader(index),
                prepared.engine.new_decoder(is_raw=True, shows_special=True)
                if request.wants_token_ids
                else None,
                IntervalBuffer(interval) if is_buffered else None,
            )
            for index, id_ in enumerate(ids)
        }
        # The samples share a prompt, so the cached part is counted once.
        exposes_cached = _exposes_cached(prepared, submits[0])
        self._counts_cached = set(ids[:: request.n]) if exposes_cached else set()
        self._to_accept = set(ids)
        # Events of choices that began before the last choice was accepted: sent after `Started`.
        self._early: list[Event] = []
        self._open = set(ids)
        self._is_last_grant = False
        self._meter.num_answers = len(ids)
        self.failure: ServingError | None = None

    @property
    def is_complete(self) -> bool:
        return not self._open

    @property
    def num_used(self) -> dict[int, int]:
        """The tokens read of each choice that has not ended, by id."""
        return {id_: self._choices[id_].reader.num_output_tokens for id_ in self._open}

    @property
    def is_accepted(self) -> bool:
        return not self._to_accept

    def replay(self, trail: Trail) -> None:
        """Read the tokens that an earlier process has read. Their events come after `Started`."""
        (choice,) = self._choices.values()
        for token_ids, logprobs in trail.known:
            self._read_tokens(choice, token_ids, logprobs, self._early)

    def read_from(self, output: OutputStream) -> None:
        self._output = output
        for choice in self._choices.values():  # the engine counts from the beginning
            choice.num_proposed = choice.num_accepted = 0

    def remaining(self, submits: Iterable[messages.Submit]) -> list[messages.Submit]:
        """Return the submissions for the next engine: unfinished choices go on after their tokens
        so far."""
        return [self._remaining(each) for each in submits if each.id in self._open]

    def _remaining(self, submit: messages.Submit) -> messages.Submit:
        token_ids, logits = self._choices[submit.id].token_ids, submit.logits
        if token_ids and logits is not None and logits.prompt_logprobs is not None:
            logits = structs.replace(logits, prompt_logprobs=None)  # sent already
        grammar = submit.grammar
        if grammar is not None and self._meter.unenforced:
            grammar = grammar.weaker or grammar
        has_seed = self._prepared.request.sampling.seed is not None
        return structs.replace(
            submit,
            known=messages.Known(
                token_ids.tobytes(), is_replayed=has_seed and bool(submit.sampling.temperature)
            ),
            logits=logits,
            grammar=grammar,
            deadline_s=max(0.0, submit.deadline_s - self._meter.total_s),
        )

    async def extend(self, grants: TokenGrants) -> None:
        if self._open:
            num_output_tokens = self._meter.tokens.num_output_tokens
            self._grant(grants, await grants.update(self.num_used, num_output_tokens))

    def grant_last(self, grants: TokenGrants) -> None:
        """Let choices end with their grants, where no more tokens can be reserved."""
        if grants.is_last:
            self._grant(grants, self._open)

    def _grant(self, grants: TokenGrants, ids: Iterable[int]) -> None:
        self._is_last_grant = grants.is_last
        for id_ in ids:
            self._output.grant(id_, grants.num_granted[id_], is_last=grants.is_last)

    def take(self, updates: list[GenerationUpdate]) -> list[Event]:
        """Return the events of these updates. Raises the error of a rejection before any text, to
        become the HTTP status. A later error is `failure`, to be raised once the text was sent."""
        events: list[Event] = []
        deltas, self._early = self._early, []
        for update in updates:
            match update:
                case messages.TokenOutput():
                    self._read(update, deltas)
                case messages.Accepted():
                    self._meter.is_prefilling |= update.is_begun
                    if update.id not in self._to_accept:
                        continue  # again, or by an engine that goes on
                    self._to_accept.discard(update.id)
                    self._meter.unenforced = update.unenforced
                    self._meter.accepted_s = self._meter.total_s
                    if not self._to_accept:
                        events += started(self._prepared)
                case messages.Rejected():
                    self.failure = self._error(update)
                    for choice in self._choices.values():
                        deltas += choice.buffer.release() if choice.buffer is not None else []
                    if not deltas:
                        raise self.failure
                case _:
                    assert_never(update)
        if self._to_accept:
            self._early = deltas
            return []
        if deltas and self._prepared.request.wants_progress:
            events.append(Progress(self._meter.tokens))
        if deltas and self._prepared.request.shows_arrival:
            events.append(Arrived(self._meter.total_s))
        events += deltas
        if updates and self.is_complete:
            events.append(Completed(self._meter.billed_tokens, at=int(time.time())))
        return events

    def _read(self, output: messages.TokenOutput, deltas: list[Event]) -> None:
        self._meter.has_begun = True
        if output.id not in self._open:
            return  # generated before the engine knew that a stop string had ended this choice
        choice = self._choices[output.id]
        events: list[Event] = []
        if output.queue_s is not None and not choice.token_ids:
            counts_cached = output.id in self._counts_cached
            num_cached_tokens = (output.num_cached_tokens or 0) if counts_cached else 0
            self._meter.begin(output.queue_s, output.prefill_s, num_cached_tokens)
            if output.encode_s is not None:
                self._meter.encode_s = (self._meter.encode_s or 0.0) + output.encode_s
        if output.prompt_logprobs is not None:
            events += self._scored_prompt(choice.index, output.prompt_logprobs)
        is_first = not choice.token_ids
        num_read = self._read_tokens(choice, output.token_ids, output.logprobs, events)
        self._count_drafts(choice, output)
        if self._shows_first and is_first and num_read:
            deltas.append(FirstToken(choice.index))
        if output.logprobs:
            choice.logprob_sum += sum(each.logprob for each in output.logprobs)
            choice.num_logprobs += len(output.logprobs)
        reader, finish = choice.reader, output.finish
        if reader.is_stopped:
            # The engine still generates, or has generated more than there is before the stop.
            self._output.cancel({output.id: reader.num_output_tokens})
            finish = finish or messages.FINISH_STOP
        if finish is not None:
            events += self._finish(choice, cast(Literal["stop", "length"], finish))
            self._open.discard(output.id)
        deltas += events if choice.buffer is None else choice.buffer.add(events, num_read)

    def _read_tokens(
        self,
        choice: _Choice,
        token_ids: Sequence[int],
        logprobs: tuple[messages.TokenLogprobs, ...],
        events: list[Event],
    ) -> int:
        """Read the new tokens and count them. Returns how many there were before a stop."""
        reader = choice.reader
        num_before, num_reasoning_before = reader.num_output_tokens, reader.num_reasoning_tokens
        tokens = self._prepared.answer_tokens(token_ids, logprobs) if logprobs else ()
        read = reader.feed(token_ids, tokens)
        num_read = reader.num_output_tokens - num_before
        choice.token_ids.extend(token_ids[:num_read])
        if self._prepared.trail is not None and num_read:
            self._prepared.trail.parts.append((tuple(token_ids[:num_read]), logprobs[:num_read]))
        if choice.raw is not None and num_read:
            ids = tuple(token_ids[:num_read])
            events.append(TokensGenerated(choice.index, ids, "".join(map(choice.raw.feed, ids))))
        events += read
        num_reasoning = reader.num_reasoning_tokens - num_reasoning_before
        self._meter.tokens = self._meter.tokens.with_generated(num_read, num_reasoning)
        return num_read

    def _count_drafts(self, choice: _Choice, output: messages.TokenOutput) -> None:
        if output.num_proposed:  # the engine sends the sums so far
            num_drafts = (
                output.num_proposed - choice.num_proposed,
                output.num_accepted - choice.num_accepted,
            )
            choice.num_proposed, choice.num_accepted = output.num_proposed, output.num_accepted
            self._meter.tokens = self._meter.tokens.with_generated(0, 0, *num_drafts)

    def _finish(self, choice: _Choice, finish: Literal["stop", "length"]) -> list[Event]:
        *last, finished = choice.reader.finish(finish)
        assert isinstance(finished, Finished)
        if choice.num_logprobs:
            finished = replace(finished, mean_logprob=choice.logprob_sum / choice.num_logprobs)
        if finished.reason is FinishReason.LENGTH:
            num, submits = choice.reader.num_output_tokens, self._prepared.submits
            if self._is_last_grant and num < submits[choice.index].max_new_tokens:
                finished = replace(finished, cause=QUOTA)  # it ended for want of grants
            else:
                is_full = self._prepared.is_bound_by_context(choice.index)
                finished = replace(finished, is_context_full=is_full)
        if self._meter.finish_reason != QUOTA:
            is_quota = finished.cause == QUOTA
            self._meter.finish_reason = QUOTA if is_quota else finished.reason.value
        self._meter.last_token_s = self._meter.total_s
        text = choice.raw.finish() if choice.raw is not None else ""  # of an incomplete character
        unfinished = [TokensGenerated(choice.index, (), text)] if text else []
        return [*last, *unfinished, finished]

    def _scored_prompt(
        self, index: int, logprobs: tuple[messages.TokenLogprobs, ...]
    ) -> list[Event]:
        """The tokens of a prompt, sent with its first choice, and the echo of each choice."""
        request = self._prepared.request
        at, sample = divmod(index, request.n)
        prompt = self._prepared.prompts[at]
        tokens = self._prepared.prompt_tokens(prompt, logprobs)
        events: list[Event] = [PromptScored(at, tokens)] if sample == 0 else []
        if isinstance(request.prompt, RawPrompts) and request.prompt.echo:
            echoed = tokens if request.logprobs.num_top is not None else ()
            events.append(TextDelta(index, self._prepared.engine.assets.text_of(prompt), echoed))
        return events

    def _error(self, rejected: messages.Rejected) -> ServingError:
        code, message = rejected.code, rejected.message
        request, param = self._prepared.request, None
        if "grammar" in code:
            wanted, message = request.grammar, cited(message)
            # A forced call has its grammar from the tools.
            param = "tools" if wanted is None or request.must_call else wanted.param
        error = error_from_code(code, message, param=param)
        error.retry_after_s = rejected.retry_after_s or error.retry_after_s
        return error
