"""How the answer of a chat carries tool calls: as `tool_calls`, or as the one
`function_call` of clients that still ask with the deprecated `functions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from serving.core.events import FinishReason, ToolArgsDelta, ToolCallStarted, ToolInputDelta
from serving.core.result import Call, CustomCall
from serving.protocols.sse import json_bytes, json_text


class CallForm(Protocol):
    """One of the two. What it returns as bytes are members of a delta."""

    def member(self, calls: Sequence[Call]) -> dict[str, object]:
        """The member of a message for its calls, of which there is one at least."""

    def start(self, event: ToolCallStarted) -> bytes:
        """A call begins."""

    def arguments(self, event: ToolArgsDelta) -> bytes:
        """More of its arguments."""

    def input(self, event: ToolInputDelta) -> bytes:
        """More of what a custom tool is given."""

    def reason(self, reason: FinishReason) -> str:
        """Why the choice ended, in the words of this form."""


class ToolCalls:
    """Any number of calls, each with an id and an index."""

    def member(self, calls: Sequence[Call]) -> dict[str, object]:
        return {"tool_calls": [_call(call) for call in calls]}

    def start(self, event: ToolCallStarted) -> bytes:
        kind = b"custom" if event.is_custom else b"function"
        return b'"tool_calls":[{"index":%d,"id":%b,"type":"%b","%b":%b}]' % (
            event.index,
            json_text(event.id),
            kind,
            kind,
            _start(event),
        )

    def arguments(self, event: ToolArgsDelta) -> bytes:
        arguments = json_text(event.text)
        return b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]' % (
            event.index,
            arguments,
        )

    def input(self, event: ToolInputDelta) -> bytes:
        text = json_text(event.text)
        return b'"tool_calls":[{"index":%d,"custom":{"input":%b}}]' % (event.index, text)

    def reason(self, reason: FinishReason) -> str:
        return reason.value


class FunctionCall:
    """One call without an id. A model that makes more all the same is heard once. Custom
    tools are younger than this form: it has no calls of them."""

    def member(self, calls: Sequence[Call]) -> dict[str, object]:
        return {"function_call": _called(calls[0])}

    def start(self, event: ToolCallStarted) -> bytes:
        return b'"function_call":%b' % _start(event) if event.index == 0 else b""

    def arguments(self, event: ToolArgsDelta) -> bytes:
        if event.index:
            return b""
        return b'"function_call":{"arguments":%b}' % json_text(event.text)

    def input(self, event: ToolInputDelta) -> bytes:
        return b""

    def reason(self, reason: FinishReason) -> str:
        return "function_call" if reason is FinishReason.TOOL_CALLS else reason.value


TOOL_CALLS: Final = ToolCalls()
FUNCTION_CALL: Final = FunctionCall()


def _call(call: Call) -> dict[str, object]:
    kind = "custom" if isinstance(call, CustomCall) else "function"
    return {"id": call.id, "type": kind, kind: _called(call)}


def _called(call: Call) -> dict[str, object]:
    if isinstance(call, CustomCall):
        return {"name": call.name, "input": call.input}
    return {"name": call.name, "arguments": call.arguments}


def _start(event: ToolCallStarted) -> bytes:
    return json_bytes({"name": event.name, "input" if event.is_custom else "arguments": ""})
