"""The GenerationRequest of a Responses body."""

import json
from functools import partial
from typing import Any

import pytest

from tests.results import build_result
from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.dialects import V1
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.protocols.responses.exchange import parse_count

from . import exchanges

USER = req.Message(req.Role.USER, (req.TextPart("Hi"),))

conversation = partial(exchanges.conversation_of, req.Endpoint.RESPONSES)


def turns(*items: Any) -> tuple[req.Message, ...]:
    return conversation(input=list(items)).messages


def assistant(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def test_reasoning_is_packed_on_request_and_unpacked_again() -> None:
    with_reasoning = exchanges.exchange(
        req.Endpoint.RESPONSES, include=["reasoning.encrypted_content"]
    )
    packed, *_ = exchanges.answered(with_reasoning, exchanges.WITH_REASONING)["output"]
    bare, *_ = exchanges.answered(
        exchanges.exchange(req.Endpoint.RESPONSES), exchanges.WITH_REASONING
    )["output"]

    sent = {"type": "reasoning", "encrypted_content": packed["encrypted_content"], "summary": []}
    (turn,) = turns(sent)

    assert turn.reasoning == build_result(exchanges.WITH_REASONING).choices[0].reasoning
    assert bare["encrypted_content"] is None


@table("events", [exchanges.PLAIN, exchanges.TWO_CALLS])
def test_an_answer_can_be_sent_back_as_input(events: Any) -> None:
    answer = exchanges.answered(exchanges.exchange(req.Endpoint.RESPONSES), events)

    (turn,) = turns(*answer["output"])

    choice = build_result(events).choices[0]
    assert (turn.text, turn.tool_calls) == (choice.text, choice.tool_calls)


def test_a_prompt_can_be_counted_without_input_but_no_body_without_a_prompt() -> None:
    body = json.dumps({"instructions": "Be brief.", "truncation": "auto"}).encode()

    request = parse_count(body, V1)

    assert isinstance(request.prompt, req.Conversation)
    assert request.prompt.messages == (req.Message(req.Role.SYSTEM, (req.TextPart("Be brief."),)),)
    for fields, param in (({}, "input"), ({"input": "Hi", "personality": "a"}, "personality")):
        with pytest.raises(InvalidRequest) as caught:
            parse_count(json.dumps(fields).encode(), V1)
        assert caught.value.param == param
