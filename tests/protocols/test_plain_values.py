"""Values in the form of other clients: what has a plain meaning is read, and the rest refused."""

from __future__ import annotations

from typing import Any

from tests.tables import table
from vinery_serving.core.dialects import V1, V3
from vinery_serving.core.request import Conversation, Endpoint
from vinery_serving.protocols.common.encoding import json_bytes

from .exchanges import PLAIN, answered, chat, completion, exchange
from .test_refusals import refused


def test_minus_one_is_no_limit() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        stopping = chat(**{name: -1}).stopping
        assert stopping.max_tokens is None
        assert stopping.is_unlimited
    assert completion(V1, max_tokens=-1).stopping.is_unlimited, "it replaces the default"
    asked = exchange(Endpoint.RESPONSES, max_output_tokens=-1)
    assert asked.request.stopping.is_unlimited
    assert answered(asked, PLAIN)["max_output_tokens"] is None
    assert chat(max_tokens=-1, min_tokens=5).stopping.min_tokens == 5


def test_a_whole_number_with_a_point_is_an_integer() -> None:
    request = chat(max_tokens=8.0, top_k=40.0, seed=7.0)

    assert request.stopping.max_tokens == 8
    assert (request.sampling.top_k, request.sampling.seed) == (40, 7)


@table("dialect", [V1, V3])
def test_a_number_with_a_fraction_is_no_integer(dialect: Any) -> None:
    assert refused(Endpoint.CHAT, dialect, max_tokens=8.5).message == (
        "`max_tokens` must be an integer."
    )


def test_numbers_inside_of_schemas_and_variables_stay_as_they_were() -> None:
    prompt = chat(chat_template_kwargs={"scale": 2.0, "level": "3"}).prompt

    assert isinstance(prompt, Conversation)
    assert json_bytes(dict(prompt.template_kwargs)) == b'{"scale":2.0,"level":"3"}'


def test_under_v3_a_number_may_be_a_text() -> None:
    request = chat(V3, max_tokens="8", temperature="0.5", top_k="40.0", n="1")

    assert request.stopping.max_tokens == 8
    assert request.sampling.temperature == 0.5
    assert request.sampling.top_k == 40


@table("text", ["", "eight", "0x8", "1e2", "8 ", "inf", "nan", "1" * 5000])
def test_under_v3_any_other_text_is_refused(text: str) -> None:
    assert refused(Endpoint.CHAT, V3, max_tokens=text).param == "max_tokens"


def test_an_empty_stop_string_is_none() -> None:
    assert chat(stop="").stopping.stop == ()


def test_an_object_of_a_user_is_its_id() -> None:
    assert chat(user={"id": "alice", "name": "Alice"}) == chat(user="alice")
