"""Renders a conversation to the text that the model was trained to answer.

Each message gets the form that the template renders (see `capabilities`), so that no message is
dropped, or printed in a form unknown to the model. Clients send instructions, calls and reasoning
in any order and number, and many templates drop unexpected messages, or raise: so messages are
arranged first.

A requested reasoning effort becomes variables of the template and a token budget. Templates have a
switch (Qwen 3, DeepSeek V3.1), a level (gpt-oss, Mistral), a budget (Seed-OSS) or nothing (DeepSeek
R1). An effort that a template cannot express limits the reasoning tokens.
"""

import base64
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter, cited
from vinery_serving.core.field_limits import JSON_LEVELS
from vinery_serving.core.json_text import exceeded_limit, is_deeper_than
from vinery_serving.core.media import MediaKind, MediaPart
from vinery_serving.core.request import (
    ContentPart,
    Conversation,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCall,
)
from vinery_serving.core.tools import INVALID_JSON
from vinery_serving.prompting.capabilities import TemplateCapabilities
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.template import ChatTemplate
from vinery_serving.prompting.vision import Markup

# Appended to a message that is to be continued, to find its end in the prompt.
_END_MARK = "\u2e28vinery:end\u2e29"
# For templates that read the schema of every tool.
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_MAX_CHARS = 16_000_000  # longer than any model's context
_NUM_ID_CHARS = 9  # the length of the ids that Mistral's templates accept


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of a prompt, and the limit of its reasoning in tokens (None: no limit)."""

    text: str
    reasoning_budget: int | None = None


class ChatRenderer:
    def __init__(
        self,
        template: ChatTemplate,
        markup: Markup | None = None,
        capabilities: TemplateCapabilities | None = None,
    ) -> None:
        """`markup`: of a vision model. Without `capabilities` they are found out."""
        self.template, self._markup = template, markup
        self.capabilities = capabilities or TemplateCapabilities(
            template.text, template.render, markup
        )

    def render(self, conversation: Conversation) -> Rendered:
        """Raises `InvalidRequest` for messages that the template refuses or cannot render."""
        rendering, words = conversation.rendering, self.template.words
        reasoning = reasoning_settings(rendering.effort, words.variables, words.constants)
        variables = {**reasoning.template_variables, **conversation.template_kwargs}
        if rendering.continues_final_message:
            text = self._unfinished_text(conversation, variables)
        else:
            variables = {"add_generation_prompt": rendering.adds_generation_prompt, **variables}
            text = self._text(conversation, variables)
        return Rendered(text, reasoning.budget)

    def _unfinished_text(self, conversation: Conversation, variables: Mapping[str, Any]) -> str:
        unfinished, mark, _ = self._text(
            _with_end_mark(conversation), {**variables, "add_generation_prompt": False}
        ).rpartition(_END_MARK)
        if not mark:
            raise UnsupportedParameter(
                "The chat template of this model changes the text of the last message, so the "
                "message cannot be continued.",
                param="continue_final_message",
            )
        return unfinished

    def _text(self, conversation: Conversation, variables: Mapping[str, Any]) -> str:
        # Set from the conversation; clients may set any other variable of a template.
        for name in {"messages", "tools"} & variables.keys():
            raise InvalidRequest(
                f"chat_template_kwargs cannot set {name}.", param="chat_template_kwargs"
            )
        variables = {"documents": self._documents(conversation), **variables}
        return self.template.render(
            **variables, messages=self._turns(conversation), tools=self._tools(conversation)
        )

    def _documents(self, conversation: Conversation) -> list[dict[str, Any]] | None:
        documents = conversation.rendering.documents
        if documents and "documents" not in self.template.words.variables:
            raise UnsupportedParameter(
                "The chat template of this model takes no documents. Write them into a message.",
                param="documents",
            )
        return [dict(document) for document in documents] or None

    def _tools(self, conversation: Conversation) -> list[Any] | None:
        if not self._gives_tools(conversation):
            return [] if self.capabilities.needs_tool_list else None
        if not self.capabilities.has_tools:
            raise UnsupportedParameter(
                "The chat template of this model takes no tools. Leave out tools, or choose "
                "a model that was trained to call them.",
                param="tools",
            )
        tools = [_tool(tool) for tool in conversation.tools]
        needs_descriptions = self.capabilities.needs_descriptions
        return [_described(tool) for tool in tools] if needs_descriptions else tools

    def _gives_tools(self, conversation: Conversation) -> bool:
        """Where no tool may be called the tools are left out, unless the template would leave
        out earlier calls with them."""
        if conversation.offers_tools:
            return True
        needs_tools = self.capabilities.calls_need_tools and conversation.has_calls
        return bool(conversation.tools) and needs_tools

    def _turns(self, conversation: Conversation) -> list[dict[str, Any]]:
        messages = arranged(conversation.messages, self.capabilities)
        callees = {call.id: call.name for message in messages for call in message.tool_calls}
        return [self._turn(message, callees) for message in messages]

    def _turn(self, message: Message, callees: Mapping[str, str]) -> dict[str, Any]:
        turn: dict[str, Any] = {"role": message.role.value, "content": self._content(message)}
        name, call_id = message.name, message.tool_call_id
        if call_id is not None:  # some clients leave ids empty
            turn["tool_call_id"] = self._call_id(call_id)
            name = name or callees.get(call_id)
        if name:
            turn["name"] = name
        if message.reasoning and self.capabilities.reasoning_key:
            turn[self.capabilities.reasoning_key] = message.reasoning
        if message.tool_calls:
            turn["tool_calls"] = [self._call(call) for call in message.tool_calls]
        return turn

    def _content(self, message: Message) -> Any:
        if message.media:
            return self._content_with_media(message)
        if message.tool_calls and not message.text and self.capabilities.wants_null_content:
            return None
        if self.capabilities.wants_parts:
            return [_text_part(part) for part in message.texts]
        return message.text

    def _content_with_media(self, message: Message) -> Any:
        """Return parts, if the template shows pictures of this role; otherwise a text with the
        template's markup of pictures."""
        kinds = {part.kind for part in message.media}
        if all(self.capabilities.shows_media(message.role, kind) for kind in kinds):
            return [
                {"type": part.kind.value} if isinstance(part, MediaPart) else _text_part(part)
                for part in message.content
            ]
        text = marked_text(message, self._markup)
        return [{"type": "text", "text": text}] if self.capabilities.wants_parts else text

    def _call(self, call: ToolCall) -> dict[str, Any]:
        text = call.arguments or "{}"
        arguments: Any = _object(text)
        if arguments is None:
            arguments = {INVALID_JSON: text}
            text = json.dumps(arguments, ensure_ascii=False)
        wants_object = self.capabilities.wants_argument_objects
        function = {"name": call.name, "arguments": arguments if wants_object else text}
        return {"id": self._call_id(call.id), "type": "function", "function": function}

    def _call_id(self, call_id: str) -> str:
        return short_call_id(call_id) if self.capabilities.wants_short_ids else call_id


def render_untrusted(conversation: Conversation, named_tokens: Mapping[str, str]) -> Rendered:
    """Return the text of a conversation with the client's chat template, in a worker process.
    Jinja's sandbox keeps such a template from the server's objects, but not from endless loops or
    texts that fill the memory. A worker process has limits for both, and may be killed. Raises
    `InvalidRequest` for messages that the template refuses or cannot render within these limits."""
    template = conversation.rendering.template
    assert template is not None
    try:
        rendered = ChatRenderer(ChatTemplate(template, named_tokens)).render(conversation)
    except UnusableFolder as error:
        raise _template_refusal(cited(error)) from None
    except MemoryError:
        raise _template_refusal("The chat template takes too much memory.") from None
    if len(rendered.text) > _MAX_CHARS:
        raise _template_refusal(f"The chat template renders more than {_MAX_CHARS} characters.")
    return rendered


def _template_refusal(reason: str) -> InvalidRequest:
    return InvalidRequest(reason, param="chat_template")


def marked_text(message: Message, markup: Markup | None) -> str:
    """Return the text of a message with the markup of each picture and clip where it stands."""
    if markup is None or not message.media:
        return message.text
    tags = {MediaKind.IMAGE: markup.image, MediaKind.VIDEO: markup.video or ""}
    parts = (
        tags[part.kind] if isinstance(part, MediaPart) else part.text for part in message.content
    )
    return "\n".join(parts)


def _text_part(part: TextPart) -> dict[str, str]:
    return {"type": "text", "text": part.text}


def short_call_id(call_id: str) -> str:
    """Return nine letters and digits for an id: the id itself, if it has this form."""
    if len(call_id) == _NUM_ID_CHARS and call_id.isascii() and call_id.isalnum():
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="replace")).digest()
    return base64.b32encode(digest)[:_NUM_ID_CHARS].decode()


def _with_end_mark(conversation: Conversation) -> Conversation:
    last = conversation.messages[-1]
    if last.role not in (Role.ASSISTANT, Role.USER) or last.tool_calls:
        raise InvalidRequest(
            "Only a text of the assistant or the user can be continued, but the last message "
            "is not one.",
            param="continue_final_message",
        )
    *before, text = last.content or (TextPart(""),)
    if not isinstance(text, TextPart):
        raise InvalidRequest(
            "Only a text can be continued, but the last message ends with a picture or file.",
            param="continue_final_message",
        )
    marked = replace(last, content=(*before, TextPart(text.text + _END_MARK)))
    return replace(conversation, messages=(*conversation.messages[:-1], marked))


def _object(arguments: str) -> dict[str, Any] | None:
    """None: the text is no JSON object, or larger than JSON may be."""
    if exceeded_limit(arguments.encode(errors="replace")) is not None:
        return None
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    is_usable = isinstance(value, dict) and not is_deeper_than(JSON_LEVELS.value, value)
    return value if is_usable else None


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = dict(_NO_PARAMETERS if tool.parameters is None else tool.parameters)
    return {"type": "function", "function": function}


def _described(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the tool with an empty description where the tool or a parameter has none."""
    function = {"description": "", **tool["function"]}
    properties = function["parameters"].get("properties")
    if isinstance(properties, dict):
        described = {
            name: {"description": "", **schema} if isinstance(schema, dict) else schema
            for name, schema in properties.items()
        }
        function["parameters"] = {**function["parameters"], "properties": described}
    return {**tool, "function": function}


_SWITCHES: Final = ("enable_thinking", "thinking")
_LEVEL: Final = "reasoning_effort"
_BUDGET: Final = "thinking_budget"

# In tokens. Low, medium and high are the budgets of Google's OpenAI-compatible endpoint; the others
# continue that series. The highest effort has no limit.
_BUDGETS: Final[Mapping[str, int | None]] = {
    "none": 0,
    "minimal": 512,
    "low": 1_024,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": None,
}
_ORDER: Final = tuple(_BUDGETS)
# The levels of models whose template names only the default level.
_USUAL: Final = frozenset(("low", "medium", "high"))


@dataclass(frozen=True, slots=True)
class ReasoningSettings:
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    budget: int | None = None  # in tokens. None: no limit.


def reasoning_settings(
    effort: str | None, variables: Collection[str] | None = None, constants: Collection[str] = ()
) -> ReasoningSettings:
    """Return the settings for an effort, a value of `core.request.Effort`; empty without one.
    `variables` and `constants` are the names and strings that the template uses. Without a template
    (None) the effort becomes a budget only."""
    if effort is None:
        return ReasoningSettings()
    budget = _BUDGETS[effort]
    if variables is None:
        return ReasoningSettings({}, budget)
    values: dict[str, Any] = {name: effort != "none" for name in _SWITCHES if name in variables}
    is_off = bool(values) and effort == "none"
    if _LEVEL in variables:
        level = _nearest(effort, constants)
        values[_LEVEL] = level
        if (level == "none") == (effort == "none"):
            budget = None
    elif _BUDGET in variables and budget is not None:
        values[_BUDGET] = budget
    return ReasoningSettings(values, None if is_off else budget)


def _nearest(effort: str, constants: Collection[str]) -> str:
    """The template's closest level, the higher of two. Only "none" maps to "none"."""
    named = {level for level in _ORDER if level in constants}
    levels = (named if len(named) > 1 else named | _USUAL) - {"none"}
    if effort == "none" and "none" in named:
        return "none"
    at = _ORDER.index(effort)
    return min(levels, key=lambda each: (abs(_ORDER.index(each) - at), -_ORDER.index(each)))


_INSTRUCTING: Final = (Role.SYSTEM, Role.DEVELOPER)


def arranged(messages: Sequence[Message], capabilities: TemplateCapabilities) -> Sequence[Message]:
    messages = _with_instructions(messages, capabilities)
    if capabilities.wants_single_calls:
        messages = _with_single_calls(messages)
    if capabilities.refuses_text_beside_reasoning:
        messages = [_without_text_beside_reasoning(message) for message in messages]
    return _with_numbered_calls(messages) if capabilities.wants_numbered_ids else messages


def _with_instructions(
    messages: Sequence[Message], capabilities: TemplateCapabilities
) -> Sequence[Message]:
    """The messages with system and developer messages where the template renders them. OpenAI's
    clients may send any number of such messages anywhere. Many templates render one, at the start.
    Some render none: their models were trained to read instructions in the first user message."""
    known = [_known(message, capabilities) for message in messages]
    has_late_ones = any(message.role in _INSTRUCTING for message in messages[1:])
    if capabilities.has_system and (capabilities.has_many_systems or not has_late_ones):
        return known
    instructions = [message for message in known if message.role in _INSTRUCTING]
    if not instructions:
        return known
    others = [message for message in known if message.role not in _INSTRUCTING]
    first = instructions[0]
    if capabilities.has_system:
        return [_with_text(first, instructions), *others]
    for at, question in enumerate(others):
        if question.role is Role.USER:
            whole = _with_text(question, [*instructions, question])
            return [*others[:at], whole, *others[at + 1 :]]
    return [_with_text(replace(first, role=Role.USER), instructions), *others]


def _with_single_calls(messages: Sequence[Message]) -> list[Message]:
    """The same messages, with a turn for each call. The results of a call follow its turn."""
    groups: list[list[Message]] = []  # each message with the results after it
    for message in messages:
        if groups and message.role is Role.TOOL:
            groups[-1].append(message)
        else:
            groups.append([message])
    return [message for turn, *results in groups for message in _split(turn, results)]


def _split(turn: Message, results: Sequence[Message]) -> list[Message]:
    if len(turn.tool_calls) < 2:
        return [turn, *results]
    first, *others = turn.tool_calls
    turns = [[replace(turn, tool_calls=(first,))]]
    turns += [[Message(turn.role, tool_calls=(call,))] for call in others]
    positions = {call.id: at for at, call in enumerate(turn.tool_calls)}
    for result in results:
        # A result without a call stays behind all calls.
        turns[positions.get(result.tool_call_id or "", -1)].append(result)
    return [message for each in turns for message in each]


def _with_numbered_calls(messages: Sequence[Message]) -> list[Message]:
    """The same messages, with the numbers of all calls in their ids. A result answers the newest
    call of its id, since some clients start again in each turn."""
    numbers, known = count(), dict[str | None, str]()

    def numbered(call: ToolCall) -> ToolCall:
        known[call.id] = f"functions.{call.name}:{next(numbers)}"
        return replace(call, id=known[call.id])

    return [
        replace(
            message,
            tool_calls=tuple(map(numbered, message.tool_calls)),
            tool_call_id=known.get(message.tool_call_id, message.tool_call_id),
        )
        for message in messages
    ]


def _without_text_beside_reasoning(message: Message) -> Message:
    """A turn with calls, whose text is a part of its reasoning."""
    if not (message.tool_calls and message.reasoning and message.text):
        return message
    return replace(message, content=message.media, reasoning=f"{message.reasoning}\n{message.text}")


def _known(message: Message, capabilities: TemplateCapabilities) -> Message:
    if message.role is Role.DEVELOPER and not capabilities.has_developer:
        return replace(message, role=Role.SYSTEM)
    return message


def _with_text(message: Message, sources: Sequence[Message]) -> Message:
    if any(source.media for source in sources):
        return replace(message, content=tuple(_joined(sources)))
    text = "\n\n".join(source.text for source in sources if source.text)
    return replace(message, content=(TextPart(text),))


def _joined(sources: Sequence[Message]) -> list[ContentPart]:
    parts: list[ContentPart] = []
    for source in sources:
        if parts and isinstance(last := parts[-1], TextPart):
            parts[-1] = TextPart(f"{last.text}\n\n")
        parts += source.content
    return parts
