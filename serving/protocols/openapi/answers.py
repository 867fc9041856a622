"""What the endpoints answer, as types.

Answers are written as bytes, token by token, so these types take no part in it: they tell
clients what to expect, and a test holds every answer against them. Members without a
default are always there; those with `ABSENT` only where they have something to say.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

# Stands for the default of a member that may be absent, but is not null.
ABSENT: Final[Any] = None

FinishReason = Literal["stop", "length", "tool_calls", "function_call"]
# The stop string or stop token that ended it, or `repetition_detected`; null otherwise.
StopReason = str | int | None
ItemStatus = Literal["in_progress", "completed", "incomplete"]
Count = int


def _open(schema: dict[str, Any]) -> None:
    """Clients are to expect more members one day."""
    schema.pop("additionalProperties", None)


class Answer(BaseModel):
    """The base: in tests, a member that is not described is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=_open)


# -- Errors ----------------------------------------------------------------------------


class ErrorDetails(Answer):
    """What went wrong, and what to change."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = Field(description="The path of the field, such as `messages[2].content`.")
    code: str | None = Field(description="Listed in docs/errors.md.")


class Error(Answer):
    """Every error, whatever its status; also the last event of a stream that failed."""

    error: ErrorDetails


# -- Models and tokenizers -------------------------------------------------------------


class Model(Answer):
    """A served model, loaded or not."""

    id: str
    object: Literal["model"]
    created: int = Field(description="Seconds since 1970.")
    owned_by: str


class ModelList(Answer):
    """All served models."""

    object: Literal["list"]
    data: list[Model]


class Version(Answer):
    """The server's version."""

    version: str


class CountedTokens(Answer):
    """The answer to a `prompt` or to `messages`."""

    count: Count
    max_model_len: int | None = Field(description="The model's context, in tokens.")
    tokens: list[int]
    token_strs: list[str] | None


class Tokens(Answer):
    """The answer to a `text`, or to several."""

    tokens: list[int] | list[list[int]]


class Tokenized(RootModel[CountedTokens | Tokens]):
    """Tokens, in the shape of the system whose body was sent."""


class Detokenized(Answer):
    """The text of some tokens."""

    prompt: str


class AddedToken(Answer):
    """A token that was added to a vocabulary."""

    model_config = ConfigDict(extra="allow")

    content: str = ABSENT
    special: bool = ABSENT


class TokenizerInfo(Answer):
    """A tokenizer, in the words of Hugging Face's files. Null: the model's folder does not
    say."""

    tokenizer_class: str | None
    bos_token: str | None
    eos_token: str | None
    unk_token: str | None
    sep_token: str | None
    pad_token: str | None
    cls_token: str | None
    added_tokens_decoder: dict[str, AddedToken] = Field(description="By id.")
    model_max_length: int | None = Field(description="The model's context, in tokens.")
    chat_template: str | None


class InputTokens(Answer):
    """How long the prompt of a request would be."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


# -- Log-probabilities and usage -------------------------------------------------------


class TokenChance(Answer):
    """A token that might have stood here."""

    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogprob(TokenChance):
    """A token of the answer."""

    top_logprobs: list[TokenChance]


class ChatLogprobs(Answer):
    """The tokens of a chat's answer, or of a piece of it."""

    content: list[TokenLogprob]
    refusal: None


class TextLogprobs(Answer):
    """The tokens of a completion, or of a piece of it, as parallel lists."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[int]


class RankedToken(Answer):
    """How likely a token of a prompt was."""

    logprob: float | None
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, RankedToken] | None]


class PromptDetails(Answer):
    """Part of the prompt's tokens."""

    cached_tokens: Count = Field(description="Taken from the prefix cache.")


class CompletionDetails(Answer):
    """Part of the answer's tokens."""

    reasoning_tokens: Count
    accepted_prediction_tokens: Count = ABSENT
    rejected_prediction_tokens: Count = ABSENT


class Usage(Answer):
    """Tokens of the whole request, all its answers together."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


# With `return_token_ids`, as FastDeploy tells them.
_PROMPT_TOKENS: Final[Any] = Field(default=ABSENT, description="Their text.")
_COMPLETION_TOKENS: Final[Any] = Field(
    default=ABSENT, description="Their text, special tokens included and nothing taken out."
)


# -- Chat ------------------------------------------------------------------------------


class CalledFunction(Answer):
    """A function and its arguments, as JSON text."""

    name: str
    arguments: str


class FunctionToolCall(Answer):
    """A call of a function."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class CalledCustomTool(Answer):
    """A custom tool and its input."""

    name: str
    input: str


class CustomToolCall(Answer):
    """A call of a custom tool."""

    id: str
    type: Literal["custom"]
    custom: CalledCustomTool


ToolCall = FunctionToolCall | CustomToolCall


class ChatMessage(Answer):
    """What the model said. Thoughts are told under two names: clients read one or the other."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str = ABSENT
    reasoning: str = ABSENT
    tool_calls: list[ToolCall] = ABSENT
    function_call: CalledFunction = ABSENT
    prompt_token_ids: list[int] = ABSENT
    prompt_tokens: str = _PROMPT_TOKENS
    completion_token_ids: list[int] = ABSENT
    completion_tokens: str = _COMPLETION_TOKENS


class ChatChoice(Answer):
    """One answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: StopReason
    token_ids: list[int] = ABSENT


class ChatCompletion(Answer):
    """The whole answer to a chat."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None
    service_tier: str = ABSENT
    metadata: dict[str, str] = ABSENT
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] = ABSENT
    prompt_text: str = ABSENT
    prompt_logprobs: PromptLogprobs = ABSENT


class CalledFunctionDelta(Answer):
    """More of a call: its name first, then its arguments piece by piece."""

    name: str = ABSENT
    arguments: str


class CalledCustomToolDelta(Answer):
    """More of a call: its name first, then its input piece by piece."""

    name: str = ABSENT
    input: str


class ToolCallDelta(Answer):
    """More of a call. Its id and type come once."""

    index: int
    id: str = ABSENT
    type: Literal["function", "custom"] = ABSENT
    function: CalledFunctionDelta = ABSENT
    custom: CalledCustomToolDelta = ABSENT


class ChatDelta(Answer):
    """More of an answer. The role comes once."""

    role: Literal["assistant"] = ABSENT
    content: str = ABSENT
    reasoning_content: str = ABSENT
    reasoning: str = ABSENT
    tool_calls: list[ToolCallDelta] = ABSENT
    function_call: CalledFunctionDelta = ABSENT
    prompt_token_ids: list[int] = ABSENT
    prompt_tokens: str = _PROMPT_TOKENS
    completion_token_ids: list[int] = ABSENT
    completion_tokens: str = _COMPLETION_TOKENS


class ChatChunkChoice(Answer):
    """More of one answer."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: StopReason = ABSENT
    token_ids: list[int] = ABSENT


class ChatCompletionChunk(Answer):
    """An event of a streamed chat. The one with the totals has no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | None
    service_tier: str = ABSENT
    choices: list[ChatChunkChoice]
    usage: Usage | None = ABSENT
    prompt_token_ids: list[int] = ABSENT
    prompt_text: str = ABSENT
    obfuscation: str = ABSENT


# -- Completions -----------------------------------------------------------------------


class CompletionChoice(Answer):
    """One answer, or more of one."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    stop_reason: StopReason = ABSENT
    prompt_text: str = ABSENT
    token_ids: list[int] = ABSENT
    prompt_token_ids: list[int] = ABSENT
    prompt_tokens: str = _PROMPT_TOKENS
    completion_token_ids: list[int] = ABSENT
    completion_tokens: str = _COMPLETION_TOKENS
    prompt_logprobs: PromptLogprobs = ABSENT


class Completion(Answer):
    """The whole answer to a completion, and each event of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionChoice]
    usage: Usage | None = ABSENT
    obfuscation: str = ABSENT


# -- Responses -------------------------------------------------------------------------


class OutputText(Answer):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class OutputMessage(Answer):
    """What the model said."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class SummaryText(Answer):
    """A thought, whole."""

    type: Literal["summary_text"]
    text: str


class ThoughtText(Answer):
    """A thought, whole."""

    type: Literal["reasoning_text"]
    text: str


class OutputReasoning(Answer):
    """What the model thought. Both places hold all of it."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[SummaryText]
    content: list[ThoughtText]
    encrypted_content: str | None


class OutputCall(Answer):
    """A call of a function."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    namespace: str = ABSENT
    arguments: str


class OutputCustomCall(Answer):
    """A call of a custom tool."""

    id: str
    type: Literal["custom_tool_call"]
    status: ItemStatus
    call_id: str
    name: str
    namespace: str = ABSENT
    input: str


OutputItem = OutputMessage | OutputReasoning | OutputCall | OutputCustomCall


class InputDetails(Answer):
    """Part of the prompt's tokens."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputDetails(Answer):
    """Part of the answer's tokens."""

    reasoning_tokens: Count
    accepted_prediction_tokens: Count = ABSENT
    rejected_prediction_tokens: Count = ABSENT


class ResponseUsage(Answer):
    """Tokens of the whole request."""

    input_tokens: Count
    input_tokens_details: InputDetails
    output_tokens: Count
    output_tokens_details: OutputDetails
    total_tokens: Count


class ResponseError(Answer):
    """Why a response failed."""

    code: Literal["rate_limit_exceeded", "invalid_prompt", "server_error"]
    message: str


class IncompleteDetails(Answer):
    """`max_output_tokens` on /v1, `max_tokens` on /v3."""

    reason: Literal["max_output_tokens", "max_tokens"]


class EchoedInputFormat(Answer):
    """The `format` of a custom tool, repeated. A grammar comes with its members."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] = ABSENT
    definition: str = ABSENT


class EchoedCustomTool(Answer):
    """A custom tool, in the flat form."""

    type: Literal["custom"]
    name: str
    description: str | None
    format: EchoedInputFormat


class EchoedFunction(Answer):
    """A function, in the flat form."""

    type: Literal["function"]
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None


class EchoedNamespace(Answer):
    """A namespace with its tools."""

    type: Literal["namespace"]
    name: str
    description: str
    tools: list[EchoedFunction | EchoedCustomTool]


EchoedTool = EchoedFunction | EchoedCustomTool | EchoedNamespace


class EchoedReasoning(Answer):
    """`reasoning`, repeated."""

    effort: str | None
    summary: str | None
    context: str = ABSENT
    mode: str = ABSENT


class EchoedFormat(Answer):
    """`text.format`, repeated. A schema comes with its members."""

    type: str
    name: str = ABSENT
    description: str | None = ABSENT
    schema_: dict[str, Any] = Field(default=ABSENT, alias="schema")
    strict: bool | None = ABSENT


class EchoedText(Answer):
    """`text`, repeated."""

    format: EchoedFormat
    verbosity: Literal["low", "medium", "high"]


class EchoedCacheOptions(Answer):
    """`prompt_cache_options`, repeated."""

    mode: str
    ttl: str


class Response(Answer):
    """A response, in any state of its life. What was not asked for has OpenAI's defaults."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    completed_at: int | None
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    previous_response_id: None
    tools: list[EchoedTool]
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any]
    parallel_tool_calls: bool
    reasoning: EchoedReasoning
    text: EchoedText
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    truncation: Literal["auto", "disabled"]
    service_tier: str
    store: bool
    background: bool
    metadata: dict[str, str]
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    prompt_cache_options: EchoedCacheOptions = ABSENT


class ResponseEvent(Answer):
    """An event of a streamed response. Its type says which of the members it has."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "error",
    ]
    sequence_number: int
    response: Response = ABSENT
    item: OutputItem = ABSENT
    item_id: str = ABSENT
    output_index: int = ABSENT
    content_index: int = ABSENT
    summary_index: int = ABSENT
    part: OutputText | SummaryText | ThoughtText = ABSENT
    delta: str = ABSENT
    text: str = ABSENT
    logprobs: list[TokenLogprob] = ABSENT
    call_id: str = ABSENT
    name: str = ABSENT
    namespace: str = ABSENT
    arguments: str = ABSENT
    input: str = ABSENT
    obfuscation: str = ABSENT
    code: str | None = Field(default=ABSENT, description="Of the event `error`.")
    message: str = ABSENT
    param: str | None = ABSENT
