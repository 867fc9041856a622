"""What an answer says, in words that people compare: of JSON bodies and of streams, of all three
protocols."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_FINAL_RESPONSES = ("response.completed", "response.incomplete", "response.failed")
Said = tuple[str, str]
"""A name for a text, and a piece of it."""


def texts_of(answer: bytes) -> dict[str, str]:
    """The texts by names such as `choice 0`. What cannot be read says nothing."""
    texts: dict[str, str] = {}
    for name, piece in _said(list(_documents(answer))):
        texts[name] = texts.get(name, "") + piece
    return {name: text for name, text in texts.items() if text}


def _documents(answer: bytes) -> Iterator[dict[str, Any]]:
    """The JSON of a body, or of each event of a stream."""
    lines = answer.split(b"\n")
    data = [line[6:] for line in lines if line.startswith(b"data: ")]
    for each in data or [answer]:
        try:
            document = json.loads(each)
        except ValueError:  # the end of a stream, or of one that is cut
            continue
        if isinstance(document, dict):
            yield document


def _said(documents: list[dict[str, Any]]) -> Iterator[Said]:
    wholes = [each["response"] for each in documents if each.get("type") in _FINAL_RESPONSES]
    if wholes:  # it says all that the events before it have said
        documents = wholes[-1:]
    for each in documents:
        error = each.get("error")
        if isinstance(error, Mapping) or each.get("type") == "error":
            yield "error", str((error or each).get("message"))
        for choice in each.get("choices", ()):
            yield from _of_choice(choice)
        for at, item in enumerate(each.get("output", ())):
            yield from _of_item(f"item {at}", item)
        if isinstance(each.get("delta"), str):  # of a response whose end is missing
            yield f"item {each.get('output_index', 0)}", each["delta"]


def _of_choice(choice: Mapping[str, Any]) -> Iterator[Said]:
    name = f"choice {choice.get('index', 0)}"
    told = choice.get("delta") or choice.get("message") or choice
    yield f"{name}, thoughts", told.get("reasoning_content") or ""
    yield name, told.get("content") or told.get("text") or told.get("refusal") or ""
    for at, call in enumerate(told.get("tool_calls") or ()):
        yield f"{name}, call {call.get('index', at)}", _called(call.get(call.get("type")) or call)


def _called(call: Mapping[str, Any]) -> str:
    """A call, or a piece of one: its name comes first."""
    function = call.get("function") or call.get("custom") or call
    name = f"{function['name']} " if function.get("name") else ""
    return name + (function.get("arguments") or function.get("input") or "")


def _of_item(name: str, item: Mapping[str, Any]) -> Iterator[Said]:
    match item.get("type"):
        case "function_call" | "custom_tool_call":
            yield name, _called(item)
        case "reasoning":
            for part in item.get("summary", ()):
                yield f"{name}, thoughts", part.get("text") or ""
        case _:
            for part in item.get("content", ()):
                yield name, part.get("text") or part.get("refusal") or ""
