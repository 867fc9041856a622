"""Finds out what a chat template can render, by rendering small conversations with it.

Templates do not declare what they accept. Each question is answered once, when the model is
loaded: a conversation with a probe word in the tested position is rendered, and the output is
searched for the word. A template that raises lacks the capability.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vinery_serving.core.errors import InvalidRequest

_WORD = "zqword"
_OTHER = "zqother"
_KEY, _VALUE = "zqkey", "zqvalue"

# The names by which templates read the reasoning of earlier turns.
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")

# Mistral's templates accept only ids of nine letters and digits.
_CALL_ID = "zqcall001"

_TOOL = {
    "type": "function",
    "function": {
        "name": _WORD,
        "description": "What it does",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Where"}},
            "required": ["city"],
        },
    },
}

# Turns of a conversation, and words of a message, that show whether a template leaves some out.
_NUM_TURNS = 20
_NUM_WORDS = 2000

Turn = Mapping[str, Any]


class TemplateCapabilities:
    """What one chat template can render."""

    def __init__(self, text: str, render: Callable[..., str]) -> None:
        """Renders about twenty small conversations with the template `text`.

        `render` takes the template's variables and raises `InvalidRequest` where the template
        does.
        """
        self._render_template = render
        # Message content is a list of parts, never a string.
        self.wants_parts = False
        if not self._shows(_WORD, self._turn("user", _WORD)):
            self.wants_parts = True
            # A template that renders neither gets strings, the common case.
            self.wants_parts = self._shows(_WORD, self._turn("user", _WORD))
        question = self._turn("user", "Hi")
        # A leading system message is rendered, and so are later ones.
        self.has_system = self._shows(_WORD, self._turn("system", _WORD), question)
        self.has_many_systems = self._shows_later_system(question)
        # The template knows the role `developer`, and does not merely print the role's name, as
        # of a role that the model never saw.
        developer = self._turn("developer", _WORD)
        self.has_developer = "developer" in text and self._shows(_WORD, developer, question)
        self.has_tools = _WORD in self._render([question], tools=[_TOOL])
        # An assistant turn with only tool calls has the content null; otherwise "".
        self.wants_null_content = self._renders_null_content()
        # Arguments of tool calls are objects; otherwise JSON text.
        self.wants_argument_objects = self._renders_argument_objects()
        # The name of the reasoning in earlier turns; None: the template drops it.
        self.reasoning_key = self._reasoning_key()
        # Every message of the user is rendered as a whole, but for white space around it.
        self.shows_questions = self._shows_questions(text)

    def _shows_later_system(self, question: Turn) -> bool:
        later = [self._turn("system", _OTHER), self._turn("user", "And?")]
        turns = [self._turn("system", _WORD), question, self._turn("assistant", "Hello"), *later]
        return self._shows(_WORD, *turns) and self._shows(_OTHER, *turns)

    def _shows_questions(self, text: str) -> bool:
        """Renders a long conversation. A template that replaces words may replace any."""
        if "replace" in text:
            return False
        turns = [self._turn("user", _WORD), self._turn("assistant", "Hello")] * _NUM_TURNS
        turns.append(self._turn("user", " ".join([_WORD] * _NUM_WORDS)))
        num_words = _NUM_TURNS + _NUM_WORDS
        return all(
            self._render(turns, tools=tools).count(_WORD) >= num_words for tools in (None, [_TOOL])
        )

    def _renders_null_content(self) -> bool:
        """True wherever null works: some templates print an empty answer beside the call for
        "". Templates that print null as `None` get ""."""
        null, empty = self._rendered_call(null=True), self._rendered_call(null=False)
        return bool(null) and null.count("None") <= empty.count("None")

    def _renders_argument_objects(self) -> bool:
        """True wherever objects work: the template quotes them as JSON or reads their members.
        A dict printed by Python, in single quotes, is not JSON."""
        turns = self._call_turns({_KEY: _VALUE}, null=self.wants_null_content)
        text = self._render(turns)
        return _KEY in text and _VALUE in text and f"'{_KEY}'" not in text

    def _reasoning_key(self) -> str | None:
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
        function = {"name": _WORD, "arguments": arguments}
        call = {"id": _CALL_ID, "type": "function", "function": function}
        calling = {**self._turn("assistant", ""), "tool_calls": [call]}
        if null:
            calling["content"] = None
        answer = {**self._turn("tool", "Done"), "tool_call_id": _CALL_ID, "name": "zqtool"}
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
