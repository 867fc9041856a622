"""Values in the form of other clients: what has a plain meaning is read, and the rest refused."""

from typing import Any

from tests.tables import table
from vinery_serving.core.dialects import V1, V3
from vinery_serving.core.request import Conversation, Endpoint
from vinery_serving.protocols.common.encoding import json_bytes

from .exchanges import PLAIN, answered, chat, exchange
from .test_refusals import refused


def test_responses_repeat_no_limit_as_null() -> None:
    asked = exchange(Endpoint.RESPONSES, max_output_tokens=-1)

    assert asked.request.stopping.is_unlimited
    assert answered(asked, PLAIN)["max_output_tokens"] is None


@table("dialect", [V1, V3])
def test_a_number_with_a_fraction_is_no_integer(dialect: Any) -> None:
    assert refused(Endpoint.CHAT, dialect, max_tokens=8.5).message == (
        "`max_tokens` must be an integer."
    )


def test_numbers_inside_of_schemas_and_variables_stay_as_they_were() -> None:
    prompt = chat(chat_template_kwargs={"scale": 2.0, "level": "3"}).prompt

    assert isinstance(prompt, Conversation)
    assert json_bytes(dict(prompt.template_kwargs)) == b'{"scale":2.0,"level":"3"}'


@table("text", ["", "eight", "0x8", "1e2", "8 ", "inf", "nan", "1" * 5000])
def test_under_v3_any_other_text_is_refused(text: str) -> None:
    assert refused(Endpoint.CHAT, V3, max_tokens=text).param == "max_tokens"
