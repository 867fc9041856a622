"""The turns that a conversation loses when it is too long, and those that it keeps."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vinery_serving.core.request import Conversation, Message, Role, TextPart, ToolCall
from vinery_serving.flow.rendering import droppable, shortened
from vinery_serving.prompting.assets import Prompt


def message(role: Role, text: str = "x", **fields: Any) -> Message:
    return Message(role, (TextPart(text),), **fields)


def user(text: str = "x") -> Message:
    return message(Role.USER, text)


def assistant(text: str = "x") -> Message:
    return message(Role.ASSISTANT, text)


def calling(*ids: str) -> Message:
    return Message(Role.ASSISTANT, tool_calls=tuple(ToolCall(id_, "f", "{}") for id_ in ids))


def output(id_: str) -> Message:
    return message(Role.TOOL, tool_call_id=id_)


SYSTEM = message(Role.SYSTEM)


def test_old_questions_are_dropped_with_their_answers() -> None:
    messages = [SYSTEM, user(), assistant(), user(), assistant(), user()]

    assert droppable(messages) == [[1, 2], [3, 4]]


def test_instructions_stay_wherever_they_are() -> None:
    assert droppable([user(), message(Role.DEVELOPER), assistant(), SYSTEM, user()]) == [[0, 2]]


def test_after_the_last_question_calls_are_dropped_with_their_outputs() -> None:
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


def test_a_call_is_dropped_with_its_output_and_all_between_them() -> None:
    messages = [user(), calling("a"), user(), output("a"), user(), assistant(), user()]

    assert droppable(messages) == [[0, 1, 2, 3], [4, 5]]


def test_a_call_before_the_last_question_is_dropped_with_its_output_after_it() -> None:
    messages = [user(), calling("a"), user(), output("a"), assistant(), assistant()]

    assert droppable(messages) == [[0, 1, 3], [4]]


def test_the_newest_turn_stays() -> None:
    assert droppable([user(), calling("a"), output("a")]) == []
    assert droppable([assistant(), assistant()]) == [[0]]


def test_of_one_question_no_message_can_be_left_out() -> None:
    assert shorten(Conversation((user(),)), 0) is None


def shorten(
    conversation: Conversation, max_num_tokens: int, attempts: list[Conversation] | None = None
) -> Prompt | None:
    """The shortened prompt for a model with a token for each letter."""

    def render(each: Conversation) -> Prompt:
        if attempts is not None:
            attempts.append(each)
        text = "".join(message.text for message in each.messages)
        return Prompt(tuple(range(len(text))), text)

    return shortened(conversation, render, max_num_tokens=max_num_tokens)


TURNS = st.builds(
    message,
    st.sampled_from([Role.USER, Role.ASSISTANT, Role.SYSTEM]),
    st.text("abc", min_size=1, max_size=9),
)
CALLS = st.sampled_from([[calling("a"), output("a")], [calling("b"), user(), output("b")]])


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    spans = draw(st.lists(TURNS.map(lambda turn: [turn]) | CALLS, min_size=1, max_size=12))
    return Conversation(tuple(turn for span in spans for turn in span))


@given(conversations(), st.integers(0, 60))
def test_no_more_is_left_out_than_necessary(conversation: Conversation, limit: int) -> None:
    spans = droppable(conversation.messages)
    lengths = [
        sum(
            len(each.text)
            for at, each in enumerate(conversation.messages)
            if all(at not in span for span in spans[:num_dropped])
        )
        for num_dropped in range(1, len(spans) + 1)
    ]

    prompt = shorten(conversation, limit)

    best = next((length for length in lengths if length <= limit), lengths[-1] if lengths else None)
    assert (None if prompt is None else prompt.num_tokens) == best


@given(conversations())
def test_required_messages_stay_and_calls_keep_their_outputs(conversation: Conversation) -> None:
    messages = conversation.messages
    spans = droppable(messages)
    dropped = {at for span in spans for at in span}

    assert sorted(dropped) == sorted(at for span in spans for at in span)
    assert len(messages) - 1 not in dropped
    assert all(messages[at].role is not Role.SYSTEM for at in dropped)
    questions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    assert not questions or questions[-1] not in dropped


@given(conversations(), st.integers(0, 60))
def test_it_takes_few_attempts(conversation: Conversation, limit: int) -> None:
    attempts: list[Conversation] = []

    shorten(conversation, limit, attempts)

    assert len(attempts) <= len(droppable(conversation.messages)).bit_length() + 1
