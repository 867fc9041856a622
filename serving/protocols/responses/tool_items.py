"""Replayed calls of tools that are not plain functions, as a model can be shown them.

To a model's template there is only one kind of call: a name, and a JSON object of
arguments. Calls that OpenAI's servers ran themselves hold their result in the same item, so
they are told as a call and the answer to it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import ConfigDict, model_validator

from serving.core.request import Message, Role, TextPart, ToolCall
from serving.core.tools import qualified_name
from serving.protocols.messages import Content, WireCustomCall, content_parts
from serving.protocols.reading import Wire, missing
from serving.protocols.sse import json_bytes


class ReplayedCall(Wire):
    """A call. Its answer, if any, is an item of its own."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["call_id"]}, {"required": ["id"]}]}
    )

    call_id: str | None = None
    id: str | None = None

    @model_validator(mode="after")
    def _has_an_id(self) -> ReplayedCall:
        if self.call_id is None and self.id is None:
            raise missing("must have a `call_id`")
        return self

    @abstractmethod
    def to_call(self) -> ToolCall:
        """The call as a function's."""

    @property
    def known_id(self) -> str:
        """What the answer refers to."""
        return self.call_id or self.id or ""


class CustomCall(WireCustomCall, ReplayedCall):
    """`custom_tool_call`: a call of a custom tool."""

    namespace: str | None = None

    def to_call(self) -> ToolCall:
        return replace(self.to_core(self.known_id), name=qualified_name(self.namespace, self.name))


class LocalShellCall(ReplayedCall):
    """`local_shell_call`."""

    action: dict[str, Any]

    def to_call(self) -> ToolCall:
        return ToolCall(self.known_id, "local_shell", _json(self.action))


class ShellCall(ReplayedCall):
    """`shell_call`."""

    action: dict[str, Any]

    def to_call(self) -> ToolCall:
        return ToolCall(self.known_id, "shell", _json(self.action))


class ApplyPatchCall(ReplayedCall):
    """`apply_patch_call`."""

    operation: dict[str, Any]

    def to_call(self) -> ToolCall:
        return ToolCall(self.known_id, "apply_patch", _json(self.operation))


class CallOutput(Wire):
    """`function_call_output` and `custom_tool_call_output`: what the client's tool said."""

    call_id: str
    output: Content

    def to_core(self) -> Message:
        return Message(Role.TOOL, content_parts(self.output), tool_call_id=self.call_id)


class LocalShellOutput(Wire):
    """`local_shell_call_output`. Its `id` is that of the call."""

    id: str
    output: str

    def to_core(self) -> Message:
        return _answer(self.id, self.output)


class ShellOutput(Wire):
    """`shell_call_output`: the streams and the outcome of each command."""

    call_id: str
    output: list[dict[str, Any]]

    def to_core(self) -> Message:
        return _answer(self.call_id, _json(self.output))


class ApplyPatchOutput(Wire):
    """`apply_patch_call_output`."""

    call_id: str
    status: str
    output: str | None = None

    def to_core(self) -> Message:
        return _answer(self.call_id, self.output or self.status)


class HostedCall(Wire):
    """A call that a host answered in the same item."""

    tool: ClassVar[str]
    id: str | None = None
    status: str | None = None

    def to_call(self) -> ToolCall:
        return ToolCall(self._known_id, self._name, self._arguments())

    def to_core(self) -> Message:
        """The answer to the call."""
        return _answer(self._known_id, self._result() or self.status or "completed")

    @property
    def _known_id(self) -> str:
        """Some clients leave out the ids of what they cannot answer."""
        return self.id or self.tool

    @property
    def _name(self) -> str:
        return self.tool

    @abstractmethod
    def _arguments(self) -> str:
        """The JSON text of an object."""

    def _result(self) -> str | None:
        """What the tool said; None when the item does not hold it."""
        return None


class WebSearchCall(HostedCall):
    """`web_search_call`. What was found is not in it."""

    tool = "web_search"
    action: dict[str, Any] | None = None

    def _arguments(self) -> str:
        return _json(self.action or {})


class FileSearchCall(HostedCall):
    """`file_search_call`."""

    tool = "file_search"
    queries: list[str]
    results: list[Any] | None = None

    def _arguments(self) -> str:
        return _json({"queries": self.queries})

    def _result(self) -> str | None:
        return None if self.results is None else _json(self.results)


class CodeInterpreterCall(HostedCall):
    """`code_interpreter_call`."""

    tool = "code_interpreter"
    code: str | None = None
    outputs: list[Any] | None = None

    def _arguments(self) -> str:
        return _json({"code": self.code or ""})

    def _result(self) -> str | None:
        return None if self.outputs is None else _json(self.outputs)


class McpCall(HostedCall):
    """`mcp_call`. It failed if there is an error, whatever its output."""

    tool = "mcp"
    name: str
    arguments: str
    output: str | None = None
    error: Any = None

    @property
    def _name(self) -> str:
        return self.name

    def _arguments(self) -> str:
        return self.arguments or "{}"

    def _result(self) -> str | None:
        if self.error is not None:
            return self.error if isinstance(self.error, str) else _json({"error": self.error})
        return self.output


def _answer(call_id: str, text: str) -> Message:
    return Message(Role.TOOL, (TextPart(text),), tool_call_id=call_id)


def _json(value: object) -> str:
    return json_bytes(value).decode()
