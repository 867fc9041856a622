"""Writers of each family's calls: one table for all tests, and readers."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.tables import table
from vinery_serving.core.request import Tool

from .builders import Folded, a_parser, folded, object_of

# A name, and the JSON text of the arguments; or the arguments themselves.
JsonCall = tuple[str, str]
Call = tuple[str, dict[str, Any]]
JsonWriter = Callable[[Sequence[JsonCall]], str]
Writer = Callable[[Sequence[Call]], str]


def _objects(calls: Sequence[JsonCall], key: str = "arguments") -> list[str]:
    return [f'{{"name": {json.dumps(name)}, "{key}": {args}}}' for name, args in calls]


def hermes(calls: Sequence[JsonCall]) -> str:
    return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in _objects(calls))


def llama3(calls: Sequence[JsonCall]) -> str:
    return "; ".join(_objects(calls, "parameters"))


def listed(begin: str, end: str = "") -> JsonWriter:
    """Calls in one array, between these marks."""
    return lambda calls: f"{begin}[{', '.join(_objects(calls))}]{end}"


def headed(call: str, begin: str = "", between: str = "", end: str = "") -> JsonWriter:
    """Calls of a head and an object. `call` has the places of name, arguments and number."""
    return lambda calls: (
        begin
        + between.join(call.format(name=n, args=args, at=at) for at, (n, args) in enumerate(calls))
        + end
    )


devstral = headed("[TOOL_CALLS]{name}[ARGS]{args}")
devstral_with_ids = headed("[TOOL_CALLS]{name}[CALL_ID]abcDEF12{at}[ARGS]{args}")
cohere = headed(
    '{{"tool_call_id": "{at}", "tool_name": "{name}", "parameters": {args}}}',
    *("<|START_ACTION|>[\n", ", ", "\n]<|END_ACTION|>"),
)
deepseek_v3 = headed(
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{args}\n```<｜tool▁call▁end｜>",
    *("<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"),
)
deepseek_v31 = headed(
    "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{args}<｜tool▁call▁end｜>",
    *("<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>"),
)
kimi_k2 = headed(
    "<|tool_call_begin|>functions.{name}:{at}<|tool_call_argument_begin|>{args}<|tool_call_end|>",
    *("<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>"),
)


def pythonic(begin: str = "", end: str = "") -> Writer:
    """Calls as in Python, between these marks."""

    def write(calls: Sequence[Call]) -> str:
        each = ", ".join(
            f"{name}({', '.join(f'{key}={args[key]!r}' for key in args)})" for name, args in calls
        )
        return f"{begin}[{each}]{end}"

    return write


def tagged(begin: str, argument: str, end: str, between: str = "") -> Writer:
    """Calls with an argument between tags each: `begin` has the place of the name, `argument` those
    of key and value."""

    def call(name: str, args: dict[str, Any]) -> str:
        inner = (argument.format(key, _between_tags(value)) for key, value in args.items())
        return f"{begin.format(name)}{''.join(inner)}{end}"

    return lambda calls: between.join(call(*each) for each in calls)


def _between_tags(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_QWEN = ("<function={}>\n", "<parameter={}>\n{}\n</parameter>\n", "</function>")
qwen3coder = tagged(f"<tool_call>\n{_QWEN[0]}", _QWEN[1], f"{_QWEN[2]}\n</tool_call>", "\n")
glm4 = tagged(
    *("<tool_call>{}\n", "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n"),
    *("</tool_call>", "\n"),
)
newer_glm4 = tagged(
    "<tool_call>{}", "<arg_key>{}</arg_key><arg_value>{}</arg_value>", "</tool_call>"
)
_invocations = tagged(
    '<atem:invoke name="{}">\n',
    '<atem:parameter name="{}">{}</atem:parameter>\n',
    *("</atem:invoke>", "\n"),
)


def minicpm5(calls: Sequence[Call], *, in_sections: bool = False) -> str:
    def section(value: Any) -> str:
        text = _between_tags(value)
        # Line breaks around a value are syntax.
        return f"<![CDATA[{text}]]>" if in_sections or "\n" in text else text

    write = tagged('<function name="{}">', '<param name="{}">{}</param>', "</function>")
    return write([(n, {key: section(args[key]) for key in args}) for n, args in calls])


def gemma4(calls: Sequence[Call], begin: str = "<|tool_call>", end: str = "<tool_call|>") -> str:
    return "".join(f"{begin}call:{name}{_gemma_value(args)}{end}" for name, args in calls)


def functiongemma(calls: Sequence[Call]) -> str:
    """Gemma's notation with other marks."""
    written = gemma4(calls, "<start_function_call>", "<end_function_call>")
    return written.replace('<|"|>', "<escape>")


def _gemma_value(value: Any) -> str:
    match value:
        case str():
            return f'<|"|>{value}<|"|>'
        case dict():
            members = ",".join(f"{key}:{_gemma_value(each)}" for key, each in value.items())
            return f"{{{members}}}"
        case list():
            return f"[{','.join(map(_gemma_value, value))}]"
        case _:
            return json.dumps(value)


def onyx_block(calls: Sequence[Call]) -> str:
    return f"<atem:function_calls>\n{_invocations(calls)}\n</atem:function_calls>"


def onyx(calls: Sequence[Call]) -> str:
    return "<|eom|><|start|>assistant".join(
        f" to={call[0]}<|message|>{onyx_block([call])}" for call in calls
    )


def gptoss(
    calls: Sequence[Call],
    head: str = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>",
) -> str:
    return "<|start|>assistant".join(
        f"{head.format(name)}{json.dumps(args, ensure_ascii=False)}<|call|>" for name, args in calls
    )


# The format that reads the calls, and the function that writes the calls.
JSON_WRITERS: dict[str, tuple[str, JsonWriter]] = {
    "hermes": ("hermes", hermes),
    "llama3": ("llama3", llama3),
    "llama3 with its tag": ("llama3", lambda calls: f"<|python_tag|>{llama3(calls)}"),
    "phi4": ("phi4", listed("functools")),
    "phi4 with its tokens": ("phi4", listed("<|tool_call|>", "<|/tool_call|>")),
    "granite": ("granite", listed("<|tool_call|>")),
    "mistral": ("mistral", listed("[TOOL_CALLS] ")),
    "mistral without its tag": ("mistral", listed("")),
    "newer mistral": ("mistral", devstral_with_ids),
    "devstral": ("devstral", devstral),
    "older devstral": ("devstral", listed("[TOOL_CALLS] ")),
    "deepseek_v3": ("deepseek_v3", deepseek_v3),
    "deepseek_v3 as v31": ("deepseek_v3", deepseek_v31),
    "deepseek_v31": ("deepseek_v31", deepseek_v31),
    "kimi_k2": ("kimi_k2", kimi_k2),
    "nemotron": ("nemotron", listed("<TOOLCALL>", "</TOOLCALL>")),
    "hunyuan": ("hunyuan", listed("<tool_calls>", "</tool_calls>")),
    "cohere": ("cohere", cohere),
}
# The same of other families, whose calls may have text around them.
AMONG_TEXT: dict[str, tuple[str, Writer]] = {
    "llama3_pythonic": ("llama3_pythonic", pythonic()),
    "llama3_pythonic with its tag": ("llama3_pythonic", pythonic("<|python_tag|>")),
    "llama4_pythonic": ("llama4_pythonic", pythonic("<|python_start|>", "<|python_end|>")),
    "llama4_pythonic without its tags": ("llama4_pythonic", pythonic()),
    "lfm2": ("lfm2", pythonic("<|tool_call_start|>", "<|tool_call_end|>")),
    "qwen3coder": ("qwen3coder", qwen3coder),
    "qwen3coder without its outer tags": ("qwen3coder", tagged(*_QWEN, "\n")),
    "glm4": ("glm4", glm4),
    "newer glm4": ("glm4", newer_glm4),
    "minicpm5": ("minicpm5", minicpm5),
    "minicpm5 in sections": ("minicpm5", partial(minicpm5, in_sections=True)),
    "gemma4": ("gemma4", gemma4),
    "functiongemma": ("functiongemma", functiongemma),
    "onyx without heads": ("onyx", onyx_block),
}
RECIPIENT_FIRST = " to=functions.{}<|channel|>commentary json<|message|>"
# Families in which every call is a separate message.
AS_MESSAGES: dict[str, tuple[str, Writer]] = {
    "onyx": ("onyx", onyx),
    "gptoss": ("gptoss", gptoss),
    "gptoss with the recipient first": ("gptoss", partial(gptoss, head=RECIPIENT_FIRST)),
}
OTHER_WRITERS = AMONG_TEXT | AS_MESSAGES

TOOLS = [
    Tool(
        "get_weather",
        None,
        object_of(
            [],
            city={"type": "string"},
            days={"type": "integer"},
            at={"type": "array"},
            more={"type": "object"},
            is_hot={"type": "boolean"},
            any={},
        ),
    ),
    Tool("get_time", None, object_of([], zone={"type": "number"})),
    Tool("ping"),
]
PARIS: Call = ("get_weather", {"city": "Paris"})
NOON: Call = ("get_time", {"zone": 1.5})
PING: Call = ("ping", {})


def _with_json(write: JsonWriter) -> Writer:
    def written(calls: Sequence[Call]) -> str:
        return write([(name, json.dumps(args, ensure_ascii=False)) for name, args in calls])

    return written


# The same for arguments as objects.
WRITERS = {
    **{way: (name, _with_json(write)) for way, (name, write) in JSON_WRITERS.items()},
    **OTHER_WRITERS,
}
# A test for every way; for ways with JSON; with text around calls; and as messages.
ways = table("way", WRITERS)
json_ways = table("way", JSON_WRITERS)
among_text = table("way", [*JSON_WRITERS, *AMONG_TEXT])
as_messages = table("way", AS_MESSAGES)


def written(way: str, calls: Sequence[Call]) -> str:
    return WRITERS[way][1](calls)


def read(way: str, parts: str | Sequence[str]) -> Folded:
    parser = a_parser(WRITERS[way][0], tools=TOOLS)
    return folded(parser, [parts] if isinstance(parts, str) else parts)


def calls_in(read: Folded) -> list[Any]:
    """Return the folded events, with the arguments as values."""
    return [
        (kind, text if kind in ("text", "reasoning") else json.loads(text)) for kind, text in read
    ]
