"""Finds out what a chat template can render, by rendering small conversations with it.

Templates do not declare what they accept. Each question is answered once, when the model is
loaded: a conversation with a probe word in the tested position is rendered, and the output is
searched for the word. A template that raises lacks the capability.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from serving.core.errors import InvalidRequest

_WORD = "zqword"
_OTHER = "zqother"
_KEY, _VALUE = "zqkey", "zqvalue"

# The names by which templates read the reasoning of earlier turns.
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")

Turn = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """What one chat template can render."""

    # A leading system message is rendered, and so are later ones.
    has_system: bool
    has_many_systems: bool
    # The template knows the role `developer`, and does not merely print the role's name.
    has_developer: bool
    has_tools: bool
    # Message content is a list of parts, never a string.
    wants_parts: bool
    # Arguments of tool calls are objects; otherwise JSON text.
    wants_argument_objects: bool
    # An assistant turn with only tool calls has the content null; otherwise "".
    wants_null_content: bool
    # The name of the reasoning in earlier turns; None: the template drops it.
    reasoning_key: str | None

    @classmethod
    def of(cls, text: str, render: Callable[..., str]) -> Self:
        """The capabilities of the template `text`. Renders about twenty small conversations.

        `render` takes the template's variables and raises `InvalidRequest` where the template
        does.
        """
        probe = _Probe(text, render)
        wants_null = probe.wants_null_content()
        return cls(
            has_system=probe.has_system(),
            has_many_systems=probe.has_many_systems(),
            has_developer=probe.has_developer(),
            has_tools=probe.has_tools(),
            wants_parts=probe.wants_parts,
            wants_argument_objects=probe.wants_argument_objects(null=wants_null),
            wants_null_content=wants_null,
            reasoning_key=probe.reasoning_key(),
        )


class _Probe:
    def __init__(self, text: str, render: Callable[..., str]) -> None:
        self._text = text
        self._render_template = render
        self.wants_parts = False
        if not self._shows(_WORD, self._turn("user", _WORD)):
            self.wants_parts = True
            # A template that renders neither gets strings, the common case.
            self.wants_parts = self._shows(_WORD, self._turn("user", _WORD))

    def has_system(self) -> bool:
        return self._shows(_WORD, self._turn("system", _WORD), self._turn("user", "Hi"))

    def has_many_systems(self) -> bool:
        turns = [
            self._turn("system", _WORD),
            self._turn("user", "Hi"),
            self._turn("assistant", "Hello"),
            self._turn("system", _OTHER),
            self._turn("user", "And?"),
        ]
        return self._shows(_WORD, *turns) and self._shows(_OTHER, *turns)

    def has_developer(self) -> bool:
        """Templates that print any role would print this one, which the model never saw."""
        turns = self._turn("developer", _WORD), self._turn("user", "Hi")
        return "developer" in self._text and self._shows(_WORD, *turns)

    def has_tools(self) -> bool:
        properties = {"city": {"type": "string", "description": "Where"}}
        parameters = {"type": "object", "properties": properties, "required": ["city"]}
        function = {"name": _WORD, "description": "What it does", "parameters": parameters}
        tool = {"type": "function", "function": function}
        return _WORD in self._render([self._turn("user", "Hi")], tools=[tool])

    def wants_null_content(self) -> bool:
        """True wherever null works: some templates print an empty answer beside the call for
        "". Templates that print null as `None` get ""."""
        null, empty = self._rendered_call(null=True), self._rendered_call(null=False)
        return bool(null) and null.count("None") <= empty.count("None")

    def wants_argument_objects(self, *, null: bool) -> bool:
        """True wherever objects work: the template quotes them as JSON or reads their members.
        A dict printed by Python, in single quotes, is not JSON."""
        text = self._render(self._call_turns({_KEY: _VALUE}, null=null))
        return _KEY in text and _VALUE in text and f"'{_KEY}'" not in text

    def reasoning_key(self) -> str | None:
        """Many templates render reasoning only since the last question, or only before a
        call, so both are tried."""
        question, calling, result = self._call_turns({_KEY: _VALUE}, null=False)
        answer = self._turn("assistant", "Hello")
        for key in _REASONING_KEYS:
            if self._shows(_OTHER, question, {**answer, key: _OTHER}) or self._shows(
                _OTHER, question, {**calling, key: _OTHER}, result
            ):
                return key
        return None

    def _rendered_call(self, *, null: bool) -> str:
        """A conversation with a tool call; "" when the template cannot render the call."""
        kinds: Sequence[Any] = ({_KEY: _VALUE}, json.dumps({_KEY: _VALUE}))
        texts = (self._render(self._call_turns(kind, null=null)) for kind in kinds)
        return next((text for text in texts if _WORD in text), "")

    def _call_turns(self, arguments: Any, *, null: bool) -> list[Turn]:
        # Mistral's templates accept only ids of nine letters and digits.
        call = {
            "id": "zqcall001",
            "type": "function",
            "function": {"name": _WORD, "arguments": arguments},
        }
        calling = {**self._turn("assistant", ""), "tool_calls": [call]}
        if null:
            calling["content"] = None
        answer = {**self._turn("tool", "Done"), "tool_call_id": "zqcall001", "name": "zqtool"}
        return [self._turn("user", "Hi"), calling, answer]

    def _turn(self, role: str, text: str) -> dict[str, Any]:
        parts = [{"type": "text", "text": text}] if text else []
        return {"role": role, "content": parts if self.wants_parts else text}

    def _shows(self, word: str, *turns: Turn) -> bool:
        return word in self._render(turns)

    def _render(self, turns: Sequence[Turn], **variables: Any) -> str:
        """The text; "" when the template raises."""
        variables = {"tools": None, "documents": None, **variables}
        try:
            return self._render_template(
                messages=list(turns), add_generation_prompt=True, **variables
            )
        except InvalidRequest:
            return ""
