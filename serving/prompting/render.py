"""A conversation -> the text that the model was trained to answer.

Every message is put into the shape that the template takes (see `traits`), so that none is
dropped or printed in a form that the model never saw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from serving.core.errors import InvalidRequest, UnsupportedParameter
from serving.core.request import Conversation, Message, Role, TextPart, Tool, ToolCall, ToolMode
from serving.prompting.effort import thinking_of
from serving.prompting.instructions import placed
from serving.prompting.template import ChatTemplate
from serving.prompting.traits import TemplateCapabilities

# These come from the conversation; clients may set any other variable of a template.
_RESERVED = frozenset({"messages", "tools"})

# Stands at the end of a message that is to be continued, to find its place in the prompt.
_END_MARK = "\u2e28vinery:end\u2e29"

# For templates that look into the schema of every tool.
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of a prompt, and how many tokens the effort leaves for thinking (None: no
    limit)."""

    text: str
    thinking_budget: int | None = None


class ChatRenderer:
    """Renders for one template."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self.traits = TemplateCapabilities.of(template)

    def render(self, conversation: Conversation) -> Rendered:
        """Raises `InvalidRequest` for what the template refuses or cannot take."""
        rendering = conversation.rendering
        thinking = thinking_of(rendering.effort, self._template)
        variables = {**thinking.arguments, **conversation.template_kwargs}
        if rendering.continues_final_message:
            text = self._begun(conversation, variables)
        else:
            variables = {"add_generation_prompt": rendering.adds_generation_prompt, **variables}
            text = self._text(conversation, variables)
        return Rendered(text, thinking.budget)

    def _begun(self, conversation: Conversation, variables: Mapping[str, Any]) -> str:
        """All up to the end of the last message, without what the template puts after it."""
        text = self._text(
            _with_end_mark(conversation), {**variables, "add_generation_prompt": False}
        )
        begun, mark, _ = text.rpartition(_END_MARK)
        if not mark:
            raise UnsupportedParameter(
                "The chat template of this model does not show the last message as it is, so "
                "it cannot be continued.",
                param="continue_final_message",
            )
        return begun

    def _text(self, conversation: Conversation, variables: Mapping[str, Any]) -> str:
        for name in _RESERVED & variables.keys():
            raise InvalidRequest(
                f"chat_template_kwargs cannot set {name}.", param="chat_template_kwargs"
            )
        variables = {"documents": self._documents(conversation), **variables}
        return self._template.render(
            **variables, messages=self._turns(conversation), tools=self._tools(conversation)
        )

    def _documents(self, conversation: Conversation) -> list[dict[str, Any]] | None:
        documents = conversation.rendering.documents
        if documents and "documents" not in self._template.variables:
            raise UnsupportedParameter(
                "The chat template of this model takes no documents. Write them into a message.",
                param="documents",
            )
        return [dict(document) for document in documents] or None

    def _tools(self, conversation: Conversation) -> list[Any] | None:
        if not conversation.tools or conversation.tool_choice.mode is ToolMode.NONE:
            return None
        if not self.traits.has_tools:
            raise UnsupportedParameter(
                "The chat template of this model takes no tools. Leave out tools, or choose "
                "a model that was trained to call them.",
                param="tools",
            )
        return [_tool(tool) for tool in conversation.tools]

    def _turns(self, conversation: Conversation) -> list[dict[str, Any]]:
        messages = conversation.messages
        callees = {call.id: call.name for message in messages for call in message.tool_calls}
        return [
            self._turn(index, message, callees) for index, message in placed(messages, self.traits)
        ]

    def _turn(self, index: int, message: Message, callees: Mapping[str, str]) -> dict[str, Any]:
        turn: dict[str, Any] = {"role": message.role.value, "content": self._content(message)}
        name = message.name or callees.get(message.tool_call_id or "")
        if name:
            turn["name"] = name
        if message.tool_call_id:
            turn["tool_call_id"] = message.tool_call_id
        if message.reasoning and self.traits.reasoning_key:
            turn[self.traits.reasoning_key] = message.reasoning
        if message.tool_calls:
            turn["tool_calls"] = [
                self._call(call, f"messages[{index}].tool_calls[{place}].function.arguments")
                for place, call in enumerate(message.tool_calls)
            ]
        return turn

    def _content(self, message: Message) -> Any:
        if message.tool_calls and not message.text and self.traits.wants_null_content:
            return None
        if self.traits.wants_parts:
            return [{"type": "text", "text": part.text} for part in message.content]
        return message.text

    def _call(self, call: ToolCall, param: str) -> dict[str, Any]:
        text = call.arguments or "{}"
        arguments = _parsed(text, param) if self.traits.wants_argument_objects else text
        function = {"name": call.name, "arguments": arguments}
        return {"id": call.id, "type": "function", "function": function}


def _with_end_mark(conversation: Conversation) -> Conversation:
    last = conversation.messages[-1]
    if last.role not in (Role.ASSISTANT, Role.USER) or last.tool_calls:
        raise InvalidRequest(
            "Only a text of the assistant or the user can be continued, but the last message "
            "is not one.",
            param="continue_final_message",
        )
    marked = replace(last, content=_marked(last.content))
    return replace(conversation, messages=(*conversation.messages[:-1], marked))


def _marked(content: tuple[TextPart, ...]) -> tuple[TextPart, ...]:
    *before, last = content or (TextPart(""),)
    return (*before, TextPart(last.text + _END_MARK))


def _parsed(arguments: str, param: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except ValueError as error:
        raise InvalidRequest(
            f"The arguments of this tool call are not JSON: {error}.", param=param
        ) from error
    if not isinstance(value, dict):
        raise InvalidRequest("The arguments of a tool call must be a JSON object.", param=param)
    return value


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = dict(_NO_PARAMETERS if tool.parameters is None else tool.parameters)
    return {"type": "function", "function": function}
