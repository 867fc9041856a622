"""The bodies and answers of embeddings, rerank and score."""

import json
from array import array
from base64 import b64decode
from typing import Any

from pydantic import TypeAdapter

from tests.tables import table
from vinery_serving.core.pooling import PoolingDraft, TextPair
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.pooling import (
    Embeddings,
    PoolingExchange,
    Rerank,
    Scores,
    parse_pooling,
)

_TYPES = {Endpoint.EMBEDDINGS: Embeddings, Endpoint.RERANK: Rerank, Endpoint.SCORE: Scores}


def encoded(**members: Any) -> bytes:
    return json.dumps(members).encode()


def vector(*numbers: float) -> bytes:
    return array("f", numbers).tobytes()


def answer(exchange: PoolingExchange, *vectors: bytes, num_tokens: int = 9) -> dict[str, Any]:
    parts = exchange.body(PoolingDraft((), (), num_tokens), vectors, "m", "req_1")
    found: dict[str, Any] = json.loads(b"".join(parts))
    TypeAdapter(_TYPES[exchange.request.endpoint]).validate_python(found)
    return found


def test_an_embedding_is_numbers_or_the_same_numbers_in_base64() -> None:
    given = vector(0.5, -0.25), vector(1, 0)
    as_numbers = answer(parse_pooling(Endpoint.EMBEDDINGS, encoded(input=["a", "b"])), *given)
    packed = answer(
        parse_pooling(Endpoint.EMBEDDINGS, encoded(input=["a", "b"], encoding_format="base64")),
        *given,
    )

    assert [each["embedding"] for each in as_numbers["data"]] == [[0.5, -0.25], [1, 0]]
    assert [each["index"] for each in as_numbers["data"]] == [0, 1]
    assert as_numbers["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert b64decode(packed["data"][0]["embedding"]) == given[0]
    assert packed | {"data": None} == as_numbers | {"data": None}


@table(
    "members, is_v2, most",
    [
        ({}, False, None),
        ({}, True, 4096),
        ({"max_tokens_per_doc": 7}, False, 7),
        ({"max_tokens_per_doc": 7}, True, 7),
    ],
)
def test_cohere_limits_the_tokens_of_a_document(
    members: dict[str, Any], is_v2: bool, most: int | None
) -> None:
    body = encoded(query="q", documents=["a"], max_chunks_per_doc=9, **members)
    request = parse_pooling(Endpoint.RERANK, body, is_v2=is_v2).request
    assert request.max_document_tokens == most
    assert request.unused.unknown == ("max_chunks_per_doc",)


def test_the_documents_with_the_highest_scores_come_in_order_and_texts_only_on_request() -> None:
    documents = ["a", {"text": "b", "id": 7}, "c"]
    body = encoded(query="q", documents=documents, top_n=2, return_documents=True)
    exchange = parse_pooling(Endpoint.RERANK, body)

    found = answer(exchange, vector(0.25), vector(0.75), vector(0.5))

    assert exchange.request.inputs == tuple(TextPair("q", each) for each in "abc")
    assert found["results"] == [
        {"index": 1, "relevance_score": 0.75, "document": {"text": "b", "id": 7}},
        {"index": 2, "relevance_score": 0.5, "document": {"text": "c"}},
    ]
    assert found["id"] == "req_1"

    found = answer(parse_pooling(Endpoint.RERANK, encoded(query="q", documents=["a"])), vector(1))
    assert found["results"] == [{"index": 0, "relevance_score": 1}]


@table(
    "first, second, pairs",
    [("a", "b", ["ab"]), ("a", ["b", "c"], ["ab", "ac"]), (["a", "b"], ["c", "d"], ["ac", "bd"])],
)
def test_a_score_is_of_one_text_and_each_other_or_of_each_pair(
    first: Any, second: Any, pairs: list[str]
) -> None:
    for names in (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2")):
        exchange = parse_pooling(
            Endpoint.SCORE, encoded(**dict(zip(names, (first, second), strict=True)))
        )

        assert ["".join(each) for each in exchange.request.inputs] == pairs
    scores = [vector(0.5)] * len(pairs)
    assert answer(exchange, *scores)["data"][0] == {"index": 0, "object": "score", "score": 0.5}
