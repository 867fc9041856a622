"""When a conversation is summarized, and what the model is asked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.flow.tiny_chat import ASSETS, HELLO, new_engine
from tests.prompting.builders import a_chat, a_message
from tests.tables import table
from vinery_serving.core.request import Conversation, Message, Stopping, Tool
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.preparing.compacting import prepare_within
from vinery_serving.gateway.preparing.prepared import Draft, Origin

CONTEXT = 2048
QUESTION, ANSWER = a_message("user", "Why?"), a_message("assistant", "word " * 500)
SYSTEM = a_message("system", "Be brief.")
MANY = (QUESTION, ANSWER) * 5


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return new_engine(tmp_path)


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
        ((QUESTION,), 1000, False),
        ((QUESTION, ANSWER, QUESTION), 1000, False),
        ((QUESTION, ANSWER) * 2 + (QUESTION,), 1000, True),
        ((QUESTION, ANSWER) * 2 + (QUESTION,), 2000, False),
        ((QUESTION, ANSWER) * 2 + (QUESTION,), None, False),
        ((*MANY, QUESTION), 2**31 - 1, True),  # it does not fit
        ((QUESTION,), 0, True),  # the summary is the answer
    ],
)
def test_a_prompt_above_the_threshold_or_the_context_is_summarized(
    tmp_path: Path, messages: tuple[Message, ...], above: int | None, summarizes: bool
) -> None:
    assert draft_of(new_engine(tmp_path), *messages, above=above).summarizes == summarizes


def test_the_model_is_asked_last_for_a_part_of_the_context(engine: Engine) -> None:
    tools = {"tools": (Tool("f"),), "rendering": replace(a_chat().rendering, effort="high")}
    sent = Stopping(max_tokens=100, stop=("word",), min_tokens=5)
    draft = draft_of(engine, SYSTEM, *MANY[:4], QUESTION, stopping=sent, chat=tools)

    system, *_, last, _ = asked(draft)
    assert "Be brief." in system
    assert last.startswith("user\nWhy?\nSummarize the conversation")
    (submit,) = draft.submits
    assert (submit.max_new_tokens, submit.min_new_tokens) == (250, 0)
    request = draft.request
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.tools == ()
    assert request.stopping.stop == ()
    assert draft_of(engine, QUESTION, above=0).submits[0].max_new_tokens == CONTEXT // 4
