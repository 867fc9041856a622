"""Finds out what a chat template can render, by rendering small conversations with it.

Templates do not declare what they accept. Each question is answered once, when the model is
loaded: a conversation with a probe word in the tested position is rendered, and the output is
searched for the word. A template that raises lacks the capability.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import MediaKind
from vinery_serving.core.request import Role
from vinery_serving.prompting.vision import Markup

_WORD = "zqword"
_OTHER = "zqother"
_KEY, _VALUE = "zqkey", "zqvalue"

# The names by which templates read the reasoning of earlier turns.
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
# Mistral's templates accept only ids of nine letters and digits. The long id is like OpenAI's ids.
_CALL_ID = "zqcall001"
_OTHER_CALL_ID = "zqcall002"
_LONG_CALL_ID = "call_zqcall00000000000002"
_TOOL_WORD = "zqtool"

Turn = Mapping[str, Any]


def _tool(**description: str) -> dict[str, Any]:
    """Return a tool with the description, which the parameter has, too."""
    city = {"type": "string", **description}
    parameters = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    function = {"name": _TOOL_WORD, **description, "parameters": parameters}
    return {"type": "function", "function": function}


_TOOL = _tool(description="What it does")


class TemplateCapabilities:
    def __init__(self, text: str, render: Callable[..., str], markup: Markup | None = None) -> None:
        """Renders about thirty small conversations with the template `text`. `render` takes its
        variables and raises `InvalidRequest` where it does. `markup` is that of a vision model."""
        self._render_template = render
        # No tools are an empty list, because the template raises for null; and message content
        # is a list of parts, never a string.
        self.needs_tool_list, self.wants_parts = False, False
        self.needs_tool_list, self.wants_parts = self._basic_form()
        question = self._turn("user", "Hi")
        # A leading system message is rendered, and so are later system messages.
        self.has_system = self._shows(_WORD, self._turn("system", _WORD), question)
        self.has_many_systems = self._shows_later_system(question)
        # The template knows the role `developer`, and does not merely print the role's name, as
        # of a role that the model never saw.
        developer = self._turn("developer", _WORD)
        self.has_developer = "developer" in text and self._shows(_WORD, developer, question)
        self.has_tools = self._shows(_TOOL_WORD, question, tools=[_TOOL])
        # Every tool and parameter has a description, because the template raises without.
        self.needs_descriptions = self.has_tools and not self._shows(
            _TOOL_WORD, question, tools=[_tool()]
        )
        # Earlier calls are rendered only beside tools.
        self.calls_need_tools = False
        self.calls_need_tools = not self._shows_calls() and self._shows_calls(tools=[_TOOL])
        # Ids of calls have nine letters and digits.
        self.wants_short_ids = self._shows_calls() and not self._shows_calls(_LONG_CALL_ID)
        # Kimi K2, whose ids of calls are `functions.NAME:N`.
        self.wants_numbered_ids = "<|tool_call_argument_begin|>" in text
        # An assistant turn with only tool calls has the content null; otherwise "".
        self.wants_null_content = self._renders_null_content()
        # Arguments of tool calls are objects; otherwise JSON text.
        self.wants_argument_objects = self._renders_argument_objects()
        # A turn has one call, because the template raises for more or shows only the first.
        self.wants_single_calls = self._shows_calls() and self._loses_second_calls()
        # The name of the reasoning in earlier turns; None: the template drops it.
        self.reasoning_key = self._reasoning_key()
        # A turn with calls has text or reasoning, because the template raises for both.
        self.refuses_text_beside_reasoning = self._refuses_text_beside_reasoning()
        # The roles whose pictures and videos are shown.
        self._shown_media = set() if markup is None else set(self._find_shown_media(markup))

    @property
    def facts(self) -> Mapping[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_render_template"}

    @classmethod
    def known(cls, facts: Mapping[str, Any]) -> Self:
        known = cls.__new__(cls)
        vars(known).update(facts)
        return known

    def shows_media(self, role: Role, kind: MediaKind) -> bool:
        """Whether a part of this kind in a message of this role becomes the model's markup."""
        return (role, kind) in self._shown_media

    def _find_shown_media(self, markup: Markup) -> Iterator[tuple[Role, MediaKind]]:
        for kind, tag in {MediaKind.IMAGE: markup.image, MediaKind.VIDEO: markup.video}.items():
            content = [{"type": "text", "text": _WORD}, {"type": kind.value}]
            for role in Role if tag is not None else ():
                text = self._render_with(role, content)
                if tag is not None and _WORD in text and text.count(tag) == 1:
                    yield role, kind

    def _render_with(self, role: Role, content: list[dict[str, str]]) -> str:
        question = self._turn("user", "Hi")
        if role is Role.TOOL:
            _, calling, result = self._usual_call_turns("zqcall", _CALL_ID)
            return self._render_calls([question, calling, {**result, "content": content}])
        turn = {"role": role.value, "content": content}
        if role is Role.ASSISTANT:
            return self._render([question, turn, self._turn("user", "And?")])
        return self._render([turn] if role is Role.USER else [turn, question])

    def _basic_form(self) -> tuple[bool, bool]:
        """The first form in which a question is rendered: `needs_tool_list`, `wants_parts`."""
        common = (False, False)
        for form in (common, (False, True), (True, False), (True, True)):
            self.needs_tool_list, self.wants_parts = form
            if self._shows(_WORD, self._turn("user", _WORD)):
                return form
        return common

    def _shows_later_system(self, question: Turn) -> bool:
        later = [self._turn("system", _OTHER), self._turn("user", "And?")]
        turns = [self._turn("system", _WORD), question, self._turn("assistant", "Hello"), *later]
        return self._shows(_WORD, *turns) and self._shows(_OTHER, *turns)

    def _renders_null_content(self) -> bool:
        """True wherever null works: some templates print an empty answer beside the call for "".
        Templates that print null as `None` get "". So do templates that raise for null when a
        conversation with calls has no tools."""
        null, empty = self._rendered_calls(null=True), self._rendered_calls(null=False)
        if not null or null.count("None") > empty.count("None"):
            return False
        turns = self._call_turns({_KEY: _VALUE}, null=True)
        return not self.calls_need_tools or bool(self._render(turns))

    def _renders_argument_objects(self) -> bool:
        """True wherever objects work: the template quotes them as JSON or reads their members.
        A dict printed by Python, in single quotes, is not JSON."""
        text = self._render_calls(self._call_turns({_KEY: _VALUE}, null=self.wants_null_content))
        return _KEY in text and _VALUE in text and f"'{_KEY}'" not in text

    def _loses_second_calls(self) -> bool:
        """Whether the second of two calls is shown only in a turn of its own."""
        question, first, result = self._usual_call_turns(_WORD, _CALL_ID)
        _, second, other_result = self._usual_call_turns(_OTHER, _OTHER_CALL_ID)
        both = {**first, "tool_calls": [*first["tool_calls"], *second["tool_calls"]]}
        together = self._render_calls([question, both, result, other_result])
        apart = self._render_calls([question, first, result, second, other_result])
        return _OTHER not in together and _WORD in apart and _OTHER in apart

    def _refuses_text_beside_reasoning(self) -> bool:
        question, calling, result = self._usual_call_turns(_WORD, _CALL_ID)
        reasoned = {**calling, **({self.reasoning_key: _OTHER} if self.reasoning_key else {})}
        both = {**reasoned, "content": self._turn("assistant", "Wait")["content"]}
        alone, beside = (self._render_calls([question, each, result]) for each in (reasoned, both))
        return bool(alone) and not beside

    def _usual_call_turns(self, name: str, call_id: str) -> list[dict[str, Any]]:
        kind: Any = {_KEY: _VALUE} if self.wants_argument_objects else json.dumps({_KEY: _VALUE})
        return self._call_turns(kind, call_id, null=self.wants_null_content, name=name)

    def _reasoning_key(self) -> str | None:
        """Many templates render it only since the last question, or only before a call."""
        question, calling, result = self._call_turns({_KEY: _VALUE}, null=False)
        answer = self._turn("assistant", "Hello")
        for key in _REASONING_KEYS:
            if self._shows(_OTHER, question, {**answer, key: _OTHER}) or (
                _OTHER in self._render_calls([question, {**calling, key: _OTHER}, result])
            ):
                return key
        return None

    def _shows_calls(self, call_id: str = _CALL_ID, **variables: Any) -> bool:
        return any(self._rendered_calls(call_id, null=null, **variables) for null in (False, True))

    def _rendered_calls(self, call_id: str = _CALL_ID, *, null: bool, **variables: Any) -> str:
        """A conversation with a tool call; "" when the template cannot render the call."""
        kinds: Sequence[Any] = ({_KEY: _VALUE}, json.dumps({_KEY: _VALUE}))
        turns = (self._call_turns(kind, call_id, null=null) for kind in kinds)
        texts = (self._render_calls(each, **variables) for each in turns)
        return next((text for text in texts if _WORD in text), "")

    def _call_turns(
        self, arguments: Any, call_id: str = _CALL_ID, *, null: bool, name: str = _WORD
    ) -> list[dict[str, Any]]:
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        calling = {**self._turn("assistant", ""), "tool_calls": [call]}
        if null:
            calling["content"] = None
        answer = {**self._turn("tool", "Done"), "tool_call_id": call_id, "name": "zqname"}
        return [self._turn("user", "Hi"), calling, answer]

    def _turn(self, role: str, text: str) -> dict[str, Any]:
        parts = [{"type": "text", "text": text}] if text else []
        return {"role": role, "content": parts if self.wants_parts else text}

    def _shows(self, word: str, *turns: Turn, **variables: Any) -> bool:
        return word in self._render(turns, **variables)

    def _render_calls(self, turns: Sequence[Turn], **variables: Any) -> str:
        beside = {"tools": [_TOOL]} if self.calls_need_tools else {}
        return self._render(turns, **{**beside, **variables})

    def _render(self, turns: Sequence[Turn], **variables: Any) -> str:
        """The text; "" when the template raises."""
        no_tools: list[Any] | None = [] if self.needs_tool_list else None
        variables = {"tools": no_tools, "documents": None, **variables}
        try:
            return self._render_template(
                messages=list(turns), add_generation_prompt=True, **variables
            )
        except InvalidRequest:
            return ""
