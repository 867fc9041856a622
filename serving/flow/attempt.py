"""One submission of a prepared to its engine, from the first word to the last token."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, assert_never, cast

from msgspec import structs

from serving.constraints.families.registry import by_name
from serving.core.errors import ServingError, error_from_code
from serving.core.events import (
    QUOTA,
    Completed,
    Event,
    Finished,
    FinishReason,
    Progress,
    PromptScored,
    Started,
    TextDelta,
    TokensGenerated,
)
from serving.core.ids import tool_call_id
from serving.core.request import GenerationRequest, RawPrompts, ToolMode
from serving.flow.allowance import Allowance, Shares
from serving.flow.directory import Engine
from serving.flow.meter import Meter
from serving.flow.pace import Pace
from serving.flow.steering import TokenWriter, check_engine
from serving.output.detokenize import Decoder
from serving.output.parser import EventSink, Parser
from serving.output.reader import ChoiceReader
from serving.output.writer import EventWriter
from serving.prompting.assets import Prompt
from serving.transport.client import EngineClient, GenerationUpdate, OutputStream
from serving.transport.messages import (
    FINISH_STOP,
    Accepted,
    Rejected,
    Submit,
    TokenLogprobs,
    TokenOutput,
)

# A stream that has said nothing for this long gets a comment, so that no proxy drops it.
SILENCE_S: Final = 15.0
PLAIN: Final = by_name("plain")


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that can be submitted: rendered, checked, and with all values decided."""

    request: GenerationRequest
    engine: Engine
    meter: Meter
    token: str  # of the answer's head; ids of tool calls derive from it
    prompts: tuple[Prompt, ...]
    # One for each choice, or none when nothing is to be made; ids are given when submitted.
    submits: tuple[Submit, ...]
    num_returned: int  # of the request's `n` choices for each prompt, the likeliest
    allowance: Allowance | None = None  # None: nobody counts

    def reader(self, choice: int) -> ChoiceReader:
        """A new reader for the tokens of a choice."""
        request, stopping = self.request, self.request.stopping
        prompt = self.prompts[choice // request.n]
        writer = EventWriter(
            choice,
            new_call_id=lambda index: tool_call_id(self.token, choice, index),
            tools=() if isinstance(request.prompt, RawPrompts) else request.prompt.tools,
            stop=stopping.stop,
            include_stop_text=stopping.include_stop_text,
            hides_reasoning=request.hides_reasoning,
            exposes_tokens=request.logprobs.num_top is not None,
        )
        return ChoiceReader(
            writer,
            self.engine.new_decoder(
                is_raw=isinstance(request.prompt, RawPrompts),
                shows_special=request.shows_special_tokens,
                after=prompt.token_ids if _continues_text(request) else (),
            ),
            self._parser(writer, choice),
            stop_ids=stopping.stop_token_ids,
            end_ids=prompt.end_ids,
            include_stop_text=stopping.include_stop_text,
            repetition=stopping.repetition,
            min_tokens=stopping.min_tokens,
            # As OpenAI and vLLM do for raw prompts; programs that score texts count on it.
            exposes_silent_tokens=isinstance(request.prompt, RawPrompts),
        )

    def raw_decoder(self) -> Decoder:
        """A decoder that leaves nothing out."""
        return self.engine.new_decoder(is_raw=True, shows_special=True)

    def text_of(self, prompt: Prompt) -> str:
        """What the model reads. What is to be filled in between has no text of its own."""
        assets, asked = self.engine.assets, self.request.prompt
        if isinstance(asked, RawPrompts) and asked.suffix is not None:
            return assets.tokenizer.decode(prompt.token_ids)
        return assets.text_of(prompt)

    @property
    def writer(self) -> TokenWriter:
        """Describes single tokens as the request wants them."""
        return TokenWriter(self.engine.assets, self.request.logprobs)

    def _parser(self, sink: EventSink, choice: int) -> Parser:
        """Raw prompts are completed as they are: nothing in their text is syntax. And where
        special tokens are to be seen, so is all that a parser would take away."""
        conversation = self.request.prompt
        if isinstance(conversation, RawPrompts) or self.request.shows_special_tokens:
            return PLAIN.parser.new_parser(sink, (), opens_reasoning=False)
        is_allowed = conversation.tool_choice.mode is not ToolMode.NONE
        tools = conversation.tools if is_allowed else ()
        prompt = self.prompts[choice // self.request.n]
        family = self.engine.family.parser
        return family.new_parser(sink, tools, opens_reasoning=prompt.opens_reasoning)


async def attempt(prepared: PreparedRequest) -> AsyncGenerator[list[Event], None]:
    """Batches of events, from `Started` to `Completed`; an empty one for each
    `SILENCE_S` without any. Raises `EngineDisconnected` or `ServingError`."""
    if not prepared.submits:
        prepared.meter.is_accepted = True
        yield _nothing_made(prepared)
        return
    hello = await prepared.engine.wait()
    check_engine(prepared.request, hello)
    client = prepared.engine.client
    submits = [_with_ids(submit, client, prepared.request.n) for submit in prepared.submits]
    if not hello.has_logits_hook:
        # All that can be left is the limit of an effort, which is a wish and no promise.
        submits = [structs.replace(submit, logits=None) for submit in submits]
    shares = _shares(prepared, submits)
    if shares is not None:
        submits = [structs.replace(s, num_granted=shares.num_shared[s.id]) for s in submits]
    run = client.submit(submits)
    reading = _Reading(prepared, run, [id_ for submit in submits for id_ in submit.ids])
    try:
        if shares is not None and shares.is_last:
            reading.grant(shares, shares.num_shared)
        told_at = time.monotonic()
        while not reading.is_complete:
            events = reading.take(await run.next(SILENCE_S))
            if shares is not None and prepared.meter.num_output_tokens >= shares.look_at:
                await reading.extend(shares)
            now = time.monotonic()
            # Tokens that tell a client nothing, such as hidden thoughts, are silence too.
            if events or now - told_at >= SILENCE_S:
                told_at = now
                yield events
            if reading.failure is not None:
                raise reading.failure
    finally:
        run.cancel(reading.num_used)


def _shares(prepared: PreparedRequest, submits: Iterable[Submit]) -> Shares | None:
    """None: nobody counts. What a search may use is reserved as a whole."""
    if prepared.allowance is None or any(submit.beams is not None for submit in submits):
        return None
    return Shares(prepared.allowance, {submit.id: submit.max_new_tokens for submit in submits})


def _continues_text(request: GenerationRequest) -> bool:
    """Whether the answer goes on with the text of its prompt, as opposed to a new message."""
    prompt = request.prompt
    if isinstance(prompt, RawPrompts):
        return True
    return prompt.rendering.continues_final_message or not prompt.rendering.uses_template


def _reason(finished: Event) -> str:
    if not isinstance(finished, Finished):
        return ""
    return QUOTA if finished.cause == QUOTA else finished.reason.value


def _with_ids(submit: Submit, client: EngineClient, n: int) -> Submit:
    """A search makes all answers of its prompt, each under an id of its own."""
    submit = structs.replace(submit, id=client.new_id())
    if submit.beams is None:
        return submit
    others = tuple(client.new_id() for _ in range(n - 1))
    return structs.replace(submit, beams=structs.replace(submit.beams, other_ids=others))


def _nothing_made(prepared: PreparedRequest) -> list[Event]:
    """The answer to a request for no tokens."""
    num_choices = prepared.request.num_choices
    finished = [Finished(choice, FinishReason.LENGTH) for choice in range(num_choices)]
    return [_started(prepared), *finished, Completed(prepared.meter.usage, at=int(time.time()))]


def _started(prepared: PreparedRequest) -> Started:
    request, prompts = prepared.request, prepared.prompts
    ids = tuple(prompt.token_ids for prompt in prompts) if request.wants_token_ids else ()
    wants_texts = request.wants_prompt_text or request.wants_token_ids
    texts = tuple(map(prepared.text_of, prompts)) if wants_texts else ()
    return Started(request.num_choices, ids, texts)


class _Reading:
    """Turns what the engine says of the choices of one run into events."""

    def __init__(self, prepared: PreparedRequest, run: OutputStream, ids: list[int]) -> None:
        self._job = prepared
        self._run = run
        self._readers = {id_: prepared.reader(choice) for choice, id_ in enumerate(ids)}
        # The samples of a prompt share it: it is counted once, and so is its cached part.
        self._counts_cached = set(ids[:: prepared.request.n])
        self._num_to_accept = len(ids)
        # What choices made before the last of them had its place: told after `Started`.
        self._early: list[Event] = []
        self._open = set(ids)
        self._proposals: dict[int, tuple[int, int]] = {}
        self._sums: dict[int, tuple[float, int]] = {}  # of log-probabilities, and how many
        self._choices = {id_: choice for choice, id_ in enumerate(ids)}
        handling = prepared.request.handling
        # For those who ask for ids: the text of all tokens, whatever is read out of it.
        self._raw = {id_: prepared.raw_decoder() for id_ in ids if prepared.request.wants_token_ids}
        is_paced = prepared.request.is_streamed and handling.stream_interval > 1
        self._paces = {id_: Pace(handling.stream_interval) for id_ in ids} if is_paced else {}
        self._is_capped = False
        prepared.meter.num_answers = len(ids)
        self.failure: ServingError | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every choice has finished."""
        return not self._open

    @property
    def num_used(self) -> dict[int, int]:
        """Of the choices that have not ended, how many tokens were read."""
        return {id_: self._readers[id_].num_output_tokens for id_ in self._open}

    async def extend(self, shares: Shares) -> None:
        """Ask for more tokens ahead of need."""
        if self._open:
            news = await shares.follow(self.num_used, self._job.meter.num_output_tokens)
            self.grant(shares, news)

    def grant(self, shares: Shares, ids: Iterable[int]) -> None:
        """Tell the engine what these may make."""
        self._is_capped = shares.is_last
        for id_ in ids:
            self._run.grant(id_, shares.num_shared[id_], is_last=shares.is_last)

    def take(self, said: list[GenerationUpdate]) -> list[Event]:
        """The events that this causes.

        A rejection is raised at once when no text came before it, so that it can still be
        a status; else it is the `failure` to raise once the text is told.
        """
        events: list[Event] = []
        deltas, self._early = self._early, []
        for each in said:
            match each:
                case TokenOutput():
                    self._read(each, deltas)
                case Accepted():
                    self._num_to_accept -= 1
                    self._job.meter.is_accepted = True
                    if self._num_to_accept == 0:
                        events.append(_started(self._job))
                case Rejected(code=code, message=message):
                    self.failure = self._error(code, message)
                    for pace in self._paces.values():
                        deltas += pace.release()
                    if not deltas:
                        raise self.failure
                case _:
                    assert_never(each)
        if self._num_to_accept > 0:
            self._early = deltas
            return []
        usage = self._job.meter.usage
        if deltas and self._job.request.wants_progress:
            events.append(Progress(usage))
        events += deltas
        if said and self.is_complete:
            events.append(Completed(usage, at=int(time.time())))
        return events

    def _read(self, output: TokenOutput, deltas: list[Event]) -> None:
        meter = self._job.meter
        if output.energy_j is not None:
            meter.energy_j = (meter.energy_j or 0.0) + output.energy_j
        if output.id not in self._open:
            return  # made before the engine heard that a stop string had ended this choice
        reader = self._readers[output.id]
        events: list[Event] = []
        if output.queue_s is not None:
            counts_cached = output.id in self._counts_cached
            num_cached_tokens = (output.num_cached_tokens or 0) if counts_cached else 0
            meter.begin(output.queue_s, output.prefill_s, num_cached_tokens)
        if output.prompt_logprobs is not None:
            events += self._scored(self._choices[output.id], output.prompt_logprobs)
        num_before, num_reasoning_before = reader.num_output_tokens, reader.num_reasoning_tokens
        tokens = (
            self._job.writer.answer(output.token_ids, output.logprobs) if output.logprobs else ()
        )
        read = reader.feed(output.token_ids, tokens)
        num_read = reader.num_output_tokens - num_before
        if self._raw and num_read:
            events.append(self._made(output.id, output.token_ids[:num_read]))
        events += read
        meter.num_output_tokens += num_read
        meter.num_reasoning_tokens += reader.num_reasoning_tokens - num_reasoning_before
        if output.num_proposed:
            self._count_proposals(output)
        self._sum_logprobs(output)
        finish = output.finish
        if reader.is_stopped and finish is None:
            finish = FINISH_STOP
        if reader.is_stopped:
            # It goes on, or has made more in one go than there is before its stop.
            self._run.cancel({output.id: reader.num_output_tokens})
        if finish is not None:
            *last, finished = reader.finish(cast(Literal["stop", "length"], finish))
            finished = self._explained(self._rated(finished, output.id), output.id)
            meter.finish_reason = _reason(finished)
            events += [*last, *self._unfinished(output.id), finished]
            self._open.discard(output.id)
            meter.last_token_s = meter.total_s
        if self._paces:
            events = self._paces[output.id].take(events, num_read)
        deltas += events

    def _made(self, id_: int, token_ids: tuple[int, ...]) -> TokensGenerated:
        text = "".join(map(self._raw[id_].feed, token_ids))
        return TokensGenerated(self._choices[id_], token_ids, text)

    def _unfinished(self, id_: int) -> list[Event]:
        """The character in whose middle a choice ended, for those who ask for ids."""
        text = self._raw[id_].finish() if self._raw else ""
        return [TokensGenerated(self._choices[id_], (), text)] if text else []

    def _count_proposals(self, output: TokenOutput) -> None:
        """The engine tells of each choice how many there were so far."""
        meter = self._job.meter
        proposed, accepted = self._proposals.get(output.id, (0, 0))
        meter.num_proposed_tokens += output.num_proposed - proposed
        meter.num_accepted_tokens += output.num_accepted - accepted
        self._proposals[output.id] = output.num_proposed, output.num_accepted

    def _sum_logprobs(self, output: TokenOutput) -> None:
        if output.logprobs:
            total, num_tokens = self._sums.get(output.id, (0.0, 0))
            total += sum(each.logprob for each in output.logprobs)
            self._sums[output.id] = total, num_tokens + len(output.logprobs)

    def _rated(self, finished: Event, id_: int) -> Event:
        if not isinstance(finished, Finished) or id_ not in self._sums:
            return finished
        total, num_tokens = self._sums[id_]
        return replace(finished, mean_logprob=total / num_tokens)

    def _explained(self, finished: Event, id_: int) -> Event:
        """An answer that ends before its own limit has used up a quota."""
        if not self._is_capped or not isinstance(finished, Finished):
            return finished
        limit = self._job.submits[self._choices[id_]].max_new_tokens
        is_cut = self._readers[id_].num_output_tokens < limit
        if finished.reason is FinishReason.LENGTH and is_cut:
            return replace(finished, cause=QUOTA)
        return finished

    def _scored(self, choice: int, logprobs: tuple[TokenLogprobs, ...]) -> list[Event]:
        """The tokens of a prompt, for its first choice; and for each its echo."""
        request = self._job.request
        at, sample = divmod(choice, request.n)
        prompt = self._job.prompts[at]
        tokens = self._job.writer.prompt(prompt, logprobs)
        events: list[Event] = [PromptScored(at, tokens)] if sample == 0 else []
        if isinstance(request.prompt, RawPrompts) and request.prompt.echo:
            echoed = tokens if request.logprobs.num_top is not None else ()
            events.append(TextDelta(choice, self._job.engine.assets.text_of(prompt), echoed))
        return events

    def _error(self, code: str, message: str) -> ServingError:
        grammar = self._job.request.grammar
        param = grammar.param if grammar is not None and "grammar" in code else None
        return error_from_code(code, message, param=param)
