"""A limit of output tokens that does not fit is clamped where a client sent it by default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.flow.tiny_chat import RAW, ids_of, new_engine, prepared_of
from tests.prompting.builders import a_chat
from tests.tables import table
from vinery_serving.core.errors import ContextTooLong, InvalidRequest
from vinery_serving.core.request import (
    Endpoint,
    GenerationRequest,
    RawPrompts,
    Stopping,
)
from vinery_serving.flow.clamping import CLIENT_DEFAULTS
from vinery_serving.flow.prepared import Draft
from vinery_serving.flow.preparing import prepare

NUM_RAW = len(ids_of("Hi there"))
ROOM = 100


def drafted(
    folder: Path, request: GenerationRequest = RAW, *, options: Any = None, **stopping: Any
) -> Draft:
    engine = new_engine(folder, **{"max_context": NUM_RAW + ROOM, **(options or {})})
    return prepare(replace(request, stopping=Stopping(**stopping)), engine, deadline_s=60)


def limits_of(draft: Draft) -> set[int]:
    return {submit.max_new_tokens for submit in draft.submits}


@table("max_tokens", CLIENT_DEFAULTS)
def test_a_default_of_a_client_gets_the_rest_of_the_context(
    tmp_path: Path, max_tokens: int
) -> None:
    draft = drafted(tmp_path, max_tokens=max_tokens)

    assert limits_of(draft) == {ROOM}
    assert draft.clamped_to == ROOM


def test_another_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContextTooLong, match="4097 in the completion"):
        drafted(tmp_path, max_tokens=4097)


def test_a_default_that_fits_is_not_changed(tmp_path: Path) -> None:
    draft = drafted(tmp_path, options={"max_context": 10_000}, max_tokens=4096)

    assert limits_of(draft) == {4096}
    assert draft.clamped_to is None


@table("max_tokens", [4096, 4097])
def test_a_model_may_clamp_any_number_or_none(tmp_path: Path, max_tokens: int) -> None:
    always = {"clamp_max_tokens": "always"}
    never = {"clamp_max_tokens": "never"}

    assert drafted(tmp_path, options=always, max_tokens=max_tokens).clamped_to == ROOM
    with pytest.raises(ContextTooLong):
        drafted(tmp_path, options=never, max_tokens=max_tokens)


def test_the_limit_of_the_model_clamps_too(tmp_path: Path) -> None:
    options = {"max_tokens_limit": 12}

    assert drafted(tmp_path, options=options, max_tokens=4096).clamped_to == 12
    with pytest.raises(InvalidRequest, match="must be at most 12"):
        drafted(tmp_path, options=options, max_tokens=13)


def test_a_request_without_a_limit_is_not_clamped(tmp_path: Path) -> None:
    assert drafted(tmp_path).clamped_to is None
    assert drafted(tmp_path, is_unlimited=True).clamped_to is None


def test_a_prompt_that_fills_the_context_is_refused_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(ContextTooLong):
        drafted(tmp_path, options={"max_context": NUM_RAW}, max_tokens=4096)


def test_the_least_number_of_tokens_must_still_fit(tmp_path: Path) -> None:
    assert drafted(tmp_path, max_tokens=4096, min_tokens=ROOM).clamped_to == ROOM
    with pytest.raises(ContextTooLong):
        drafted(tmp_path, max_tokens=4096, min_tokens=ROOM + 1)


def test_of_several_prompts_the_shortest_limit_is_reported(tmp_path: Path) -> None:
    prompts = RawPrompts(((5,) * 10, (5,) * 30))
    request = replace(RAW, prompt=prompts)

    draft = drafted(tmp_path, request, options={"max_context": 100}, max_tokens=4096)

    assert limits_of(draft) == {90, 70}
    assert draft.clamped_to == 70


def test_a_conversation_that_may_be_shortened_keeps_room_for_an_answer(tmp_path: Path) -> None:
    words = "word " * 40
    turns = [("user", words), ("assistant", words)] * 2
    chat = a_chat(*turns, ("user", words), drops_oldest=True)
    request = GenerationRequest(Endpoint.RESPONSES, None, chat)

    draft = drafted(tmp_path, request, options={"max_context": 400}, max_tokens=4096)

    assert draft.clamped_to is not None
    assert draft.clamped_to >= 400 // 8


async def test_the_engine_gets_the_clamped_limit(tmp_path: Path) -> None:
    engine = new_engine(tmp_path, max_context=NUM_RAW + ROOM)
    request = replace(RAW, stopping=Stopping(max_tokens=4096))

    prepared = await prepared_of(engine, request)

    assert prepared.submits[0].max_new_tokens == ROOM
