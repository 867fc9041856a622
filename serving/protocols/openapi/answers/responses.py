"""The answers of Responses."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from serving.protocols.openapi.answers.base import ABSENT, Answer, Count, TokenLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Answer):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class OutputMessage(Answer):
    """Answer text of the model."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class SummaryText(Answer):
    """The whole reasoning."""

    type: Literal["summary_text"]
    text: str


class ThoughtText(Answer):
    """The whole reasoning."""

    type: Literal["reasoning_text"]
    text: str


class OutputReasoning(Answer):
    """Reasoning of the model. `summary` and `content` have the same text."""

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
    stop_reason: Literal["quota_exceeded"] = Field(
        default=ABSENT, description="A quota of the client was used up before that limit."
    )


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
    """A response in any state. Members that repeat the request have OpenAI's defaults."""

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
    """An event of a streamed response. Its members depend on its type."""

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
