"""`/tokenize` and `/detokenize`: the requests and the answers."""

import json
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.field_limits import TEXT
from vinery_serving.core.pooling import Padding, Tokenized
from vinery_serving.core.request import Encoding
from vinery_serving.protocols.tokens import TokenizeExchange, parse_tokenize

PADDED = {"text": ["a"] * 2000, "pad_to_max_length": True, "max_length": 501}
TOO_LONG = [{"role": "user", "content": "a" * (TEXT.value + 1)}]


def tokenizing(**fields: Any) -> TokenizeExchange:
    return parse_tokenize(json.dumps(fields).encode())


def answer(exchange: TokenizeExchange, *ids: tuple[int, ...], **fields: Any) -> Any:
    return json.loads(exchange.body(Tokenized(ids, **fields)))


def test_a_prompt_is_one_text_and_vllm_gets_counts_and_on_request_strings_of_its_tokens() -> None:
    asked = tokenizing(model="m", prompt="Once").request

    assert (asked.model, asked.prompt) == ("m", ("Once",))
    assert asked.encoding.adds_special_tokens is None
    assert not asked.wants_token_strings

    body = answer(tokenizing(prompt="a"), (5, 6), max_context=9)
    assert body == {"count": 2, "max_model_len": 9, "tokens": [5, 6], "token_strs": None}

    exchange = tokenizing(prompt="a", return_token_strs=True)
    assert exchange.request.wants_token_strings
    assert answer(exchange, (5,), token_strings=(("x",),))["token_strs"] == ["x"]


def test_ovms_asks_with_a_text_a_length_and_padding_and_gets_a_list_for_each_text() -> None:
    asked = tokenizing(
        text=["a", "b"], max_length=3, pad_to_max_length=True, padding_side="left"
    ).request

    assert asked.prompt == ("a", "b")
    assert asked.encoding == Encoding(max_tokens=3, keeps_start=True)
    assert asked.padding == Padding(3, is_left=True)
    assert answer(tokenizing(text="a"), (5, 6)) == {"tokens": [5, 6]}
    assert answer(tokenizing(text=["a"]), (5, 6)) == {"tokens": [[5, 6]]}


# `golden/errors` has other wrong bodies.
@table(
    "fields, param, words",
    [
        ({"prompt": "a" * (TEXT.value + 1)}, "prompt", "at most 4000000 characters"),
        ({"text": ["a" * TEXT.value, "b"]}, "text", "at most 4000000 characters"),
        ({"messages": TOO_LONG}, "messages[0].content", "at most 4000000 characters"),
        (PADDED, "max_length", "must be at most 500 to pad 2000 texts"),
    ],
)
def test_a_long_tokenize_body_is_refused_by_name(
    fields: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tokenizing(**fields)

    assert caught.value.param == param
    assert words in caught.value.message
