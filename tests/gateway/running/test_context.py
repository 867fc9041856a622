"""Prompts that do not fit into the context, conversations that are shortened or summarized, and
templates that cannot render a request."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.running.tiny_chat import (
    ASSETS,
    HELLO,
    RAW,
    TINY_CHAT,
    ids_of,
    new_engine,
    prepared_of,
)
from tests.prompting.builders import a_chat, a_message
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.errors import ContextTooLong, InvalidRequest, UnsupportedParameter
from vinery_serving.core.pooling import Padding, TokenizeRequest
from vinery_serving.core.request import Conversation, Encoding, Message, Stopping, Tool, ToolCall
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.preparing.prepare import prepare_within
from vinery_serving.gateway.preparing.prepared import Draft, Origin
from vinery_serving.gateway.preparing.rendering import droppable, shortened, tokenize
from vinery_serving.prompting.assets import ModelAssets, Prompt

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


# -- Texts of prompts, and templates that cannot render a request


PARIS = "The capital of France is Paris. " * 60
TALK = a_chat(
    ("system", "Be brief."),
    *[("user", PARIS), ("assistant", PARIS)] * 9,
    ("user", "What is the capital of France?"),
    drops_oldest=True,
)


def talk(*, max_tokens: int | None = None, drops_oldest: bool = True) -> req.GenerationRequest:
    prompt = replace(TALK, drops_oldest=drops_oldest)
    stopping = req.Stopping(max_tokens=max_tokens)
    return replace(HELLO, endpoint=req.Endpoint.RESPONSES, prompt=prompt, stopping=stopping)


@table("max_tokens", [1, 100, 1500, None])
async def test_a_long_conversation_loses_no_more_than_necessary(engine, max_tokens):
    prepared = await prepared_of(engine, talk(max_tokens=max_tokens))

    answer = CONTEXT // 8 if max_tokens is None else max_tokens
    (prompt,) = prepared.prompts
    exchange = ASSETS.render(req.Conversation(TALK.messages[1:3])).num_tokens
    assert CONTEXT - answer - exchange <= prompt.num_tokens <= CONTEXT - answer
    assert "Be brief." in (prompt.text or "")
    assert "What is the capital of France?" in (prompt.text or "")
    # A prompt that fits is not changed.
    short = replace(TALK, messages=TALK.messages[:5])
    prepared = await prepared_of(engine, replace(talk(), prompt=short))
    assert prepared.prompts == (ASSETS.render(short),)


@table("fields", [{"drops_oldest": False}, {"max_tokens": CONTEXT - 3}])
async def test_a_conversation_that_stays_too_long_or_may_not_be_shortened_is_refused(
    engine, fields
):
    with pytest.raises(ContextTooLong) as caught:
        await prepared_of(engine, talk(**fields))

    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")


async def test_all_that_fit_leaves_tokens_for_the_answer(tmp_path):
    prompt = req.RawPrompts(("one two three four five six seven",))
    request = replace(RAW, prompt=prompt, encoding=req.Encoding(max_tokens=req.ALL_THAT_FIT))
    engine = new_engine(tmp_path, max_context=6)
    prepared = await prepared_of(engine, replace(request, stopping=req.Stopping(max_tokens=2)))
    longest = await prepared_of(engine, request)
    with pytest.raises(ContextTooLong):
        await prepared_of(engine, replace(RAW, prompt=prompt))

    whole = tuple(ids_of(prompt.prompts[0]))
    assert prepared.prompts[0].token_ids == whole[-4:]
    assert longest.prompts[0].token_ids == whole[-5:]


@table("endpoint, param", [(req.Endpoint.RESPONSES, "input"), (req.Endpoint.CHAT, "messages")])
async def test_errors_of_templates_name_the_clients_field(endpoint, param, tmp_path):
    template = "{{ raise_exception('Begin with a question.') }}"
    engine = new_engine(tmp_path, ModelAssets.load(TINY_CHAT, template))

    with pytest.raises(InvalidRequest, match="Begin with a question") as caught:
        await prepared_of(engine, replace(HELLO, endpoint=endpoint))

    assert caught.value.param == param


async def test_a_template_of_a_request_is_refused_unless_the_model_trusts_it(tmp_path):
    template = "<{{ messages[0].content }}>"
    rendering = req.Rendering(template=template)
    request = replace(HELLO, prompt=replace(HELLO.prompt, rendering=rendering))
    engine = new_engine(tmp_path)
    with pytest.raises(UnsupportedParameter, match="trust_request_chat_template"):
        await prepared_of(engine, request)
    engine = new_engine(tmp_path, trust_request_chat_template=True)
    with pytest.raises(RuntimeError, match="in a worker process only"):
        await prepared_of(engine, request)
    engine.is_isolated = True  # as in a worker process
    prepared = await prepared_of(engine, request)
    assert prepared.prompts[0].text == "<Hello!>"


@table("is_left", [True, False])
async def test_short_texts_are_padded_and_long_ones_cut(engine, is_left):
    texts = ("one", "one two three four five six")
    encoding = Encoding(max_tokens=4, keeps_start=True)
    request = TokenizeRequest(None, texts, encoding, padding=Padding(4, is_left))

    short, long = tokenize(request, engine).token_ids

    one = engine.assets.ids_of_text("one")
    pads = (0,) * (4 - len(one))
    assert short == ((*pads, *one) if is_left else (*one, *pads))
    assert long == tuple(engine.assets.ids_of_text(texts[1])[:4])


# -- When a conversation is summarized, and what the model is asked


WHY, LONG_ANSWER = a_message("user", "Why?"), a_message("assistant", "word " * 500)
BRIEF = a_message("system", "Be brief.")
MANY = (WHY, LONG_ANSWER) * 5


def draft_of(engine: Engine, *messages: Message, above: int | None = 1000, **fields: Any) -> Draft:
    chat = replace(a_chat(*messages), **fields.pop("chat", {}))
    request = replace(HELLO, prompt=chat, compact_above=above, **fields)
    return prepare_within(request, engine, Origin(60))


def asked(draft: Draft) -> list[str]:
    """The texts of the messages in the prompt that asks for a summary."""
    assert draft.summarizes
    text = ASSETS.text_of(draft.prompts[0])
    return text.split("<|im_start|>")[1:]


@table(
    "messages, above, summarizes",
    [
        ((WHY,), 1000, False),
        ((WHY, LONG_ANSWER, WHY), 1000, False),
        ((WHY, LONG_ANSWER) * 2 + (WHY,), 1000, True),
        ((WHY, LONG_ANSWER) * 2 + (WHY,), 2000, False),
        ((WHY, LONG_ANSWER) * 2 + (WHY,), None, False),
        ((*MANY, WHY), 2**31 - 1, True),  # it does not fit
        ((WHY,), 0, True),  # the summary is the answer
    ],
)
def test_a_prompt_above_the_threshold_or_the_context_is_summarized(
    tmp_path: Path, messages: tuple[Message, ...], above: int | None, summarizes: bool
) -> None:
    assert draft_of(new_engine(tmp_path), *messages, above=above).summarizes == summarizes


def test_the_model_is_asked_last_for_a_part_of_the_context(tmp_path: Path) -> None:
    engine = new_engine(tmp_path)
    tools = {"tools": (Tool("f"),), "rendering": replace(a_chat().rendering, effort="high")}
    sent = Stopping(max_tokens=100, stop=("word",), min_tokens=5)
    draft = draft_of(engine, BRIEF, *MANY[:4], WHY, stopping=sent, chat=tools)

    system, *_, last, _ = asked(draft)
    assert "Be brief." in system
    assert last.startswith("user\nWhy?\nSummarize the conversation")
    (submit,) = draft.submits
    assert (submit.max_new_tokens, submit.min_new_tokens) == (250, 0)
    request = draft.request
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.tools == ()
    assert request.stopping.stop == ()
    assert draft_of(engine, WHY, above=0).submits[0].max_new_tokens == CONTEXT // 4
