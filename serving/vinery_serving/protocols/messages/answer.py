"""The message of an answer, its blocks, and the reasons why it ended."""

from collections.abc import Mapping
from typing import Any, Final, assert_never

from pydantic_core import from_json

from vinery_serving.core.events import FinishReason, TokenCounts
from vinery_serving.core.ids import AnswerIdentity
from vinery_serving.core.request import GenerationRequest, ToolCall
from vinery_serving.core.result import Item, ReasoningItem, TextItem
from vinery_serving.core.tools import INVALID_JSON

Members = dict[str, object]

# Clients drop thinking without a signature. This server reads none.
SIGNATURE: Final = "vinery"


def message(
    identity: AnswerIdentity,
    content: list[Members],
    usage: Members,
    ending: Members,
) -> Members:
    """Return the message; `ending` as of `ending`."""
    return {
        "id": identity.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": identity.model,
        "content": content,
        **ending,
        "usage": usage,
    }


UNFINISHED: Final[Mapping[str, None]] = {"stop_reason": None, "stop_sequence": None}


def ending(
    reason: FinishReason,
    cause: str | int | None,
    request: GenerationRequest,
    *,
    is_context_full: bool,
) -> Members:
    """Return why the answer ended, as `stop_reason` and `stop_sequence`.

    `refusal` and `pause_turn` never come: this server has no classifiers, and runs no tools.
    """
    match reason:
        case FinishReason.TOOL_CALLS:
            return {"stop_reason": "tool_use", "stop_sequence": None}
        case FinishReason.LENGTH if is_context_full:
            return {"stop_reason": "model_context_window_exceeded", "stop_sequence": None}
        case FinishReason.LENGTH:
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        case FinishReason.STOP if cause in request.stopping.stop:
            return {"stop_reason": "stop_sequence", "stop_sequence": cause}
        case FinishReason.STOP:
            return {"stop_reason": "end_turn", "stop_sequence": None}
    assert_never(reason)


def usage_object(usage: TokenCounts) -> Members:
    """Return Anthropic's `usage`. Cached tokens are no `input_tokens` there."""
    return {
        "input_tokens": max(0, usage.num_prompt_tokens - usage.num_cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.num_cached_tokens,
        "output_tokens": usage.num_output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.num_reasoning_tokens},
    }


def block(item: Item) -> Members:
    """Return an item of the answer as a block."""
    match item:
        case TextItem(text=text):
            return {"type": "text", "text": text}
        case ReasoningItem(text=text):
            return {"type": "thinking", "thinking": text, "signature": SIGNATURE}
        case ToolCall(id=id_, name=name, arguments=text):
            return {
                "type": "tool_use",
                "id": tool_use_id(id_),
                "name": name,
                "input": input_of(text),
            }
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
