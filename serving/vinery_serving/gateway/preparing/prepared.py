"""A request that is ready for its engine, with the readers of the engine's output."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, Final, Self

from vinery_serving.core.events import (
    NO_TOKENS,
    Token,
    TokenCounts,
    TopLogprob,
    without_leading_spaces,
)
from vinery_serving.core.ids import tool_call_id
from vinery_serving.core.media import NO_MEDIA, MediaUsage
from vinery_serving.core.request import GenerationRequest, RawPrompts, Tool, ToolMode
from vinery_serving.core.result import ChoiceResult, Result
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.output.lexer import Parser
from vinery_serving.output.parsers.base import PlainParser
from vinery_serving.output.reader import ChoiceReader
from vinery_serving.output.writer import EventWriter
from vinery_serving.prompting.assets import Prompt
from vinery_serving.transport.messages import Submit, TokenLogprobs

_BYTES_PER_TOKEN: Final = 40  # An integer in a tuple, and the bytes of `Submit.prompt_ids`
# A raw prompt may describe any tool. A call that only the tool's name marks is not recognized.
_UNKNOWN_TOOLS: Final = (Tool(""),)


@dataclass(frozen=True, slots=True)
class Origin:
    deadline_s: float  # seconds from the beginning of the request
    request_id: str = ""
    lane: tuple[int, int] = (0, 0)  # the ids of the caller's organisation and key, 0 for none


@dataclass(frozen=True, slots=True)
class Draft:
    """All of a prepared request that needs no engine."""

    request: GenerationRequest
    prompts: tuple[Prompt, ...]
    # A submission for each choice, without ids; empty when no token is to be generated.
    submits: tuple[Submit, ...]
    num_returned: int  # how many of the `n` choices of each prompt are returned, the likeliest
    # The limit of output tokens, if it is less than the client asked for.
    clamped_to: int | None = None
    media: MediaUsage = NO_MEDIA
    # The tokens of pictures and clips in the prompt: indexes of the first, and after the last.
    media_spans: tuple[tuple[int, int], ...] = ()
    tokens: TokenCounts = NO_TOKENS  # of the prompts
    summarizes: bool = False  # the prompt asks for a summary of the conversation


# Token ids, and their log-probabilities if these were asked for.
TrailPart = tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]


@dataclass(slots=True)
class Trail:
    """The tokens of the one choice, in the parts in which they were read: a process that reads them
    again in these parts gets the same events. `known` were read by an earlier process."""

    known: Sequence[TrailPart] = ()
    parts: list[TrailPart] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest(Draft):
    engine: Engine
    meter: Meter
    token: str  # of the answer's id; the ids of tool calls derive from it
    trail: Trail | None = None

    @classmethod
    def of(
        cls, draft: Draft, engine: Engine, meter: Meter, token: str, trail: Trail | None = None
    ) -> Self:
        meter.tokens = draft.tokens
        meter.media_spans, meter.media = draft.media_spans, meter.media + draft.media
        values: dict[str, Any] = {each.name: getattr(draft, each.name) for each in fields(draft)}
        return cls(**values, engine=engine, meter=meter, token=token, trail=trail)

    @property
    def num_later_tokens(self) -> int:
        """As many prompt tokens may the answer after a summary have."""
        if not self.request.compact_above:
            return 0
        return self.meter.tokens.num_prompt_tokens + self.submits[0].max_new_tokens

    @property
    def num_bytes(self) -> int:
        """The memory of the prompts and their media, which the submissions of a prompt share."""
        num_media = sum(each.num_bytes for submit in self.submits[:1] for each in submit.media)
        return num_media + _BYTES_PER_TOKEN * self.meter.tokens.num_prompt_tokens

    def reader(self, choice: int) -> ChoiceReader:
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
                is_raw=self._is_raw,
                shows_special=request.shows_special_tokens,
                after=prompt.token_ids if _continues_text(request) else (),
            ),
            self._parser(writer, prompt),
            stop_ids=stopping.stop_token_ids,
            end_ids=prompt.end_ids,
            include_stop_text=stopping.include_stop_text,
            repetition=stopping.repetition,
            min_tokens=stopping.min_tokens,
            # As OpenAI and vLLM do for raw prompts; programs that score texts rely on it.
            exposes_silent_tokens=self._is_raw,
        )

    def is_bound_by_context(self, choice: int) -> bool:
        """Whether a choice may have fewer tokens than the client asked for, because prompt and
        answer fill the model's context."""
        max_context = self.engine.max_context
        if max_context is None:
            return False
        prompt = choice // self.request.n
        # All choices of a prompt have one limit, and the beams of a search have one submission.
        submit = self.submits[prompt * len(self.submits) // len(self.prompts)]
        asked, limit = self.request.stopping.max_tokens, submit.max_new_tokens
        num_prompt_tokens = len(self.prompts[prompt].token_ids)
        is_less = asked is None or limit < asked
        return is_less and num_prompt_tokens + limit >= max_context

    def best_of(self, result: Result) -> Result:
        """Return the result with the choices of each prompt that are returned, in descending order
        of the mean log-probability of a choice's tokens."""
        if self.num_returned == self.request.n:
            return result
        chosen: list[ChoiceResult] = []
        for _, candidates in groupby(result.choices, lambda each: each.index // self.request.n):
            best = sorted(
                candidates,
                key=lambda each: -math.inf if each.mean_logprob is None else each.mean_logprob,
                reverse=True,
            )[: self.num_returned]
            chosen += [replace(each, index=len(chosen) + at) for at, each in enumerate(best)]
        return replace(result, choices=tuple(chosen))

    def text_of(self, prompt: Prompt) -> str:
        """Return the text of the prompt's tokens. A prompt with a suffix is decoded, since its text
        lacks the suffix and the markers."""
        assets, prompts = self.engine.assets, self.request.prompt
        if isinstance(prompts, RawPrompts) and prompts.suffix is not None:
            return assets.tokenizer.decode(prompt.token_ids)
        return assets.text_of(prompt)

    def answer_tokens(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
    ) -> tuple[Token, ...]:
        return tuple(self._token(id_, each) for id_, each in zip(token_ids, logprobs, strict=True))

    def prompt_tokens(self, prompt: Prompt, logprobs: Sequence[TokenLogprobs]) -> tuple[Token, ...]:
        """Return all tokens of a prompt. The first has no log-probability: no token precedes it."""
        first, *rest = prompt.token_ids
        text, raw = self._text(first)
        tokens = (Token(first, text, raw, None, None), *self.answer_tokens(rest, logprobs))
        return self._aligned(tokens, self.engine.assets.text_of(prompt).encode())

    def _aligned(self, tokens: Sequence[Token], text: bytes) -> tuple[Token, ...]:
        """The same tokens, each with its bytes in the text: a special token may have none, and
        the first may begin with spaces that the text lacks."""
        special, aligned = self.engine.assets.tokenizer.facts.special_texts, list[Token]()
        at, has_begun = 0, False
        for number, token in enumerate(tokens):
            own = token
            if token.id in special and not text.startswith(token.raw, at):
                own = replace(token, raw=b"")
            elif not has_begun:
                num_missing = _num_missing_spaces(tokens[number:], text)
                own, has_begun = without_leading_spaces(token, num_missing), True
            aligned.append(own)
            at += len(own.raw)
        return tuple(aligned)

    def _token(self, token_id: int, logprobs: TokenLogprobs) -> Token:
        text, raw = self._text(token_id)
        others = tuple(
            TopLogprob(id_, *self._text(id_), logprob) for id_, logprob in logprobs.others
        )
        return Token(token_id, text, raw, logprobs.logprob, logprobs.rank, others)

    def _text(self, token_id: int) -> tuple[str, bytes]:
        raw = self.engine.assets.tokenizer.token_bytes(token_id)
        as_id = self.request.logprobs.tokens_as_ids
        return f"token_id:{token_id}" if as_id else raw.decode(errors="replace"), raw

    def _parser(self, writer: EventWriter, prompt: Prompt) -> Parser:
        """Answers to raw prompts, and answers that show special tokens, are plain text."""
        conversation = self.request.prompt
        if self._is_raw or self.request.shows_special_tokens:
            return PlainParser(writer.text)
        family = self.engine.family.parser
        if isinstance(conversation, RawPrompts):
            is_open = self.engine.assets.opens_reasoning(prompt)
            return family.new_parser(writer, _UNKNOWN_TOOLS, opens_reasoning=is_open)
        is_allowed = conversation.tool_choice.mode is not ToolMode.NONE
        tools = conversation.tools if is_allowed else ()
        return family.new_parser(writer, tools, opens_reasoning=prompt.opens_reasoning)

    @property
    def _is_raw(self) -> bool:
        """Whether answers are texts as the model writes them."""
        return isinstance(self.request.prompt, RawPrompts) and not self.request.parses_output


def _continues_text(request: GenerationRequest) -> bool:
    """Whether the answer continues the text of its prompt. Otherwise it is a new message."""
    prompt = request.prompt
    if isinstance(prompt, RawPrompts):
        return True
    return prompt.rendering.continues_final_message or not prompt.rendering.uses_template


def _num_missing_spaces(tokens: Iterable[Token], text: bytes) -> int:
    raw = b"".join(token.raw for token in tokens)
    count = _num_leading_spaces(raw) - _num_leading_spaces(text)
    return count if count > 0 and raw.startswith(text, count) else 0


def _num_leading_spaces(text: bytes) -> int:
    return len(text) - len(text.lstrip(b" "))
