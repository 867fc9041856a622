"""The message of an answer, its blocks, and the reasons why it ended."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, assert_never

from msgspec import UNSET, UnsetType
from pydantic import Field
from pydantic_core import from_json

from vinery_serving.core.events import FinishReason, TokenCounts
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import GenerationRequest, ToolCall
from vinery_serving.core.result import Item, ReasoningItem, TextItem
from vinery_serving.core.tools import INVALID_JSON
from vinery_serving.protocols.common.encoding import Answer, one_of
from vinery_serving.protocols.messages.errors import MessageErrorDetails

# Clients drop thinking without a signature. This server reads none.
SIGNATURE: Final = "vinery"

_EVENTS: Final = one_of(
    "message_start", "content_block_start", "content_block_delta", "content_block_stop",
    "message_delta", "message_stop", "ping", "error",
)  # fmt: skip
_STOP_REASON: Final = one_of(
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
)


class AnswerText(Answer, kw_only=True):
    type: Literal["text"] = "text"
    text: str


class AnswerThinking(Answer, kw_only=True):
    """Reasoning of the model. This server reads no signature."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str


class AnswerToolUse(Answer, kw_only=True):
    """A call of a tool. Arguments that are no JSON object are its member `INVALID_JSON`."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = AnswerText | AnswerThinking | AnswerToolUse


class ThinkingTokens(Answer, kw_only=True):
    thinking_tokens: int


class MessageUsage(Answer, kw_only=True):
    """Tokens of the whole request. The prompt has the first three together."""

    input_tokens: Annotated[int, Field(description="Without those from the prefix cache.")]
    cache_creation_input_tokens: Annotated[
        int, Field(description="0: the prefix cache fills itself.")
    ] = 0
    cache_read_input_tokens: Annotated[int, Field(description="From the prefix cache.")]
    output_tokens: int
    output_tokens_details: ThinkingTokens


class MessageAnswer(Answer, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: Sequence[AnswerBlock]
    stop_reason: Annotated[
        Annotated[str, _STOP_REASON] | None, Field(description="Null at the start of a stream.")
    ]
    stop_sequence: str | None
    usage: MessageUsage


class MessageDelta(Answer, kw_only=True):
    """More of a block, or the end of the message."""

    type: (
        Annotated[
            str, one_of("text_delta", "thinking_delta", "signature_delta", "input_json_delta")
        ]
        | UnsetType
    ) = UNSET
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    partial_json: str | UnsetType = UNSET
    stop_reason: Annotated[str, _STOP_REASON] | UnsetType = UNSET
    stop_sequence: str | UnsetType | None = UNSET


class MessageEvent(Answer, kw_only=True):
    """An event of a streamed message. Its members depend on its type."""

    type: Annotated[str, _EVENTS]
    message: MessageAnswer | UnsetType = UNSET
    index: int | UnsetType = UNSET
    content_block: AnswerBlock | UnsetType = UNSET
    delta: MessageDelta | UnsetType = UNSET
    usage: MessageUsage | UnsetType = UNSET
    error: MessageErrorDetails | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET


class MessageTokens(Answer, kw_only=True):
    input_tokens: int


Ending = tuple[str, str | None]  # `stop_reason` and `stop_sequence`


def message(
    identity: AnswerIdentity,
    content: Sequence[AnswerBlock],
    usage: TokenCounts,
    ending: Ending | None = None,
) -> MessageAnswer:
    """Return the message, by default one that has not ended."""
    stop_reason, stop_sequence = ending or (None, None)
    return MessageAnswer(
        id=identity.id("msg_"),
        model=identity.model,
        content=content,
        stop_reason=stop_reason,
        stop_sequence=stop_sequence,
        usage=usage_object(usage),
    )


def ending(
    reason: FinishReason,
    cause: str | int | None,
    request: GenerationRequest,
    *,
    is_context_full: bool,
) -> Ending:
    """Return why the answer ended.

    `refusal` and `pause_turn` never come: this server has no classifiers, and runs no tools.
    """
    match reason:
        case FinishReason.TOOL_CALLS:
            return "tool_use", None
        case FinishReason.LENGTH if is_context_full:
            return "model_context_window_exceeded", None
        case FinishReason.LENGTH:
            return "max_tokens", None
        case FinishReason.STOP if isinstance(cause, str) and cause in request.stopping.stop:
            return "stop_sequence", cause
        case FinishReason.STOP:
            return "end_turn", None
    assert_never(reason)


def usage_object(usage: TokenCounts) -> MessageUsage:
    """Return Anthropic's `usage`. Cached tokens are no `input_tokens` there."""
    return MessageUsage(
        input_tokens=max(0, usage.num_prompt_tokens - usage.num_cached_tokens),
        cache_read_input_tokens=usage.num_cached_tokens,
        output_tokens=usage.num_output_tokens,
        output_tokens_details=ThinkingTokens(thinking_tokens=usage.num_reasoning_tokens),
    )


def block(item: Item) -> AnswerBlock:
    """Return an item of the answer as a block."""
    match item:
        case TextItem(text=text):
            return AnswerText(text=text)
        case ReasoningItem(text=text):
            return AnswerThinking(thinking=text, signature=SIGNATURE)
        case ToolCall(id=id_, name=name, arguments=text):
            return AnswerToolUse(id=tool_use_id(id_), name=name, input=input_of(text))
    assert_never(item)


def tool_use_id(call_id: str) -> str:
    """Return the id of a call with Anthropic's prefix."""
    return f"toolu_{call_id.removeprefix('call_')}"


def input_of(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object. Those that the token limit has cut have the members
    that are complete, as Anthropic's clients read them from a stream. What is no JSON object is
    the member `INVALID_JSON`."""
    if not arguments.strip():
        return {}
    try:
        value = from_json(arguments, allow_partial=True, allow_inf_nan=False)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON: arguments}
