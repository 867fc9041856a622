"""The families that write arguments as JSON, with examples of calls."""

import re
from collections.abc import Sequence
from typing import Final

from vinery_serving.core.request import Tool
from vinery_serving.output.lexer import Lexer, Reading, Tag
from vinery_serving.output.parsers.base import calls_family
from vinery_serving.output.parsers.json_calls import (
    CallTags,
    Section,
    json_family,
    read_bare_calls,
    read_headed_call,
    read_json_calls,
    read_residue,
)
from vinery_serving.output.writer import EventWriter

# -- One object for each call -------------------------------------------------------------

# Hermes, which Qwen and many others write. Several calls may share one pair of tags, and the last
# closing tag may be missing:
#
#     <tool_call>
#     {"name": "get_weather", "arguments": {"city": "Paris"}}
#     </tool_call>
HERMES_OPEN: Final = Tag("<tool_call>")
HERMES_CLOSE: Final = Tag("</tool_call>")
HERMES: Final = json_family(HERMES_OPEN, HERMES_CLOSE)

# Llama 3.1 to 3.3. Some models write `<|python_tag|>` before the object and `; ` between several
# calls, or all calls in an array. Without the tag only an object that calls one of the request's
# tools is a call, because an answer may be JSON:
#
#     {"name": "get_weather", "parameters": {"city": "Paris"}}
_LLAMA3_TAG: Final = "<|python_tag|>"
_LLAMA3_BARE: Final = ("{", "[{")


def _read_llama3(
    lexer: Lexer, writer: EventWriter, opening: str, tools: Sequence[Tool]
) -> Reading[None]:
    if opening in _LLAMA3_BARE:
        return read_bare_calls(lexer, writer, tools)
    return read_json_calls(lexer, writer, CallTags((_LLAMA3_TAG,)))


LLAMA3: Final = calls_family(Tag(_LLAMA3_TAG, *_LLAMA3_BARE), _read_llama3, [_LLAMA3_TAG])

# -- All calls in one array ---------------------------------------------------------------

# Granite 3. Granite 3.1 may write `<tool_call>` instead, and Granite 4 writes Hermes calls:
#
#     <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]
GRANITE_OPEN: Final = Tag("<|tool_call|>", "<tool_call>")
GRANITE: Final = json_family(GRANITE_OPEN)

# Phi-4-mini. Some models write `<|tool_call|>` and `<|/tool_call|>` around the array instead. The
# word without its bracket may be part of an answer about Python:
#
#     functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]
_PHI4_TAGS: Final = CallTags(("<|tool_call|>",), ("<|/tool_call|>", "</|tool_call|>"))
PHI4_OPEN: Final = Tag("functools[", *_PHI4_TAGS.open)


def _read_phi4(lexer: Lexer, writer: EventWriter, opening: str, _: object) -> Reading[None]:
    if opening in _PHI4_TAGS.open:
        return read_json_calls(lexer, writer, _PHI4_TAGS)
    return read_json_calls(lexer, writer, is_array=True)


PHI4: Final = calls_family(PHI4_OPEN, _read_phi4, _PHI4_TAGS.all)

# Mistral's older models write an array. Devstral and models since 2025 write a head for each call;
# some write `[CALL_ID]` and an id between name and arguments, and the id is dropped. Both forms are
# read, whichever is expected. An array without the tag is read as calls where it calls one of the
# request's tools:
#
#     [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]
#     [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}
MISTRAL_OPEN: Final = "[TOOL_CALLS]"
MISTRAL_ARGS: Final = "[ARGS]"
_MISTRAL_BARE: Final = "[{"
_MISTRAL_HEAD: Final = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?P<mark>\[ARGS\]\s*)?", re.ASCII
)


def _read_mistral(
    lexer: Lexer, writer: EventWriter, opening: str, tools: Sequence[Tool]
) -> Reading[None]:
    tags = CallTags((MISTRAL_OPEN,))
    if opening == _MISTRAL_BARE:
        yield from read_bare_calls(lexer, writer, tools)
    elif (yield from lexer.peek_text("[", "{")):
        yield from read_json_calls(lexer, writer, tags)
    else:
        names = {tool.name for tool in tools}
        yield from read_headed_call(lexer, writer, _MISTRAL_HEAD, tags, names)
        with lexer.after_call():
            yield from read_residue(lexer, tags)


MISTRAL: Final = calls_family(
    Tag(MISTRAL_OPEN, _MISTRAL_BARE), _read_mistral, [MISTRAL_OPEN, MISTRAL_ARGS, "[CALL_ID]"]
)

# -- A head and an object for each call, in a section -------------------------------------

# DeepSeek V3 and R1 write the arguments in a fence. V3.1 and later write neither the kind nor the
# fence nor line breaks (added here). Both are read, whichever is expected:
#
#     <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
#     ```json
#     {"city": "Paris"}
#     ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
#
#     <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>
#     {"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
DEEPSEEK_SEPARATOR: Final = "<｜tool▁sep｜>"
DEEPSEEK_TAGS: Final = Section(
    Tag("<｜tool▁calls▁begin｜>"),
    Tag("<｜tool▁calls▁end｜>"),
    Tag("<｜tool▁call▁begin｜>"),
    Tag("<｜tool▁call▁end｜>"),
    re.compile(
        rf"\s*(?:\w+{DEEPSEEK_SEPARATOR}\s*(?=[\w.-]))?(?P<name>[\w.-]+)"
        rf"\s*(?P<mark>{DEEPSEEK_SEPARATOR}\s*)?(?:```(?:json)?\s*)?",
        re.ASCII,
    ),
    "```",
)
DEEPSEEK: Final = DEEPSEEK_TAGS.family(DEEPSEEK_SEPARATOR)

# Kimi K2, without the line break. The number counts the calls of the conversation. Clients do not
# get it: the renderer of prompts counts again:
#
#     <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0
#     <|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>
KIMI_K2_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
KIMI_K2_TAGS: Final = Section(
    Tag("<|tool_calls_section_begin|>"),
    Tag("<|tool_calls_section_end|>"),
    Tag("<|tool_call_begin|>"),
    Tag("<|tool_call_end|>"),
    re.compile(
        r"\s*(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?"
        rf"\s*(?P<mark>{re.escape(KIMI_K2_ARGUMENTS)})\s*",
        re.ASCII,
    ),
)
KIMI_K2: Final = KIMI_K2_TAGS.family(KIMI_K2_ARGUMENTS)
