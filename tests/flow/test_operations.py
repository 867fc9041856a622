"""Preparing a request costs at most twice the work for a field of twice the size."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.flow.tiny_chat import HELLO, new_engine, prepared_of
from tests.operations import growth
from tests.prompting.builders import a_chat, a_message
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.gateway.preparing.rendering import droppable, within_context

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


def test_finding_the_tools_that_may_be_called():
    def work(size: int) -> Callable[[], Any]:
        names = tuple(f"f{at}" for at in range(size))
        choice = req.ToolChoice(req.ToolMode.AUTO, allowed=names)
        conversation = a_chat(QUESTION, tools=tuple(map(req.Tool, names)), tool_choice=choice)
        return lambda: conversation.callable_tools

    assert growth(work, 500) < 2.1


@table("drops_oldest", [True, False])
def test_counting_and_leaving_out_what_cannot_fit(drops_oldest):
    engine = new_engine(Path("/nowhere"), max_context=10**9)

    def work(size: int) -> Callable[[], Any]:
        prompt = a_chat(*(QUESTION, ANSWER) * size, drops_oldest=drops_oldest)
        request: req.GenerationRequest = replace(HELLO, prompt=prompt)
        return lambda: within_context(request, engine)

    assert growth(work, 300) < 2.1
