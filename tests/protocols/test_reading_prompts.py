"""The options of rendering, encoding and stopping, which all endpoints share, and the prompts of
completions."""

from __future__ import annotations

from typing import Any

from tests.tables import table
from vinery_serving.core.dialects import V1, V3, Dialect
from vinery_serving.core.request import (
    ALL_THAT_FIT,
    Conversation,
    Encoding,
    Endpoint,
    RawPrompts,
    Rendering,
    Stopping,
)

from .exchanges import OPENAI, chat, completion, request

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
    for missing in ({}, {"messages": []}, {"messages": None}):
        assert conversation(prompt_token_ids=[5, 6], **missing).token_ids == (5, 6)
    assert conversation(prompt_token_ids=[]).token_ids is None


CONTINUED = Rendering(adds_generation_prompt=False, continues_final_message=True)


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
        ({"continue_final_message": True}, CONTINUED),
        ({"continue_final_message": True, "add_generation_prompt": False}, CONTINUED),
    ],
)
def test_the_template_fields_are_read(
    endpoint: Endpoint, fields: dict[str, Any], rendering: Rendering
) -> None:
    assert conversation(endpoint, **fields).rendering == rendering


SEVEN = {"truncate_prompt_tokens": 7}


@table("endpoint", Endpoint)
@table(
    "fields, encoding",
    [
        ({}, Encoding()),
        ({"add_special_tokens": False}, Encoding(adds_special_tokens=False)),
        (SEVEN, Encoding(max_tokens=7)),
        ({"truncate_prompt_tokens": -1}, Encoding(max_tokens=ALL_THAT_FIT)),
        ({**SEVEN, "truncation_side": "right"}, Encoding(max_tokens=7, keeps_start=True)),
        ({**SEVEN, "truncation_side": "left"}, Encoding(max_tokens=7)),
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


@table("endpoint", Endpoint)
def test_reasoning_can_be_left_out_of_the_answer_and_special_tokens_shown(
    endpoint: Endpoint,
) -> None:
    for wanted in (True, False):
        asked = request(endpoint, skip_special_tokens=not wanted)
        assert asked.shows_special_tokens is wanted
        spaced = request(endpoint, spaces_between_special_tokens=wanted)
        assert spaced == request(endpoint), "it has no effect"
        if endpoint in CONVERSATIONS:
            assert request(endpoint, include_reasoning=wanted).hides_reasoning is not wanted


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


# -- Completions ----------------------------------------------------------------------------


@table(
    "fields, prompt",
    [
        ({"prompt": "Once"}, RawPrompts(("Once",))),
        ({"prompt": ["Once", "Twice"]}, RawPrompts(("Once", "Twice"))),
        ({"prompt": [1, 2, 3]}, RawPrompts(((1, 2, 3),))),
        ({"prompt": [[1, 2], [0]]}, RawPrompts(((1, 2), (0,)))),
        # Token ids go before the prompt.
        ({"prompt_token_ids": [1, 2]}, RawPrompts(((1, 2),))),
        ({"prompt_token_ids": [1, 2], "prompt": None}, RawPrompts(((1, 2),))),
        ({"prompt_token_ids": [[1], [2, 3]]}, RawPrompts(((1,), (2, 3)))),
        ({"prompt_token_ids": [[1], [2, 3]], "prompt": None}, RawPrompts(((1,), (2, 3)))),
        ({"prompt_token_ids": []}, RawPrompts(("Once",))),
        ({"echo": True, "max_tokens": 0}, RawPrompts(("Once",), echo=True)),
        ({"suffix": "end"}, RawPrompts(("Once",), suffix="end")),
        ({"suffix": ""}, RawPrompts(("Once",))),
    ],
)
def test_the_prompt_of_a_completion_is_read(fields: dict[str, Any], prompt: RawPrompts) -> None:
    assert completion(**fields).prompt == prompt


def test_every_prompt_gets_n_choices() -> None:
    assert completion(prompt=["a", "b", "c"], n=2).num_choices == 6


@table("dialect, limit", [(V1, 16), (V3, None)])
def test_the_default_length_depends_on_the_dialect(dialect: Dialect, limit: int | None) -> None:
    assert completion(dialect).stopping.max_tokens is None
    assert completion(dialect).stopping.default_max_tokens == limit
    assert completion(dialect, max_tokens=3).stopping.max_tokens == 3
    assert completion(dialect, echo=True, max_tokens=0).stopping.max_tokens == 0


def test_defaults_of_old_clients_are_accepted() -> None:
    defaults = {"echo": False, "suffix": None, "best_of": 1, "logprobs": None, "user": "u"}

    assert completion(**defaults) == completion()
