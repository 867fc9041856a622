"""The tool calls of an answer, in both forms of chats. Completions have the first."""

from collections.abc import Sequence

from vinery_serving.core.events import FinishReason, ToolCallDelta
from vinery_serving.core.request import ToolCall
from vinery_serving.protocols.common.encoding import json_members, json_text


class ToolCalls:
    """The calls of an answer as `tool_calls`: any number, each with an id and an index."""

    def member(self, calls: Sequence[ToolCall]) -> dict[str, object]:
        """Return the member of a message for its calls, at least one."""
        return {"tool_calls": [_call(call) for call in calls]}

    def start(self, index: int, call: ToolCall) -> bytes:
        """Return the members of a delta for the start of `call`, which is empty."""
        return json_members({"tool_calls": [{"index": index, **_call(call)}]})

    def delta(self, event: ToolCallDelta) -> bytes:
        """Return the members of a delta for more arguments or input of a call."""
        member = b'"custom":{"input":' if event.is_custom else b'"function":{"arguments":'
        return b'"tool_calls":[{"index":%d,%b%b}}]' % (event.index, member, json_text(event.text))

    def reason(self, reason: FinishReason) -> str:
        return reason.value


class FunctionCall(ToolCalls):
    """The answer's first call as `function_call`, for requests with the deprecated `functions`.
    It has no id. The form has no further calls and no custom tools."""

    def member(self, calls: Sequence[ToolCall]) -> dict[str, object]:
        return {"function_call": _called(calls[0])}

    def start(self, index: int, call: ToolCall) -> bytes:
        return json_members({"function_call": _called(call)}) if index == 0 else b""

    def delta(self, event: ToolCallDelta) -> bytes:
        if event.index or event.is_custom:
            return b""
        return b'"function_call":{"arguments":%b}' % json_text(event.text)

    def reason(self, reason: FinishReason) -> str:
        return "function_call" if reason is FinishReason.TOOL_CALLS else reason.value


def _call(call: ToolCall) -> dict[str, object]:
    kind = "custom" if call.is_custom else "function"
    return {"id": call.id, "type": kind, kind: _called(call)}


def _called(call: ToolCall) -> dict[str, object]:
    return {"name": call.name, "input" if call.is_custom else "arguments": call.arguments}
