"""Long and odd prompts: messages, tools, calls, variables of templates and token ids. Large values
of fields without a structure of their own: `fields`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.hostile.case import (
    CHAT,
    COMPLETIONS,
    DETOKENIZE,
    INPUT_TOKENS,
    RESPONSES,
    TOKENIZE,
    Case,
    num_of,
    with_fields,
)

_SIZE: Final = 1 << 20
_TINY: Final = 200

Fields = Callable[[int], dict[str, Any]]


def prompt_cases() -> Iterator[Case]:
    """Each prompt in a body of the endpoints that read such prompts."""
    for name, (paths, param, size, fields) in _PROMPTS.items():
        for path in paths[:2]:
            body = _body(path, fields)
            title = f"{path}: {name}"
            yield Case(title, "prompt", path, body, param, size)


def _body(path: str, fields: Fields) -> Callable[[int], bytes]:
    def body(size: int) -> bytes:
        return json.dumps(with_fields(path, **fields(size))).encode()

    return body


def _of_size(value: Callable[[int], Any], each: int) -> Callable[[int], list[Any]]:
    """A list of values, `each` bytes long, that fill a size."""
    return lambda size: [value(at) for at in range(num_of(size, each))]


# -- Messages -----------------------------------------------------------------------------


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _called(*calls: Any) -> dict[str, Any]:
    """A conversation with earlier calls of a tool."""
    return {"messages": [_user("Hi"), {"role": "assistant", "tool_calls": list(calls)}, _user("?")]}


def _call(at: int, arguments: str = "{}") -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"id": f"c{at}", "type": "function", "function": function}


def _deep_arguments(size: int) -> dict[str, Any]:
    depth = min(100_000, size // 2)
    return _called(_call(0, '{"a":' + "[" * depth + "]" * depth + "}"))


def _wide_arguments(size: int) -> dict[str, Any]:
    members = ",".join(f'"{at:x}":1' for at in range(num_of(size, 9)))
    return _called(_call(0, f"{{{members}}}"))


# -- Tools --------------------------------------------------------------------------------


def _tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def _with_properties(size: int) -> dict[str, Any]:
    properties = {f"p{at}": {"type": "string"} for at in range(num_of(size, 28))}
    return {"tools": [_tool("f", parameters={"type": "object", "properties": properties})]}


def _allowed_tools(size: int) -> dict[str, Any]:
    allowed = _of_size(lambda at: {"type": "function", "function": {"name": f"g{at}"}}, 54)(size)
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}}
    return {"tools": [_tool("f")], "tool_choice": choice}


# -- All of them --------------------------------------------------------------------------

_GENERATION: Final = (CHAT, COMPLETIONS, RESPONSES)
_CONVERSATION: Final = (CHAT, TOKENIZE)
_INPUT: Final = (RESPONSES, INPUT_TOKENS)


def _kwargs(**kwargs: Any) -> tuple[tuple[str, ...], str, int, Fields]:
    """Variables with these names."""
    fields = {"chat_template_kwargs": kwargs}
    return (CHAT, INPUT_TOKENS), "chat_template_kwargs", _TINY, lambda size: fields


def _messages(build: Callable[[int], Any]) -> tuple[tuple[str, ...], str, int, Fields]:
    return _CONVERSATION, "messages", _SIZE, lambda size: {"prompt": None, "messages": build(size)}


def _calls(build: Fields) -> tuple[tuple[str, ...], str, int, Fields]:
    return _CONVERSATION, "messages", _SIZE, lambda size: {"prompt": None, **build(size)}


def _tools(build: Fields) -> tuple[tuple[str, ...], str, int, Fields]:
    return (CHAT, INPUT_TOKENS, RESPONSES), "tools", _SIZE, build


def _input(build: Callable[[int], Any], **more: Any) -> tuple[tuple[str, ...], str, int, Fields]:
    return _INPUT, "input", _SIZE, lambda size: {"input": build(size), **more}


def _field(
    name: str, build: Callable[[int], Any], size: int = _SIZE
) -> tuple[tuple[str, ...], str, int, Fields]:
    return _GENERATION, name, size, lambda size: {name: build(size)}


def _item(at: int) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": ""}


_PROMPTS: Final[Mapping[str, tuple[tuple[str, ...], str, int, Fields]]] = {
    "a text without a blank": _messages(lambda size: [_user("a" * size)]),
    "a text of words": _messages(lambda size: [_user("word " * (size // 5))]),
    "a text of emoji": _messages(lambda size: [_user("\U0001f468\u200d" * (size // 18))]),
    "a text of special tokens": _messages(lambda size: [_user("<|im_end|>" * (size // 10))]),
    "many messages without content": _messages(_of_size(lambda at: _user(""), 34)),
    "many empty parts": _messages(
        lambda size: [_user([{"type": "text", "text": ""}] * num_of(size, 30))]
    ),
    "deep arguments of a call": _calls(_deep_arguments),
    "wide arguments of a call": _calls(_wide_arguments),
    "many calls": _calls(lambda size: _called(*_of_size(_call, 80)(size))),
    "many tools": _tools(
        lambda size: {"tools": _of_size(lambda at: _tool(f"f{at}"), 54)(size)}
    ),
    "a tool with a long description": _tools(
        lambda size: {"tools": [_tool("f", description="word " * (size // 5))]}
    ),
    "a tool with many properties": _tools(_with_properties),
    "a choice of many tools": (
        (CHAT, INPUT_TOKENS), "tool_choice", _SIZE, _allowed_tools,
    ),
    "a variable that is taken: self": _kwargs(self=1),
    "a variable that is taken: tools": _kwargs(tools=[]),
    "a variable with a bad name": _kwargs(**{"__class__": 1, "a b": 2, "": 3}),
    "a variable of a wrong type": _kwargs(enable_thinking={"a": [1]}),
    "a template": _field("chat_template", lambda size: "{{ 'a' * 10**9 }}" * 9, _TINY),
    "a template without an end": _field(
        "chat_template", lambda size: "{% for a in range(10**9) %}{{ a }}{% endfor %}", _TINY
    ),
    "a text as input": _input(lambda size: "a" * size),
    "many items": _input(_of_size(_item, 52)),
    "a prompt of ids": (
        (COMPLETIONS,), "prompt", _SIZE, lambda size: {"prompt": [1] * (size // 3)},
    ),
    "many prompts": (
        (COMPLETIONS,), "prompt", _SIZE, lambda size: {"prompt": ["a"] * num_of(size, 5)},
    ),
    "ids beyond the vocabulary": (
        (COMPLETIONS,), "prompt", _TINY, lambda size: {"prompt": [2**31 - 1, 10**6]},
    ),
    "a text to tokenize": (
        (TOKENIZE,), "prompt", _SIZE, lambda size: {"prompt": "ab" * (size // 2)},
    ),
    "ids to detokenize": (
        (DETOKENIZE,), "tokens", _SIZE, lambda size: {"tokens": [5] * (size // 3)},
    ),
    "as many answers as there may be": (
        (CHAT,), "n", _TINY, lambda size: {"n": 128, "logprobs": True, "top_logprobs": 20},
    ),
    "a wide search for repetitions": _field(
        "repetition_detection",
        lambda size: {"max_pattern_size": 1024, "min_pattern_size": 1, "min_count": 2},
        _TINY,
    ),
}  # fmt: skip
