"""The turns that a conversation loses when it is too long, and those that it keeps."""

from hypothesis import given
from hypothesis import strategies as st

from tests.prompting.builders import a_chat, a_message
from tests.tables import table
from vinery_serving.core.request import Conversation, Message, Role, ToolCall
from vinery_serving.gateway.preparing.rendering import droppable, shortened
from vinery_serving.prompting.assets import Prompt

USER, ASSISTANT, SYSTEM, DEVELOPER = (
    a_message(role, "x") for role in ("user", "assistant", "system", "developer")
)


def calling(*ids: str) -> Message:
    return a_message("assistant", tool_calls=tuple(ToolCall(id_, "f", "{}") for id_ in ids))


def output(id_: str) -> Message:
    return a_message("tool", "x", tool_call_id=id_)


@table(
    "messages, spans",
    [
        ([SYSTEM, USER, ASSISTANT, USER, ASSISTANT, USER], [[1, 2], [3, 4]]),
        # Instructions stay wherever they are.
        ([USER, DEVELOPER, ASSISTANT, SYSTEM, USER], [[0, 2]]),
        # After the last question, calls are dropped with their outputs.
        (
            [USER, calling("a", "b"), output("a"), output("b")]
            + [turn for id_ in "cd" for turn in (calling(id_), output(id_))],
            [[1, 2, 3], [4, 5]],
        ),
        # A call is dropped with its output and all between them, also after the last question.
        ([USER, calling("a"), USER, output("a"), USER, ASSISTANT, USER], [[0, 1, 2, 3], [4, 5]]),
        ([USER, calling("a"), USER, output("a"), ASSISTANT, ASSISTANT], [[0, 1, 3], [4]]),
        # The newest turn stays.
        ([USER, calling("a"), output("a")], []),
        ([ASSISTANT, ASSISTANT], [[0]]),
    ],
)
def test_old_questions_are_dropped_with_their_answers_and_calls_with_their_outputs(messages, spans):
    assert droppable(messages) == spans


def test_of_one_question_no_message_can_be_left_out():
    assert shorten(a_chat(USER), 0) is None


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
    a_message,
    st.sampled_from(["user", "assistant", "system"]),
    st.text("abc", min_size=1, max_size=9),
)
CALLS = st.sampled_from([[calling("a"), output("a")], [calling("b"), USER, output("b")]])


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    spans = draw(st.lists(TURNS.map(lambda turn: [turn]) | CALLS, min_size=1, max_size=12))
    return Conversation(tuple(turn for span in spans for turn in span))


@given(conversations(), st.integers(0, 60))
def test_no_more_is_left_out_than_necessary(conversation, limit):
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
def test_required_messages_stay_and_calls_keep_their_outputs(conversation):
    messages = conversation.messages
    spans = droppable(messages)
    dropped = {at for span in spans for at in span}
    assert sorted(dropped) == sorted(at for span in spans for at in span)
    assert len(messages) - 1 not in dropped
    assert all(messages[at].role is not Role.SYSTEM for at in dropped)
    questions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    assert not questions or questions[-1] not in dropped


@given(conversations(), st.integers(0, 60))
def test_it_takes_few_attempts(conversation, limit):
    attempts: list[Conversation] = []

    shorten(conversation, limit, attempts)

    assert len(attempts) <= len(droppable(conversation.messages)).bit_length() + 1
