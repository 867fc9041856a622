"""The answers of chats and completions."""

from __future__ import annotations

from typing import Literal

from serving.protocols.openapi.answers.base import (
    ABSENT,
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    Answer,
    ChatLogprobs,
    PromptLogprobs,
    StopReason,
    TextLogprobs,
    Usage,
)

FinishReason = Literal["stop", "length", "tool_calls", "function_call"]


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
    """The model's answer. Reasoning has two names, because clients read one or the other."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str = ABSENT
    reasoning: str = ABSENT
    tool_calls: list[ToolCall] = ABSENT
    function_call: CalledFunction = ABSENT
    prompt_token_ids: list[int] = ABSENT
    prompt_tokens: str = PROMPT_TOKENS
    completion_token_ids: list[int] = ABSENT
    completion_tokens: str = COMPLETION_TOKENS


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
    """More of a call: its name first, then parts of its arguments."""

    name: str = ABSENT
    arguments: str


class CalledCustomToolDelta(Answer):
    """More of a call: its name first, then parts of its input."""

    name: str = ABSENT
    input: str


class ToolCallDelta(Answer):
    """More of a call. Its id and type come in its first chunk."""

    index: int
    id: str = ABSENT
    type: Literal["function", "custom"] = ABSENT
    function: CalledFunctionDelta = ABSENT
    custom: CalledCustomToolDelta = ABSENT


class ChatDelta(Answer):
    """More of an answer. The role comes in the first chunk."""

    role: Literal["assistant"] = ABSENT
    content: str = ABSENT
    reasoning_content: str = ABSENT
    reasoning: str = ABSENT
    tool_calls: list[ToolCallDelta] = ABSENT
    function_call: CalledFunctionDelta = ABSENT
    prompt_token_ids: list[int] = ABSENT
    prompt_tokens: str = PROMPT_TOKENS
    completion_token_ids: list[int] = ABSENT
    completion_tokens: str = COMPLETION_TOKENS


class ChatChunkChoice(Answer):
    """More of one answer."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: StopReason = ABSENT
    token_ids: list[int] = ABSENT


class ChatCompletionChunk(Answer):
    """An event of a streamed chat. The event with the total usage has no choices."""

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
    prompt_tokens: str = PROMPT_TOKENS
    completion_token_ids: list[int] = ABSENT
    completion_tokens: str = COMPLETION_TOKENS
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
