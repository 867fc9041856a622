"""Small chat templates, each of a style that models in the wild have."""

from __future__ import annotations

from pathlib import Path


def _text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.jinja").read_text()


# Any role is printed as it comes.
CHATML = _text("chatml")
# Gemma: no system role, and user and assistant must take turns.
NO_SYSTEM = _text("no_system")
# A system message at the start; later system messages and the developer role are lost.
LEADING_SYSTEM = _text("leading_system")
DEVELOPER_AWARE = _text("developer_aware")
# Vision models: content is a list of parts.
PARTS = _text("parts")
# DeepSeek: arguments are pasted as text, and calls are shown only beside null content.
TEXT_ARGUMENTS = _text("text_arguments")
# DeepSeek R1: content that is not null is an answer, even beside calls.
EMPTY_ANSWERS = _text("empty_answers")
# Some templates print a dict itself.
PRINTED_ARGUMENTS = _text("printed_arguments")
# Qwen 3 Coder: the template takes the arguments apart.
ITEMIZED_ARGUMENTS = _text("itemized_arguments")
# Qwen 3: reasoning is rendered only after the last question, and the prompt opens it.
REASONING = _text("reasoning")
TOOLS = _text("tools")
# Mistral v0.3 and Nemo: ids of calls must have nine characters, in the call and in its result.
SHORT_IDS = _text("short_ids")
# Kimi K2: ids of calls are shown, and hold the names of the tools.
NUMBERED_IDS = _text("numbered_ids")
# Falcon 3: without tools, calls and results are left out, and null content raises.
CALLS_BESIDE_TOOLS = _text("calls_beside_tools")
# Command R's template for tools: the template reads a list of tools, and the description of each
# parameter.
LISTED_TOOLS = _text("listed_tools")
# gpt-oss: the description of a tool is a part of a longer text.
JOINED_DESCRIPTION = _text("joined_description")
# gpt-oss and Llama 3: a turn has one call, and text or reasoning before it, not both.
SINGLE_CALLS = _text("single_calls")
# Qwen's vision models: pictures are shown in messages of users and tools only.
VISION_PARTS = _text("vision_parts")
VISION_STRINGS = _text("vision_strings")
