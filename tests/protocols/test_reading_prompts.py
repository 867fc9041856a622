"""The options of rendering, encoding and stopping, which all endpoints share."""

from __future__ import annotations

from typing import Any

from tests.tables import table
from vinery_serving.core.request import (
    ALL_THAT_FIT,
    Conversation,
    Encoding,
    Endpoint,
    Rendering,
    Stopping,
)

from .exchanges import OPENAI, chat, request

CONVERSATIONS = (Endpoint.CHAT, Endpoint.RESPONSES)


def conversation(endpoint: Endpoint = Endpoint.CHAT, **fields: Any) -> Conversation:
    prompt = request(endpoint, **fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def test_messages_may_be_token_ids() -> None:
    prompt = conversation(messages=[1, 300, 2])

    assert prompt.token_ids == (1, 300, 2)
    assert prompt.messages == ()


def test_token_ids_go_before_the_messages_which_may_then_be_missing() -> None:
    assert conversation(prompt_token_ids=[5, 6]).token_ids == (5, 6)
    assert conversation(prompt_token_ids=[5, 6], messages=[]).token_ids == (5, 6)
    assert conversation(prompt_token_ids=[5, 6], messages=None).token_ids == (5, 6)
    assert conversation(prompt_token_ids=[]).token_ids is None


@table("endpoint", CONVERSATIONS)
@table(
    "fields, rendering",
    [
        ({}, Rendering()),
        ({"chat_template": "{{ x }}"}, Rendering(template="{{ x }}")),
        ({"disable_chat_template": True}, Rendering(uses_template=False)),
        ({"documents": [{"text": "a"}]}, Rendering(documents=({"text": "a"},))),
        ({"add_generation_prompt": True}, Rendering()),
        ({"add_generation_prompt": False}, Rendering(adds_generation_prompt=False)),
        (
            {"continue_final_message": True},
            Rendering(adds_generation_prompt=False, continues_final_message=True),
        ),
        (
            {"continue_final_message": True, "add_generation_prompt": False},
            Rendering(adds_generation_prompt=False, continues_final_message=True),
        ),
    ],
)
def test_the_template_fields_are_read(
    endpoint: Endpoint, fields: dict[str, Any], rendering: Rendering
) -> None:
    assert conversation(endpoint, **fields).rendering == rendering


@table("endpoint", Endpoint)
@table(
    "fields, encoding",
    [
        ({}, Encoding()),
        ({"add_special_tokens": False}, Encoding(adds_special_tokens=False)),
        ({"truncate_prompt_tokens": 7}, Encoding(max_tokens=7)),
        ({"truncate_prompt_tokens": -1}, Encoding(max_tokens=ALL_THAT_FIT)),
        (
            {"truncate_prompt_tokens": 7, "truncation_side": "right"},
            Encoding(max_tokens=7, keeps_start=True),
        ),
        ({"truncate_prompt_tokens": 7, "truncation_side": "left"}, Encoding(max_tokens=7)),
    ],
)
def test_how_a_prompt_becomes_tokens(
    endpoint: Endpoint, fields: dict[str, Any], encoding: Encoding
) -> None:
    assert request(endpoint, **fields).encoding == encoding


@table("endpoint", OPENAI)
def test_where_an_answer_ends(endpoint: Endpoint) -> None:
    stopping = request(
        endpoint, max_tokens=9, min_tokens=4, stop_token_ids=[3, 5], ignore_eos=True, stop="x"
    ).stopping

    assert (stopping.max_tokens, stopping.min_tokens) == (9, 4)
    assert stopping.stop_token_ids == (3, 5)
    assert stopping.ignore_eos
    assert stopping.stop == ("x",)


def test_the_limit_has_the_name_that_the_client_used() -> None:
    assert chat(max_tokens=5).stopping.max_tokens_param == "max_tokens"
    newer = chat(max_tokens=5, max_completion_tokens=4).stopping
    assert (newer.max_tokens, newer.max_tokens_param) == (4, "max_completion_tokens")


@table("endpoint", CONVERSATIONS)
def test_reasoning_can_be_left_out_of_the_answer(endpoint: Endpoint) -> None:
    assert request(endpoint, include_reasoning=False).hides_reasoning
    assert not request(endpoint, include_reasoning=True).hides_reasoning


@table("endpoint", Endpoint)
def test_special_tokens_can_be_shown(endpoint: Endpoint) -> None:
    assert request(endpoint, skip_special_tokens=False).shows_special_tokens
    assert not request(endpoint, skip_special_tokens=True).shows_special_tokens


@table("endpoint", Endpoint)
@table("spaced", [True, False])
def test_spaces_between_special_tokens_is_accepted_without_effect(
    endpoint: Endpoint, spaced: bool
) -> None:
    assert request(endpoint, spaces_between_special_tokens=spaced) == request(endpoint)


def test_default_values_change_nothing() -> None:
    defaults: dict[str, Any] = {
        "min_tokens": 0,
        "stop_token_ids": [],
        "ignore_eos": False,
        "skip_special_tokens": True,
        "include_reasoning": True,
        "documents": [],
        "echo": False,
        "disable_chat_template": False,
        "continue_final_message": False,
    }

    assert chat(**defaults) == chat()
    assert chat().stopping == Stopping()
