"""The fields that all three endpoints read alike: sampling, stopping, streaming, encoding."""

from __future__ import annotations

from typing import Literal

from serving.core.errors import InvalidRequest
from serving.core.request import (
    ALL_THAT_FIT,
    V1,
    V3,
    Conversation,
    Dialect,
    Encoding,
    Endpoint,
    GenerationRequest,
    Grammar,
    RawPrompts,
    Sampling,
    Stopping,
)
from serving.protocols.assistance import AssistanceFields
from serving.protocols.constraints import ConstraintFields
from serving.protocols.fields import (
    MaxTokens,
    MinP,
    MinTokens,
    ModelName,
    NumSamples,
    Penalty,
    ReasoningTokens,
    RepetitionPenalty,
    Seed,
    Stop,
    Temperature,
    TokenIds,
    TopK,
    TopP,
    TruncateTo,
)
from serving.protocols.handling import HandlingFields
from serving.protocols.labels import Labels
from serving.protocols.reading import Wire
from serving.protocols.search import SearchFields
from serving.protocols.steering import TokenFields

# OpenAI's description says 4, OVMS's source 16.
_MAX_STOPS = {V1.name: 4, V3.name: 16}


class StreamOptions(Wire):
    """`stream_options`. Deltas are padded only when asked for."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(
    Labels, HandlingFields, TokenFields, ConstraintFields, SearchFields, AssistanceFields
):
    """The part of a body that says how to generate, for every endpoint."""

    model: ModelName | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    seed: Seed | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    max_output_tokens: MaxTokens | None = None
    stop: Stop | None = None
    include_stop_str_in_output: bool | None = None
    min_tokens: MinTokens | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    # Only tokenizers that decode word by word ever put any: here there are none to leave out.
    spaces_between_special_tokens: bool | None = None
    thinking_token_budget: ReasoningTokens | None = None
    reasoning_max_tokens: ReasoningTokens | None = None
    include_reasoning: bool | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: TruncateTo | None = None
    truncation_side: Literal["left", "right"] | None = None
    n: NumSamples | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def output_limit(self) -> int | None:
        """The newest name wins. None: the client set no limit."""
        return self._named_limit[1]

    @property
    def is_streamed(self) -> bool:
        return bool(self.stream)

    @property
    def includes_usage(self) -> bool:
        """Whether a stream of chunks ends with the totals."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def is_obfuscated(self) -> bool:
        """Whether the deltas of a stream are padded to equal sizes."""
        return self.stream_options is not None and bool(self.stream_options.include_obfuscation)

    @property
    def wants_progress(self) -> bool:
        """As with vLLM, running counts are an addition to the totals."""
        options = self.stream_options
        return options is not None and self.includes_usage and bool(options.continuous_usage_stats)

    @property
    def hides_reasoning(self) -> bool:
        """Whether thoughts are left out of the answer."""
        return self.include_reasoning is False

    @property
    def shows_special_tokens(self) -> bool:
        """Whether special tokens are part of the text."""
        return self.skip_special_tokens is False

    def refuse_contradictions(self) -> None:
        """Raises `InvalidRequest` for fields that only make sense with others."""
        name, limit = self._named_limit
        if limit is not None and (self.min_tokens or 0) > limit:
            raise InvalidRequest(
                f"`min_tokens` must be at most `{name}`, which is {limit}.", param="min_tokens"
            )
        if self.prompt_logprobs is not None and self.is_streamed:
            raise InvalidRequest(
                "`prompt_logprobs` are not available when `stream` is true.",
                param="prompt_logprobs",
            )
        if self.stream_options is not None and not self.is_streamed:
            raise InvalidRequest(
                "`stream_options` is only allowed when `stream` is true.", param="stream_options"
            )

    def request(
        self,
        endpoint: Endpoint,
        prompt: Conversation | RawPrompts,
        dialect: Dialect,
        *,
        grammar: Grammar | None = None,
        default_limit: int | None = None,
    ) -> GenerationRequest:
        """The request in the inner form. Raises `InvalidRequest`."""
        n = self.n or 1
        return GenerationRequest(
            endpoint=endpoint,
            model=self.model,
            prompt=prompt,
            sampling=self.sampling(),
            stopping=self.stopping(dialect, default_limit=default_limit),
            n=n,
            beams=self.beams(n, dialect),
            assistance=self.assistance(),
            num_candidates=self.num_candidates(n, dialect, is_streamed=self.is_streamed),
            grammar=grammar,
            is_streamed=self.is_streamed,
            wants_progress=self.wants_progress,
            steering=self.steering(),
            logprobs=self.logprobs_options(),
            wants_token_ids=self.wants_token_ids,
            wants_prompt_text=bool(self.return_prompt_text),
            dialect=dialect,
            encoding=self.encoding(),
            hides_reasoning=self.hides_reasoning,
            shows_special_tokens=self.shows_special_tokens,
            handling=self.handling(),
        )

    def sampling(self) -> Sampling:
        """How to draw tokens. `top_p` 0 keeps only the likeliest token, so it becomes
        `top_k` 1: engines take no empty nucleus."""
        is_greedy = self.top_p == 0
        return Sampling(
            temperature=self.temperature,
            top_p=1.0 if is_greedy else self.top_p,
            top_k=1 if is_greedy else self.top_k,
            min_p=self.min_p,
            # Engines take no negative seeds: fold, so that equal seeds stay equal.
            seed=None if self.seed is None else self.seed % 2**63,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
        )

    def stopping(self, dialect: Dialect, *, default_limit: int | None = None) -> Stopping:
        """When to stop. Raises `InvalidRequest` for too many stop strings."""
        stops = tuple(self.stop or ())
        max_stops = _MAX_STOPS[dialect.name]
        if len(stops) > max_stops:
            raise InvalidRequest(f"`stop` must have at most {max_stops} entries.", param="stop")
        name, limit = self._named_limit
        return Stopping(
            max_tokens=limit,
            max_tokens_param=name,
            default_max_tokens=default_limit,
            stop=stops,
            include_stop_text=self._includes_stop_text(dialect),
            min_tokens=self.min_tokens or 0,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            max_reasoning_tokens=self._reasoning_limit,
            repetition=self.repetition(),
        )

    def encoding(self) -> Encoding:
        """How the prompt becomes tokens."""
        limit = self.truncate_prompt_tokens
        return Encoding(
            adds_special_tokens=self.add_special_tokens,
            max_tokens=ALL_THAT_FIT if limit == -1 else limit,
            keeps_start=self.truncation_side == "right",
        )

    @property
    def _named_limit(self) -> tuple[str, int | None]:
        """The limit of the output, and what the client calls it."""
        for name in ("max_output_tokens", "max_completion_tokens"):
            value: int | None = getattr(self, name)
            if value is not None:
                return name, value
        return "max_tokens", self.max_tokens

    @property
    def _reasoning_limit(self) -> int | None:
        for limit in (self.thinking_token_budget, self.reasoning_max_tokens):
            if limit is not None:
                return None if limit < 0 else limit
        return None

    def _includes_stop_text(self, dialect: Dialect) -> bool:
        if self.include_stop_str_in_output is not None:
            return self.include_stop_str_in_output
        return self.is_streamed and dialect.streams_stop_text
