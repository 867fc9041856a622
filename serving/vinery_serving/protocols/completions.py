"""Completions: the body of a request, and the two encodings of its answer.

Prompts are raw, so the output is parsed for reasoning and tool calls only if the client or the
model's options ask for that. OpenAI has no members for both, so FastDeploy's are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType
from pydantic import Field, PlainValidator

from vinery_serving.core import field_limits
from vinery_serving.core.dialects import Dialect
from vinery_serving.core.errors import MissingParameter
from vinery_serving.core.events import ReasoningDelta, Started, Token, TokensGenerated
from vinery_serving.core.memory import NO_MEMORY, Memory
from vinery_serving.core.request import Endpoint, RawPrompts
from vinery_serving.core.result import ChoiceResult, Result
from vinery_serving.protocols.common import chunks, encoding, generation
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.formats import RESPONSE_FORMAT, ResponseFormat
from vinery_serving.protocols.common.reading import (
    NO_LIMIT,
    Text,
    TokenId,
    TopLogprobs,
    invalid,
    parameter,
    refusal,
)


def _read_token_ids(value: object) -> tuple[generation.Prompt, ...]:
    """Read one or more prompts. FastDeploy's clients send [] for none."""
    if value == []:
        return ()
    prompts = generation.read_prompts(value)
    if any(isinstance(prompt, str) for prompt in prompts):
        raise invalid("must be one or more arrays of token ids")
    return prompts


TokenIdPrompts = Annotated[
    tuple[generation.Prompt, ...],
    PlainValidator(_read_token_ids, json_schema_input_type=list[TokenId] | generation.ManyIds),
]


class CompletionsBody(generation.ArrivalFields, generation.GenerationBody):
    """The parameters of completions."""

    prompt: generation.Prompts | None = parameter(
        "A text, several texts, token ids, or several lists of token ids."
    )
    response_format: ResponseFormat | None = parameter(RESPONSE_FORMAT)
    prompt_token_ids: TokenIdPrompts | None = parameter(
        "One or more lists of token ids, which replace `prompt`."
    )
    suffix: Text | None = parameter(
        "The text after the answer, for models with tokens to fill in the middle; refused for "
        "other models."
    )
    parse_output: bool | None = parameter(
        "Whether the answer has `reasoning_content` and `tool_calls` apart from its text, as in "
        "FastDeploy; not with `suffix` or a format of the answer. Calls that have no tag of their "
        "own stay text. Default: that of the model's options, else false."
    )
    echo: bool | None = parameter("The answer begins with its prompt.")
    logprobs: TopLogprobs | None = parameter(
        "The number of alternatives for each token of the answer, from 0 to 20, from the "
        "model's own distribution; also in streams."
    )
    # Clients that only want to score the prompt send 0.
    max_tokens: Annotated[int, Field(ge=NO_LIMIT, le=2**32 - 1)] | None = parameter(
        "The limit of output tokens; -1 is no limit but those of the model. Default: 16 on /v1, "
        "none on /v3. 0 needs `echo` or `prompt_logprobs`."
    )

    @property
    def num_top_logprobs(self) -> int | None:
        return self.logprobs

    def prompts(self) -> RawPrompts:
        """Return the prompts. Raises `InvalidRequest` for a missing prompt, and for too many
        answers."""
        prompts = self.prompt_token_ids or self.prompt
        if prompts is None:
            raise MissingParameter("`prompt` is required.", param="prompt")
        # The server keeps state for each answer. Evaluation tools ask for far fewer.
        limit = field_limits.ANSWERS
        if len(prompts) * (self.n or 1) > limit.value:
            raise refusal("prompt", f"asks for more than {limit.value} answers: prompts times `n`")
        return RawPrompts(prompts, echo=bool(self.echo), suffix=self.suffix or None)

    def refuse_contradictions(self) -> None:
        super().refuse_contradictions()
        if self.max_tokens == 0 and not self.echo and self.prompt_logprobs is None:
            raise refusal("max_tokens", "must be at least 1 unless `echo` is true")
        if self.parse_output and (self.suffix or self.constraint(self.response_format)):
            raise refusal("parse_output", "cannot go with `suffix` or a format of the answer")


class CompletionChoice(encoding.Answer, kw_only=True):
    """A whole answer, or a part of a streamed answer."""

    index: int
    text: str
    reasoning_content: str | UnsetType = UNSET  # With `parse_output`, like `tool_calls`
    tool_calls: list[chunks.ToolCallChunk | chunks.FunctionToolCall] | UnsetType = UNSET
    logprobs: encoding.CompletionLogprobs | None
    finish_reason: Annotated[str, encoding.one_of("stop", "length", "tool_calls")] | None
    stop_reason: chunks.StopReason | UnsetType = UNSET
    # FastDeploy's members, for requests with `return_token_ids`, and vLLM's.
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_tokens: chunks.PromptText | UnsetType = UNSET
    completion_token_ids: Sequence[int] | UnsetType = UNSET
    completion_tokens: chunks.RawText | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET
    prompt_text: str | UnsetType = UNSET
    prompt_logprobs: encoding.PromptLogprobs | UnsetType = UNSET
    arrival_time: float | UnsetType = UNSET


class Completion(encoding.Answer, kw_only=True):
    """The whole answer to a completion, and each event of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionChoice]
    usage: chunks.Usage | UnsetType | None = UNSET
    obfuscation: str | UnsetType = UNSET


def parse(
    body: bytes, dialect: Dialect, *, fingerprint: str | None = None, memory: Memory = NO_MEMORY
) -> CompletionsExchange:
    """Read the body of a completion request, which is never stored. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.COMPLETIONS, CompletionsBody, body)
    wire.refuse_contradictions()
    request = wire.request(
        Endpoint.COMPLETIONS,
        wire.prompts(),
        dialect,
        unused=unused,
        default_limit=dialect.completions_max_tokens,
        grammar=wire.constraint(wire.response_format),
        shows_arrival=wire.return_arrival_time,
        parses_output=wire.parse_output,
    )
    head = {"system_fingerprint": fingerprint}
    return CompletionsExchange(request, wire.includes_usage, wire.is_obfuscated, head)


@dataclass(frozen=True, slots=True)
class CompletionsExchange(chunks.ChunkExchange):
    """A completion request. Chunks and whole answers have the same `object`."""

    id_prefix = "cmpl-"
    kind = chunk_kind = "text_completion"
    text_open = b'"text":'
    no_text = b'"text":""'

    def choice(self, choice: ChoiceResult, result: Result) -> CompletionChoice:
        prompt = choice.index // self.request.n
        has_ids = self.request.wants_token_ids
        generated = _tokens(choice.token_ids, choice.raw_text) if has_ids else {}
        scored: chunks.Members = {}
        if self.request.logprobs.num_top_of_prompt is not None:
            scored = {"prompt_logprobs": encoding.prompt_logprobs(result.scored_prompts[prompt])}
        return CompletionChoice(
            text=choice.text,
            reasoning_content=choice.reasoning or UNSET,
            tool_calls=chunks.called_tools(choice.tool_calls),
            **self._prompt(result, prompt),
            **generated,
            **scored,
            **self.ended(choice, result),
        )

    def answer(self, result: Result, **members: Any) -> Completion:
        return Completion(**members)

    def logprobs(
        self, source: Started | Result, choice: int, *, is_streamed: bool
    ) -> Callable[[Sequence[Token]], object]:
        prompt = choice // self.request.n
        return encoding.TextLogprobs(source.prompt_chars[prompt] if source.prompt_chars else 0).of

    def start(self, event: Started, choice: int) -> chunks.Chunk | None:
        members = self._prompt(event, choice // self.request.n)
        return chunks.Chunk(self.no_text, members) if members else None

    def delta(self, event: chunks.OtherDelta) -> bytes:
        if isinstance(event, ReasoningDelta):
            return b'%b,"reasoning_content":%b' % (self.no_text, encoding.json_text(event.text))
        return b"%b,%b" % (self.no_text, chunks.call_delta(event))

    def tokens(self, event: TokensGenerated) -> chunks.Chunk:
        return chunks.Chunk(self.no_text, _tokens(event.token_ids, event.text))

    def _prompt(self, source: Started | Result, prompt: int) -> chunks.Members:
        members: dict[str, Any] = {}
        if self.request.wants_token_ids:
            members |= encoding.prompt_tokens(
                source.prompt_ids[prompt], source.prompt_texts[prompt]
            )
        if self.request.wants_prompt_text:
            members["prompt_text"] = source.prompt_texts[prompt]
        return members


def _tokens(token_ids: Sequence[int], text: str) -> chunks.Members:
    return {**encoding.completion_tokens(token_ids, text), "token_ids": token_ids}
