"""Turns a conversation into the text that the model reads and the text it should write.

The chat template is the one that ships with the models, so that training sees the prompts that
a server renders.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from training.dialogue import Conversation, Message

TEMPLATE_PATH = Path(__file__).with_name("template.jinja")
END_OF_TURN = "<|im_end|>"
END_OF_THOUGHT = "</think>"


@cache
def compiled(path: Path) -> jinja2.Template:
    """A chat template, with JSON written the way servers write it."""
    # The output is read by a tokenizer, never by a browser.
    environment = jinja2.Environment(autoescape=False)
    environment.filters["tojson"] = to_json
    return environment.from_string(path.read_text(encoding="utf-8"))


def to_json(value: Any) -> str:
    """JSON on one line, with characters beyond ASCII as they are."""
    return json.dumps(value, ensure_ascii=False)


def render(
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]] | None = None,
    *,
    add_generation_prompt: bool = True,
    enable_thinking: bool = False,
) -> str:
    """The prompt for `messages`, as a server renders it."""
    return compiled(TEMPLATE_PATH).render(
        messages=list(messages),
        tools=list(tools) if tools else None,
        add_generation_prompt=add_generation_prompt,
        enable_thinking=enable_thinking,
    )


def prompt_text(conversation: Conversation) -> str:
    """What the model reads before it answers."""
    return render(
        conversation.prompt, conversation.tools, enable_thinking=conversation.thought is not None
    )


def answer_text(conversation: Conversation) -> str:
    """What the model should write, up to and without the end of the turn."""
    answer = conversation.answer
    calls = "\n".join(call_text(call) for call in answer.get("tool_calls", ()))
    thought = conversation.thought
    lead = f"{thought}\n{END_OF_THOUGHT}\n\n" if thought is not None else ""
    return lead + (answer["content"] or "") + calls


def call_text(call: dict[str, Any]) -> str:
    """One tool call in the Hermes form."""
    function = call["function"]
    written = to_json({"name": function["name"], "arguments": function["arguments"]})
    return f"<tool_call>\n{written}\n</tool_call>"
