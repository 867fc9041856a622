"""Which turns a conversation loses when it is too long, and which it never loses."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.core.request import Conversation, Message, Role, TextPart, ToolCall
from serving.flow.rendering import droppable, shortened
from serving.prompting.assets import Prompt


def said(role: Role, text: str = "x", **fields: Any) -> Message:
    return Message(role, (TextPart(text),), **fields)


def user(text: str = "x") -> Message:
    return said(Role.USER, text)


def assistant(text: str = "x") -> Message:
    return said(Role.ASSISTANT, text)


def calling(*ids: str) -> Message:
    return Message(Role.ASSISTANT, tool_calls=tuple(ToolCall(id_, "f", "{}") for id_ in ids))


def output(id_: str) -> Message:
    return said(Role.TOOL, tool_call_id=id_)


SYSTEM = said(Role.SYSTEM)


def test_old_questions_go_with_their_answers() -> None:
    messages = [SYSTEM, user(), assistant(), user(), assistant(), user()]

    assert droppable(messages) == [[1, 2], [3, 4]]


def test_instructions_stay_wherever_they_are() -> None:
    assert droppable([user(), said(Role.DEVELOPER), assistant(), SYSTEM, user()]) == [[0, 2]]


def test_after_the_last_question_calls_go_with_their_outputs() -> None:
    messages = [
        user(),
        calling("a", "b"),
        output("a"),
        output("b"),
        calling("c"),
        output("c"),
        calling("d"),
        output("d"),
    ]

    assert droppable(messages) == [[1, 2, 3], [4, 5]]


def test_a_call_goes_with_its_output_whatever_stands_between_them() -> None:
    messages = [user(), calling("a"), user(), output("a"), user(), assistant(), user()]

    assert droppable(messages) == [[0, 1, 2, 3], [4, 5]]


def test_a_call_before_the_last_question_goes_with_its_output_after_it() -> None:
    messages = [user(), calling("a"), user(), output("a"), assistant(), assistant()]

    assert droppable(messages) == [[0, 1, 3], [4]]


def test_the_newest_turn_stays() -> None:
    assert droppable([user(), calling("a"), output("a")]) == []
    assert droppable([assistant(), assistant()]) == [[0]]


def test_of_one_question_nothing_can_be_left_out() -> None:
    assert shorten(Conversation((user(),)), 0) is None


def shorten(
    conversation: Conversation, room: int, attempts: list[Conversation] | None = None
) -> Prompt | None:
    """Shortened for a model to which each letter is a token."""

    async def render(each: Conversation) -> Prompt:
        if attempts is not None:
            attempts.append(each)
        text = "".join(message.text for message in each.messages)
        return Prompt(tuple(range(len(text))), text)

    return asyncio.run(shortened(conversation, render, max_num_tokens=room))


TURNS = st.builds(
    said,
    st.sampled_from([Role.USER, Role.ASSISTANT, Role.SYSTEM]),
    st.text("abc", min_size=1, max_size=9),
)
CALLS = st.sampled_from([[calling("a"), output("a")], [calling("b"), user(), output("b")]])


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    stretches = draw(st.lists(TURNS.map(lambda turn: [turn]) | CALLS, min_size=1, max_size=12))
    return Conversation(tuple(turn for stretch in stretches for turn in stretch))


@given(conversations(), st.integers(0, 60))
def test_no_more_is_left_out_than_must_be(conversation: Conversation, room: int) -> None:
    stretches = droppable(conversation.messages)
    lengths = [
        sum(
            len(message.text)
            for at, message in enumerate(conversation.messages)
            if all(at not in stretch for stretch in stretches[:num_dropped])
        )
        for num_dropped in range(1, len(stretches) + 1)
    ]

    prompt = shorten(conversation, room)

    best = next((length for length in lengths if length <= room), lengths[-1] if lengths else None)
    assert (None if prompt is None else prompt.num_tokens) == best


@given(conversations())
def test_what_must_stay_stays_and_calls_keep_their_outputs(conversation: Conversation) -> None:
    messages = conversation.messages
    stretches = droppable(messages)
    dropped = {at for stretch in stretches for at in stretch}

    assert sorted(dropped) == sorted(at for stretch in stretches for at in stretch)
    assert len(messages) - 1 not in dropped
    assert all(messages[at].role is not Role.SYSTEM for at in dropped)
    questions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    assert not questions or questions[-1] not in dropped


@given(conversations(), st.integers(0, 60))
def test_it_takes_few_attempts(conversation: Conversation, room: int) -> None:
    attempts: list[Conversation] = []

    shorten(conversation, room, attempts)

    assert len(attempts) <= len(droppable(conversation.messages)).bit_length() + 1
