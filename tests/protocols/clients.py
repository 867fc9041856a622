"""A client's parsing of streams: it splits frames and joins deltas."""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from vinery_serving.protocols.messages.exchange import input_object


@dataclass(frozen=True)
class Frame:
    """An event: a name, and a payload or "[DONE]"."""

    name: str | None
    payload: Any


def frames(stream: bytes) -> list[Frame]:
    """The events of a stream, read with Unicode's idea of a line as httpx does."""
    read = []
    name = None
    payload = ""
    for line in stream.decode().splitlines():
        if not line:
            assert payload, "an event without data breaks clients"
            done = payload == "[DONE]"
            read.append(Frame(name, payload if done else json.loads(payload)))
            name, payload = None, ""
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        else:
            assert line.startswith("data: "), f"no client expects {line!r}"
            payload += line.removeprefix("data: ")
    assert not payload, "the last event lacks its blank line"
    return read


def payloads(stream: bytes) -> list[Any]:
    """The payloads of a stream that ends as it must."""
    *events, last = frames(stream)
    if last.name in ("message_stop", "error"):  # Anthropic's streams have no other end
        return [event.payload for event in (*events, last)]
    assert last == Frame(None, "[DONE]")
    return [event.payload for event in events]


def chat_answer(stream: bytes) -> Any:
    """The whole answer, added up from the chunks of a chat."""
    chunks = payloads(stream)
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            _add_chat_choice(choices.setdefault(choice["index"], _new_choice(choice)), choice)
    for choice in choices.values():
        _settle_message(choice["message"])
    return {
        **{key: value for key, value in chunks[0].items() if key not in ("choices", "usage")},
        "choices": [choices[index] for index in sorted(choices)],
        "usage": chunks[-1].get("usage"),
    }


def _new_choice(choice: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "", "content": "", "tool_calls": {}, "refusal": None}
    message |= {"reasoning": "", "reasoning_content": ""}
    ends = {"finish_reason": None, "stop_reason": None}
    return {"index": choice["index"], "message": message, "logprobs": None, **ends}


# The members of `return_token_ids`. A client joins the lists and strings of a stream.
_SENT_ONCE = ("prompt_token_ids", "prompt_tokens", "prompt_text")
_SENT_IN_PARTS = ("completion_token_ids", "completion_tokens", "token_ids")


def _add_members(whole: dict[str, Any], part: Any) -> None:
    for key in _SENT_ONCE:
        if key in part:
            assert key not in whole
            whole[key] = part[key]
    for key in _SENT_IN_PARTS:
        if key in part:
            whole[key] = whole.get(key, type(part[key])()) + part[key]


def _add_chat_choice(whole: dict[str, Any], choice: Any) -> None:
    message, delta = whole["message"], choice["delta"]
    _add_members(message, delta)
    _add_members(whole, choice)
    for key in ("role", "content", "reasoning", "reasoning_content"):
        message[key] += delta.get(key) or ""
    for call in delta.get("tool_calls", ()):
        _add_call(message["tool_calls"], call)
    if "function_call" in delta:
        _add_function_call(message, delta["function_call"])
    if choice["finish_reason"] is not None:
        assert whole["finish_reason"] is None
        assert delta == {}
        whole |= {name: choice[name] for name in ("finish_reason", "stop_reason")}


def _add_call(calls: dict[int, Any], call: Any) -> None:
    index = call["index"]
    if index not in calls:
        assert index == len(calls), "clients index a list with it"
        kind = call["type"]
        calls[index] = {"id": call["id"], "type": kind, kind: call[kind]}
    else:
        kind = calls[index]["type"]
        member = "input" if kind == "custom" else "arguments"
        assert call.keys() == {"index", kind}, "clients would join the strings"
        assert call[kind].keys() == {member}
        calls[index][kind][member] += call[kind][member]


def _add_function_call(message: dict[str, Any], call: Any) -> None:
    if "function_call" not in message:
        message["function_call"] = call
    else:
        assert call.keys() == {"arguments"}, "clients would join the strings"
        message["function_call"]["arguments"] += call["arguments"]


def _settle_message(message: dict[str, Any]) -> None:
    """Leave out the members that a unary answer leaves out, and set its nulls."""
    message["tool_calls"] = [message["tool_calls"][at] for at in sorted(message["tool_calls"])]
    has_calls = message["tool_calls"] or "function_call" in message
    if has_calls and not message["content"]:
        message["content"] = None
    for key in ("tool_calls", "reasoning", "reasoning_content"):
        if not message[key]:
            del message[key]


def completion_answer(stream: bytes) -> Any:
    """The whole answer, added up from the chunks of a completion."""
    chunks = payloads(stream)
    texts: dict[int, str] = defaultdict(str)
    ends: dict[int, dict[str, Any]] = {}
    returned: dict[int, dict[str, Any]] = defaultdict(dict)
    calls: dict[int, dict[int, Any]] = defaultdict(dict)
    for chunk in chunks:
        for choice in chunk["choices"]:
            _add_members(returned[choice["index"]], choice)
            texts[choice["index"]] += choice["text"]
            whole = returned[choice["index"]]
            if reasoning := choice.get("reasoning_content"):
                whole["reasoning_content"] = whole.get("reasoning_content", "") + reasoning
            for call in choice.get("tool_calls", ()):
                _add_call(calls[choice["index"]], call)
                whole["tool_calls"] = list(calls[choice["index"]].values())
            ends[choice["index"]] = {
                "finish_reason": choice["finish_reason"],
                "stop_reason": choice.get("stop_reason"),
            }
    choices = [
        {"index": at, "text": texts[at], "logprobs": None, **ends[at], **returned[at]}
        for at in sorted(texts)
    ]
    return {**chunks[0], "choices": choices, "usage": chunks[-1].get("usage")}


def response_answer(stream: bytes) -> Any:
    """Return the whole answer of the last event, after checking that the other events build the
    same items."""
    events = payloads(stream)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    items: list[Any] = []
    for event in events[2:-1]:
        at = event["output_index"]
        if event["type"] == "response.compaction.compacting":
            assert at == len(items)
            assert event["item_id"].startswith("cmp_")
            continue
        if event["type"] == "response.output_item.added":
            assert at == len(items), "clients index a list with it"
            items.append(event["item"])
        else:
            assert at == len(items) - 1, "items are written one after the other"
            _add_delta(items[at], event)
    answer = events[-1]["response"]
    assert items == answer["output"]
    return answer


def _add_delta(item: Any, event: Any) -> None:
    """Add an event to an open item."""
    if item["type"] == "compaction":
        assert (event["type"], event["item"]) == ("response.output_item.done", item)
        return
    assert item["status"] == "in_progress", "nothing follows the end of an item"
    if event["type"] != "response.output_item.done":
        assert event["item_id"] == item["id"]
    match event:
        case {"type": "response.content_part.added", "content_index": at, "part": part}:
            assert at == len(item["content"])
            item["content"] = [*item["content"], part]
        case {"type": "response.output_text.delta", "content_index": at, "delta": delta}:
            item["content"][at]["text"] += delta
            item["content"][at]["logprobs"] += event["logprobs"]
        case {"type": "response.output_text.done", "content_index": at, "text": text}:
            assert item["content"][at]["text"] == text
            assert item["content"][at]["logprobs"] == event["logprobs"]
        case {"type": "response.reasoning_text.done", "content_index": at, "text": text}:
            item["content"][at]["text"] = text
        case {"type": "response.content_part.done", "content_index": at, "part": part}:
            assert item["content"][at] == part
        case {"type": "response.reasoning_summary_part.added", "summary_index": at, "part": part}:
            assert at == len(item["summary"])
            item["summary"] = [*item["summary"], part]
        case {"type": "response.reasoning_summary_text.delta", "summary_index": at}:
            item["summary"][at]["text"] += event["delta"]
        case {"type": "response.reasoning_summary_text.done", "summary_index": at, "text": text}:
            assert item["summary"][at]["text"] == text
        case {"type": "response.reasoning_summary_part.done", "summary_index": at, "part": part}:
            assert item["summary"][at] == part
        case {"type": "response.function_call_arguments.delta", "delta": delta}:
            item["arguments"] += delta
        case {"type": "response.function_call_arguments.done", "name": name}:
            assert (name, event["arguments"]) == (item["name"], item["arguments"])
        case {"type": "response.custom_tool_call_input.delta", "delta": delta}:
            item["input"] += delta
        case {"type": "response.custom_tool_call_input.done", "input": text}:
            assert text == item["input"]
        case {"type": "response.output_item.done", "item": done}:
            assert done["status"] in ("completed", "incomplete")
            # Only the end of a stream has these two.
            last = {key: done[key] for key in ("status", "encrypted_content") if key in done}
            assert {**item, **last} == done
            item |= last
        case _:
            raise AssertionError(f"no client expects {event['type']}")


def message_answer(stream: bytes) -> Any:
    """The message that a client builds from a stream."""
    whole: Any = None
    arguments: dict[int, str] = {}
    for event in payloads(stream):
        match event:
            case {"type": "message_start", "message": message}:
                whole = message
            case {"type": "content_block_start", "index": at, "content_block": block}:
                assert at == len(whole["content"])
                whole["content"].append(block)
            case {"type": "content_block_delta", "index": at, "delta": delta}:
                _add_to_block(whole["content"][at], delta, arguments, at)
            case {"type": "content_block_stop", "index": at}:
                if at in arguments:
                    whole["content"][at]["input"] = input_object(arguments[at])
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                whole |= {**delta, "usage": usage}
    return whole


def _add_to_block(block: Any, delta: Any, arguments: dict[int, str], at: int) -> None:
    match delta:
        case {"type": "input_json_delta", "partial_json": text}:
            arguments[at] = arguments.get(at, "") + text
        case {"type": "signature_delta", "signature": signature}:
            block["signature"] = signature
        case {"type": kind}:
            name = kind.removesuffix("_delta")
            block[name] += delta[name]


def item_text(item: Any) -> Any:
    """The text that deltas have written into an output item."""
    match item["type"]:
        case "function_call":
            return item["arguments"]
        case "custom_tool_call":
            return item["input"]
        case "reasoning":
            return "".join(part["text"] for part in item["summary"])
        case _:
            return "".join(part["text"] for part in item["content"])
