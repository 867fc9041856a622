"""What a Responses request needs of stored items, and how they become its prompt."""

import json
from typing import Any

import msgspec
import pytest

from tests.tables import table
from vinery_serving.core.dialects import V1, V3, Dialect
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.memory import Memory, MemoryItem, Needs, Recalled
from vinery_serving.core.request import Conversation, GenerationRequest
from vinery_serving.protocols import chat
from vinery_serving.protocols.responses.exchange import (
    ResponsesExchange,
    Unrecalled,
    memory_item,
    parse,
    with_id,
)

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "Sunny."}
HELLO = {"role": "user", "content": "Hello."}
NOTHING = Recalled()
SEALED = {"type": "compaction", "encrypted_content": "s"}


def read(
    input: Any, recalled: Recalled | None = None, dialect: Dialect = V1, **fields: Any
) -> ResponsesExchange | Unrecalled:
    body = json.dumps({"input": input, **fields}).encode()
    return parse(body, dialect, memory=Memory(True, recalled))


def texts(recalled: Recalled, input: Any, **fields: Any) -> list[str]:
    exchange = read(input, recalled, **fields)
    assert isinstance(exchange, ResponsesExchange)
    assert isinstance(exchange.request, GenerationRequest)
    assert isinstance(exchange.request.prompt, Conversation)
    return [message.text for message in exchange.request.prompt.messages]


def stored(sent: dict[str, Any], token: str = "t", index: int = 0) -> MemoryItem:
    return with_id(memory_item(sent), token, index)


@table(
    "fields, needs",
    [
        ({"input": [{"id": "x"}]}, Needs(item_ids=("x",))),
        ({"input": [{"type": "item_reference", "id": "x"}] * 2}, Needs(item_ids=("x",))),
        ({"previous_response_id": "r"}, Needs("r")),
        ({"conversation": "c"}, Needs(conversation_id="c")),
        ({"conversation": {"id": "c"}, "input": [{"id": "x"}]}, Needs(None, "c", ("x",))),
        ({"input": [HELLO, SEALED]}, Needs(compactions={"input[1]": "s"})),
    ],
)
def test_a_request_names_what_it_needs(fields: dict[str, Any], needs: Needs) -> None:
    unread = read(**{"input": [HELLO], "model": "m", "stream": True, **fields})

    assert unread == Unrecalled("m", is_streamed=True, needs=needs)


def test_a_request_without_history_needs_nothing() -> None:
    assert isinstance(read("Hello."), ResponsesExchange)


def test_what_was_before_comes_first_and_references_take_their_place() -> None:
    first, second = stored({"role": "user", "content": "One."}), stored(HELLO, index=1)
    recalled = Recalled((first,), {second.id: second})
    sent = [{"id": second.id}, {"role": "user", "content": "Two."}]

    assert texts(recalled, sent, previous_response_id="r") == ["One.", "Hello.", "Two."]


@table(
    "recalled, input, param, message",
    [
        (NOTHING, [HELLO, {"id": "x"}], "input[1].id", "Item with id 'x' not found. Items are not"),
        (NOTHING, [{"id": "x"}], "input[0].id", "not persisted when `store` is set to false"),
        (Recalled((stored(CALL),)), "And?", "input", "No tool output found for function call c."),
        (NOTHING, [OUTPUT], "input", "No tool call found for function call output with call_id c."),
    ],
)
def test_unknown_items_and_half_calls_are_refused(
    recalled: Recalled, input: Any, param: str, message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(input, recalled, previous_response_id="r")

    assert refused.value.param == param
    assert message in refused.value.message


def test_stored_items_have_an_id_and_the_members_that_clients_require() -> None:
    kept = [stored(HELLO), stored(CALL, index=1), stored(OUTPUT, index=255)]

    ids = ["msg_ti00", "fc_ti01", "fco_tiff"]
    shown = [msgspec.json.decode(each.payload) for each in kept]
    assert [each.id for each in kept] == [each["id"] for each in shown] == ids
    assert [each["status"] for each in shown] == ["completed"] * 3
    assert shown[0]["content"] == [{"type": "input_text", "text": "Hello."}]
    own = stored({**HELLO, "id": "msg_of_the_client"})
    assert own.id == "msg_ti00"


def test_a_stored_chat_has_its_pictures_and_calls_as_they_were_sent() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "A cat."},
    ]
    for fields in ({"store": True}, {"store": True, "stream": True}):
        body = json.dumps({"messages": messages, **fields}).encode()
        kept = chat.parse(body, V1, memory=Memory(True)).to_keep
        assert kept is not None
        shown = [msgspec.json.decode(each.payload) for each in kept.items]
        assert [each["content"] for each in shown] == [None, None, "A cat."]
        assert [each["content_parts"] for each in shown] == [messages[0]["content"], None, None]
        assert shown[1]["tool_calls"] == [call]
        assert shown[2]["tool_call_id"] == "c"
    unasked = json.dumps({"messages": messages}).encode()
    assert chat.parse(unasked, V1, memory=Memory(True)).to_keep is None


SYSTEM = {"role": "system", "content": "Be brief."}
LONG = [{"type": "compaction", "compact_threshold": 1000}]
ANSWER = {"role": "assistant", "content": "Yes."}
OPENED = "A summary of the conversation so far:\n\nAll."


def made(*kept: Any, is_alone: bool = True) -> bytes:
    return json.dumps({"summary": "All.", "kept": list(kept) if is_alone else None}).encode()


@table(
    "content, recalled, input, expected",
    [
        # An item of a compacted window stands beside the messages of the user.
        (
            made(is_alone=False),
            (),
            [SYSTEM, HELLO, SEALED, ANSWER],
            ["Be brief.", "Hello.\n{}", "Yes."],
        ),
        # One of a response replaces all but instructions, and has the messages that stay.
        (made(HELLO), (), [SYSTEM, ANSWER, SEALED, ANSWER], ["Be brief.", "{}\nHello.", "Yes."]),
        (made(), (CALL, SYSTEM, SEALED, ANSWER), [HELLO], ["Be brief.", "{}", "Yes.", "Hello."]),
        (made(HELLO), (SEALED,), [SEALED, HELLO], ["{}\nHello.\nHello."]),
    ],
)
def test_a_compaction_takes_the_place_of_what_it_stands_for(
    content: bytes, recalled: tuple[Any, ...], input: Any, expected: list[str]
) -> None:
    known = Recalled(tuple(map(stored, recalled)), opened={"s": content})

    found = texts(known, input, previous_response_id="r")

    assert found == [each.format(OPENED) for each in expected]


def test_the_compaction_of_the_whole_conversation_comes_last() -> None:
    body = json.dumps({"input": [SYSTEM, HELLO, ANSWER], "context_management": LONG}).encode()

    exchange = parse(body, V1, memory=Memory(compaction=made(HELLO)))

    assert isinstance(exchange, ResponsesExchange)
    assert isinstance(exchange.request.prompt, Conversation)
    summary = exchange.request.prompt.messages[1]
    assert (summary.text, summary.stays) == (f"{OPENED}\nHello.", True)
    assert exchange.request.compact_above is None


def test_a_summary_keeps_the_last_messages_of_the_user() -> None:
    question = {"role": "user", "content": "One?"}
    known = Recalled((stored(question), stored(SEALED), stored(question)), {}, {"s": made(HELLO)})
    for is_compact in (True, False):
        known.opened["s"] = made(HELLO, is_alone=not is_compact)  # type: ignore[index]
        fields = {"context_management": LONG, "input": "Two?", "previous_response_id": "r"}
        body = json.dumps(fields).encode()
        exchange = parse(body, V1, memory=Memory(recalled=known), is_compact=is_compact)
        assert isinstance(exchange, ResponsesExchange)
        assert len(exchange.user_items) == 3
        kept = [json.loads(each.payload)["content"][0]["text"] for each in exchange.user_items]
        assert kept[-2:] == ["One?", "Two?"]
        assert kept[0] == ("One?" if is_compact else "Hello.")
        sizes = [len(each.payload) for each in exchange.user_items]
        assert len(exchange.keeping(0).user_items) == 1
        assert len(exchange.keeping(sum(sizes[1:]) // 3 + 1).user_items) == 2
        assert len(exchange.keeping(sum(sizes)).user_items) == 3
        silent = json.loads(exchange.keeping(4).compaction(" \n"))["summary"]
        assert len(silent.partition("The last words were:\n")[2]) == 12  # three for a token
        content = json.loads(exchange.compaction("All."))
        assert (content["kept"] is None) == is_compact


def test_the_tree_decides_what_is_kept_and_a_chosen_id_is_not() -> None:
    for dialect, fields, is_kept in (
        (V1, {}, True),
        (V1, {"store": False}, False),
        (V3, {}, False),
        (V3, {"store": True}, True),
        (V1, {"request_id": "mine"}, False),
    ):
        exchange = read("Hello.", None, dialect, **fields)  # type: ignore[arg-type]
        assert isinstance(exchange, ResponsesExchange)
        assert (exchange.to_keep is not None) == is_kept, fields
