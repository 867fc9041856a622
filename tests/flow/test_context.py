"""Prompts that do not fit into the context, and conversations that are shortened."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flow.tiny_chat import HELLO, RAW, new_engine, prepared_of
from tests.operations import growth
from tests.prompting.builders import a_chat, a_message
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.errors import ContextTooLong
from vinery_serving.core.request import Conversation, Message, Role, ToolCall
from vinery_serving.gateway.preparing.rendering import count_tokens, droppable, shortened
from vinery_serving.prompting.assets import Prompt

CONTEXT = 2048  # of the reference model
LONG = "a" * (16 * CONTEXT + 1)  # the longest token has 16 bytes


def chat(*texts: str, role: str = "user", **fields: Any) -> req.GenerationRequest:
    return replace(HELLO, prompt=a_chat(*((role, text) for text in texts), **fields))


def raw(*prompts: Any, **fields: Any) -> req.GenerationRequest:
    return replace(RAW, prompt=req.RawPrompts(prompts, **fields))


@table(
    "request_, param, number",
    [
        (chat("Hi", token_ids=(1,) * (CONTEXT + 1)), "messages", f"{CONTEXT + 1}"),
        (raw((1,) * (CONTEXT + 1)), "prompt", f"{CONTEXT + 1}"),
        (raw("a", LONG, "b"), "prompt", r"\d+"),
        (chat(LONG), "messages", r"\d+"),
        (replace(chat(LONG), endpoint=req.Endpoint.RESPONSES), "input", r"\d+"),
    ],
)
async def test_the_tokens_of_a_prompt_that_does_not_fit_are_counted(
    engine, request_, param, number
):
    words = rf"\({number} in the {param}, 0 in the completion\)"
    with pytest.raises(ContextTooLong, match=words) as caught:
        await prepared_of(engine, request_)

    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)


@table("limit", [4, req.ALL_THAT_FIT])
@table("request_", [chat(LONG), raw(LONG), raw((9,) * 9999)])
async def test_a_prompt_that_may_be_cut_is_no_error(engine, limit, request_):
    prepared = await prepared_of(engine, replace(request_, encoding=req.Encoding(max_tokens=limit)))

    assert 0 < prepared.prompts[0].num_tokens < CONTEXT


async def test_a_conversation_that_may_be_shortened_or_is_counted_may_be_too_long(engine):
    shortened = await prepared_of(engine, chat(LONG, "Hi", drops_oldest=True))

    assert shortened.prompts[0].num_tokens < CONTEXT
    assert count_tokens(chat(LONG), engine) > CONTEXT


# -- The turns that a conversation loses when it is too long, and those that it keeps

USER, ASSISTANT, SYSTEM, DEVELOPER = (
    a_message(role, "x") for role in ("user", "assistant", "system", "developer")
)
STAYS = a_message("user", "x", stays=True)


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
        # A call is dropped with the output and all between, also after the last question.
        ([USER, calling("a"), USER, output("a"), USER, ASSISTANT, USER], [[0, 1, 2, 3], [4, 5]]),
        ([USER, calling("a"), USER, output("a"), ASSISTANT, ASSISTANT], [[0, 1, 3], [4]]),
        # What stays is no question.
        ([STAYS, ASSISTANT, USER, ASSISTANT, ASSISTANT, STAYS], [[1], [3], [4]]),
        ([USER, ASSISTANT, calling("a"), output("a"), STAYS], [[1]]),
        # The newest turn stays.
        ([USER, calling("a"), output("a")], []),
        ([ASSISTANT, ASSISTANT], [[0]]),
    ],
)
def test_old_questions_are_dropped_with_their_answers_and_calls_with_their_outputs(messages, spans):
    assert droppable(messages) == spans


def shorten(
    conversation: Conversation, max_num_tokens: int, attempts: list[Conversation]
) -> Prompt | None:
    """The shortened prompt for a model with a token for each letter."""

    def render(each: Conversation) -> Prompt:
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

    attempts: list[Conversation] = []
    prompt = shorten(conversation, limit, attempts)
    assert len(attempts) <= len(spans).bit_length() + 1

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


# -- Preparing a request costs at most twice the work for a field of twice the size

QUESTION, ANSWER = a_message("user", "Hi"), a_message("assistant", "Hi")
CALL = req.ToolCall("c", "f", "{}")


@table(
    "fields",
    [
        lambda n: {"steering": req.Steering(bias=tuple((at, 1.0) for at in range(n)))},
        lambda n: {"steering": req.Steering(bad_words=tuple(f"w{at}" for at in range(n)))},
        lambda n: {"steering": req.Steering(bad_word_ids=((1, 2),) * n)},
        lambda n: {"steering": req.Steering(allowed_ids=(1,) * n)},
        lambda n: {"stopping": req.Stopping(stop_token_ids=(1,) * n)},
        lambda n: {"n": n},
    ],
)
def test_a_field_of_twice_the_size(fields):
    engine = new_engine(Path("/nowhere"))

    def work(size: int) -> Callable[[], Any]:
        request = replace(HELLO, **fields(size))
        return lambda: asyncio.run(prepared_of(engine, request))

    assert growth(work, 128) < 2.1


@table(
    "messages",
    [
        lambda n: (QUESTION, ANSWER) * n,
        lambda n: (QUESTION, a_message("assistant", tool_calls=(CALL,) * n), QUESTION),
        lambda n: (QUESTION, *(a_message("tool", tool_call_id="c"),) * n, QUESTION),
    ],
)
def test_finding_what_may_be_left_out(messages):
    def work(size: int) -> Callable[[], Any]:
        found = messages(size)
        return lambda: droppable(found)

    assert growth(work, 500) < 2.1
