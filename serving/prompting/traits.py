"""What a chat template can do, found out by rendering small conversations with it.

Templates say nowhere what they take. So each question is asked once, when the model is
loaded: render a conversation with an unmistakable word in the place in question, and look
whether and how the word comes out. A template that raises has answered no.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from serving.core.errors import InvalidRequest
from serving.prompting.template import ChatTemplate

_WORD = "zqword"
_OTHER = "zqother"
_KEY, _VALUE = "zqkey", "zqvalue"

# The names under which templates look for the thoughts of earlier turns.
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")

Turn = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """The answers."""

    # A leading system message comes out, and so do later ones.
    has_system: bool
    has_many_systems: bool
    # The role `developer` is known, not merely printed.
    has_developer: bool
    has_tools: bool
    # Content is a list of parts; never a string.
    wants_parts: bool
    # Arguments of tool calls as objects; else as JSON text.
    wants_argument_objects: bool
    # An assistant turn that only calls tools has content null; else "".
    wants_null_content: bool
    # Where the thoughts of earlier turns go; None: nowhere.
    reasoning_key: str | None

    @classmethod
    def of(cls, template: ChatTemplate) -> Self:
        """Renders about twenty small conversations."""
        probe = _Probe(template)
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
    """Asks one template."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self.wants_parts = False
        if not self._shows(_WORD, self._turn("user", _WORD)):
            self.wants_parts = True
            # Neither way is an answer too; then strings are the common case.
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
        return "developer" in self._template.text and self._shows(_WORD, *turns)

    def has_tools(self) -> bool:
        properties = {"place": {"type": "string", "description": "Where"}}
        parameters = {"type": "object", "properties": properties, "required": ["place"]}
        function = {"name": _WORD, "description": "What it does", "parameters": parameters}
        tool = {"type": "function", "function": function}
        return _WORD in self._render([self._turn("user", "Hi")], tools=[tool])

    def wants_null_content(self) -> bool:
        """Null wherever it works: some templates take "" for an answer, and print an empty
        one beside the call. Some take anything for an answer, and print null as `None`.
        """
        null, empty = self._shown_call(null=True), self._shown_call(null=False)
        return bool(null) and null.count("None") <= empty.count("None")

    def wants_argument_objects(self, *, null: bool) -> bool:
        """Objects wherever they work: as quoted JSON, or taken apart by the template. What
        Python prints for a dict, in single quotes, is not JSON.
        """
        text = self._render(self._call_turns({_KEY: _VALUE}, null=null))
        return _KEY in text and _VALUE in text and f"'{_KEY}'" not in text

    def reasoning_key(self) -> str | None:
        """Templates often show only the thoughts since the last question, or only those
        before a call.
        """
        question, calling, result = self._call_turns({_KEY: _VALUE}, null=False)
        answer = self._turn("assistant", "Hello")
        for key in _REASONING_KEYS:
            if self._shows(_OTHER, question, {**answer, key: _OTHER}) or self._shows(
                _OTHER, question, {**calling, key: _OTHER}, result
            ):
                return key
        return None

    def _shown_call(self, *, null: bool) -> str:
        """A conversation with a call in it; "" when the call cannot be shown."""
        kinds: Sequence[Any] = ({_KEY: _VALUE}, json.dumps({_KEY: _VALUE}))
        texts = (self._render(self._call_turns(kind, null=null)) for kind in kinds)
        return next((text for text in texts if _WORD in text), "")

    def _call_turns(self, arguments: Any, *, null: bool) -> list[Turn]:
        # Mistral's templates insist on ids of nine letters and digits.
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
            return self._template.render(
                messages=list(turns), add_generation_prompt=True, **variables
            )
        except InvalidRequest:
            return ""
