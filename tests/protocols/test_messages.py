"""The bodies of Messages: turns, blocks, tools, reasoning, and the format of the answer."""

import base64
import json
from functools import partial
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core.dialects import V1
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import InlineSource, MediaKind, MediaPart, UrlSource
from vinery_serving.core.request import Endpoint, Message, Role, TextPart, ToolCall, Unused
from vinery_serving.protocols.messages.exchange import count_body, parse_count

from .exchanges import LEAST, conversation_of, message

DATA = base64.b64encode(b"picture").decode()
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": "é"}}
WEATHER = {
    "name": "get_weather",
    "description": "The weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}

conversation = partial(conversation_of, Endpoint.MESSAGES)


def turns(*turns: tuple[str, Any]) -> tuple[Message, ...]:
    return conversation(
        messages=[{"role": role, "content": content} for role, content in turns]
    ).messages


def text(role: Role, *texts: str) -> Message:
    return Message(role, tuple(map(TextPart, texts)))


def block_of_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


HI = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
RESULTS = [
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"},
    {"type": "tool_result", "tool_use_id": "toolu_2"},
    block_of_text("Go on."),
]
FAILED = {"type": "tool_result", "tool_use_id": "t", "content": "No city.", "is_error": True}
THINKING = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
    block_of_text("Yes"),
]
REPORT = {
    "type": "document",
    "title": "Report",
    "context": "Of 2025.",
    "source": {"type": "text", "media_type": "text/plain", "data": "All is well."},
}
IN_BLOCKS = {
    "type": "document",
    "source": {"type": "content", "content": [block_of_text("a"), block_of_text("b")]},
}
FOUND = {
    "type": "search_result",
    "title": "Cats",
    "source": "https://a.b/cats",
    "content": [block_of_text("They purr."), block_of_text("Often.")],
    "citations": {"enabled": False},
}
CATS = ("Cats\nSource: https://a.b/cats", "They purr.", "Often.")
PNG = {"type": "base64", "media_type": "image/png", "data": DATA}
PDF = {"type": "base64", "media_type": "application/pdf", "data": DATA}
LINK = {"type": "url", "url": "https://a.b/c.png"}


def result(*texts: str, id_: str) -> Message:
    return Message(Role.TOOL, tuple(map(TextPart, texts)), tool_call_id=id_)


@table(
    "sent, messages",
    [
        ([("user", "Hi")], [text(Role.USER, "Hi")]),
        ([("user", HI)], [text(Role.USER, "Hi")]),
        # An instruction may come between the turns.
        (
            [("user", "Hi"), ("system", "Be brief."), ("user", "Go on")],
            [text(Role.USER, "Hi"), text(Role.SYSTEM, "Be brief."), text(Role.USER, "Go on")],
        ),
        # Consecutive turns of one role are one.
        (
            [("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d")],
            [text(Role.USER, "a", "b"), text(Role.ASSISTANT, "c"), text(Role.USER, "d")],
        ),
        # Calls join the message of the assistant, and results become messages.
        (
            [("user", "Hi"), ("assistant", [block_of_text("Well"), CALL]), ("user", RESULTS)],
            [
                text(Role.USER, "Hi"),
                Message(
                    Role.ASSISTANT, (TextPart("Well"),),
                    tool_calls=(ToolCall("toolu_1", "f", '{"a":"é"}'),),
                ),
                result("4", id_="toolu_1"), result(id_="toolu_2"), text(Role.USER, "Go on."),
            ],
        ),
        # A failed tool is marked for the model.
        ([("user", [FAILED])], [result("Error:", "No city.", id_="t")]),
        # Earlier thinking is reasoning, and redacted thinking is left out.
        (
            [("user", "a"), ("assistant", THINKING), ("user", "b")],
            [
                text(Role.USER, "a"), Message(Role.ASSISTANT, (TextPart("Yes"),), reasoning="Hm."),
                text(Role.USER, "b"),
            ],
        ),
        # A document of text becomes title, context and text; a document may consist of blocks.
        ([("user", [REPORT])], [text(Role.USER, "Report", "Of 2025.", "All is well.")]),
        ([("user", [IN_BLOCKS])], [text(Role.USER, "a", "b")]),
        # A search result becomes title, source and texts.
        ([("user", [FOUND])], [text(Role.USER, *CATS)]),
        (
            [("user", [{"type": "tool_result", "tool_use_id": "t", "content": [FOUND]}])],
            [result(*CATS, id_="t")],
        ),
    ],
)  # fmt: skip
def test_turns_become_messages(sent: list[tuple[str, Any]], messages: list[Message]) -> None:
    assert turns(*sent) == tuple(messages)


@table("system", ["Be kind.", [{"type": "text", "text": "Be kind."}]])
def test_the_system_text_is_the_first_message(system: Any) -> None:
    assert conversation(system=system).messages[0] == text(Role.SYSTEM, "Be kind.")


def test_a_last_turn_of_the_assistant_is_continued() -> None:
    asked = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "He"}]

    rendering = conversation(messages=asked).rendering

    assert rendering.continues_final_message
    assert not rendering.adds_generation_prompt
    assert not conversation(messages=asked[:1]).rendering.continues_final_message


@table(
    "block, kind, source, member, filename",
    [
        ({"type": "image", "source": PNG}, MediaKind.IMAGE, InlineSource(b"picture"), "data", None),
        ({"type": "image", "source": LINK}, MediaKind.IMAGE, UrlSource(LINK["url"]), "url", None),
        (
            {"type": "document", "title": "a.pdf", "source": PDF},
            MediaKind.DOCUMENT,
            InlineSource(b"picture"),
            "data",
            "a.pdf",
        ),
    ],
)
def test_pictures_and_files_are_media_of_their_message(
    block: Any, kind: MediaKind, source: Any, member: str, filename: str | None
) -> None:
    param = f"messages[0].content[0].source.{member}"

    part = MediaPart(kind, source, param, filename=filename)
    assert turns(("user", [block]))[0].content == (part,)


def test_a_picture_in_a_result_names_its_field_and_no_result_is_in_an_answer() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": DATA}}
    sent = {"type": "tool_result", "tool_use_id": "t", "content": [picture]}

    [part] = turns(("user", [sent]))[0].media

    assert part.param == "messages[0].content[0].content[0].source.data"

    with pytest.raises(InvalidRequest, match="of type tool_result, which has no meaning") as caught:
        turns(("assistant", RESULTS[:1]))

    assert caught.value.param == "messages[0].content[0]"


def test_examples_of_an_input_follow_the_description_of_its_tool() -> None:
    examples = [{"city": "Oslo"}, {"city": "Côme"}]

    [described] = conversation(tools=[{**WEATHER, "input_examples": examples}]).tools
    bare = {name: value for name, value in WEATHER.items() if name != "description"}
    [undescribed] = conversation(tools=[{**bare, "input_examples": examples}]).tools

    lines = 'Examples of its input:\n{"city":"Oslo"}\n{"city":"Côme"}'
    assert described.description == f"The weather.\n\n{lines}"
    assert undescribed.description == lines


def test_unknown_members_of_turns_blocks_and_tools_are_named_once() -> None:
    block = {"type": "text", "text": "a", "id": 1, "cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block, block], "note": 5}
    source = {"type": "text", "data": "a", "name": "b"}

    asked = message(
        messages=[
            {"role": "user", "content": [block, {"type": "document", "source": source}]},
            {"role": "user", "content": [block, result], "uuid": "u", "parent": None},
        ],
        system=[block],
        tools=[{**WEATHER, "own": True}, {**WEATHER, "name": "g", "own": True}],
        unheard_of=1,
    )

    in_messages = "content.id content.source.name uuid content.note content.content.id"
    unknown = ("unheard_of", *(f"messages.{name}" for name in in_messages.split()), "system.id")
    cached = ("messages.content", "messages.content.content", "system")
    assert asked.unused == Unused(
        (*unknown, "tools.own"), 8, tuple(f"{each}.cache_control" for each in cached)
    )


def test_few_of_many_unknown_members_are_named_and_none_of_a_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "note": 1}}, "x-own": 2}

    asked = message(
        tools=[{"name": "f", "input_schema": schema, "input_examples": [{"b": 1}]}],
        messages=[
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{**CALL, "input": {"any": {"type": "text"}}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]},
        ],
    )

    assert asked.unused == Unused()

    block = {"type": "text", "text": "a", **{f"member{at}": at for at in range(1000)}}

    unused = message(messages=[{"role": "user", "content": [block]}]).unused

    assert unused.num_unknown == 1000
    assert len(unused.unknown) == 32


def test_counting_needs_no_limit_of_the_answer() -> None:
    body = {"messages": LEAST[Endpoint.MESSAGES]["messages"], "system": "Be kind."}

    request = parse_count(json.dumps(body).encode(), V1)

    assert request.prompt == message(system="Be kind.").prompt
    assert json.loads(count_body(7)) == {"input_tokens": 7}
