"""Embeddings, rerank and score on a running platform, with the models that ship."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from numpy import array, dot
from numpy.linalg import norm

from tests.conftest import Running, until
from tests.pooling_models import pooling_models
from tests.system import clients
from tests.system.clients import openai_of, served, vinery
from tests.system.ledger import is_written, metric, rows
from tests.system.limiting import limit, num_tokens, remove_limits, stopped
from tests.tables import golden_errors, table

CAT, KITTEN = "The cat sleeps on the mat.", "A kitten naps on the mat."
TRAIN = "The train to the city leaves at noon."


@pytest.fixture(scope="module")
def platform(running: Running) -> Iterator[Running]:
    """The shared platform with both models."""
    with pooling_models(running):
        yield running


@pytest.fixture
def client(platform: Running) -> openai.OpenAI:
    return openai_of(platform)


def post(platform: Running, path: str, **body: Any) -> httpx.Response:
    return clients.post(platform, path, body)


def cosine(a: list[float], b: list[float]) -> float:
    return float(dot(a, b) / (norm(a) * norm(b)))


def test_vectors_of_any_form_order_texts_by_sense(client: openai.OpenAI, platform: Running) -> None:
    answer = client.embeddings.create(model="tiny-embed", input=[CAT, KITTEN, TRAIN])

    cat, kitten, train = (each.embedding for each in answer.data)
    assert [each.index for each in answer.data] == [0, 1, 2]
    assert cosine(cat, kitten) > cosine(cat, train) + 0.2
    assert norm(cat) == pytest.approx(1, abs=1e-5)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20

    ids = post(platform, "/v1/tokenize", model="tiny-embed", prompt=CAT).json()["tokens"]

    packed = client.embeddings.create(model="tiny-embed", input=CAT).data[0].embedding
    answers = [
        client.embeddings.create(model="tiny-embed", input=given, encoding_format="float")
        for given in (CAT, ids, [ids])
    ]

    assert all(each.data[0].embedding == packed for each in answers)
    assert {each.usage.prompt_tokens for each in answers} == {len(ids)}

    cut = client.embeddings.create(model="tiny-embed", input=CAT, dimensions=16).data[0].embedding

    first = array(packed[:16])
    assert cut == pytest.approx(list(first / norm(first)), abs=1e-6)


def test_the_paraphrase_is_ranked_first_and_score_and_rerank_agree(platform: Running) -> None:
    documents: list[Any] = [TRAIN, CAT, {"text": "The bill has not been paid.", "id": 7}]
    asked = {"query": "Where does the kitten sleep?", "documents": documents, "top_n": 2}
    path = "/v2/rerank"
    answer = post(platform, path, model="tiny-rerank", return_documents=True, **asked).json()

    first, second = answer["results"]
    assert first["index"] == 1
    assert first["document"] == {"text": CAT}
    assert 1 >= first["relevance_score"] > second["relevance_score"] >= 0
    assert answer["meta"]["tokens"]["input_tokens"] == answer["usage"]["total_tokens"]

    cohere = {"max_tokens_per_doc": 2, "max_chunks_per_doc": 10}
    shortened = post(platform, path, model="tiny-rerank", **asked, **cohere)
    assert shortened.json()["usage"]["total_tokens"] < answer["usage"]["total_tokens"]
    assert shortened.headers["x-vinery-ignored"] == "max_chunks_per_doc"

    documents = [CAT, TRAIN]
    ranked = post(platform, "/rerank", model="tiny-rerank", query=KITTEN, documents=documents)
    scored = [
        post(platform, path, model="tiny-rerank", text_1=KITTEN, text_2=documents).json()["data"]
        for path in ("/score", "/v3/score")
    ]

    by_index = {each["index"]: each["relevance_score"] for each in ranked.json()["results"]}
    for answer_ in scored:
        assert by_index == {each["index"]: each["score"] for each in answer_}


@table("row", golden_errors("pooling"))
def test_what_cannot_be_done_is_refused_as_documented(
    platform: Running, row: dict[str, Any]
) -> None:
    for tree in ("v1", "v3"):
        answer = post(platform, f"/{tree}/{row['path']}", **row["body"])

        assert answer.status_code == row["status"], answer.text
        error = {"type": "invalid_request_error", "param": row["param"], "code": row["code"]}
        assert answer.json()["error"] == {"message": row["message"], **error}


def test_the_only_model_for_a_task_is_meant_and_cuts_texts_as_asked(platform: Running) -> None:
    def num_used(**truncation: Any) -> int:
        answer = post(platform, "/v1/embeddings", input="a " * 600, **truncation)
        return int(answer.json()["usage"]["prompt_tokens"])

    assert num_used(truncate=True) == num_used(truncate_prompt_tokens=-1) == 512
    assert num_used(truncate_prompt_tokens=10, truncation_side="left") == 10

    assert post(platform, "/v1/embeddings", input="Hi").json()["model"] == "tiny-embed"
    assert post(platform, "/rerank", query="a", documents=["b"]).json()["model"] == "tiny-rerank"
    chat = [{"role": "user", "content": "Hello!"}]
    assert post(platform, "/v1/chat/completions", messages=chat).json()["model"] == "tiny-chat"

    tasks = {name: each["task"] for name, each in served(platform).items()}

    assert tasks["tiny-chat"] == "chat"
    assert (tasks["tiny-embed"], tasks["tiny-rerank"]) == ("embeddings", "rerank")
    table = json.loads(vinery(platform, "model", "list", "--json"))
    assert {each["name"]: each["task"] for each in table}["tiny-rerank"] == "rerank"


def test_requests_are_recorded_limited_and_survive_their_engine(platform: Running) -> None:
    until(lambda: is_written(platform))
    since = len(rows(platform))
    try:
        limit(platform, "tokens", "day", num_tokens(platform) + 12)
        taken = post(platform, "/v1/embeddings", model="tiny-embed", input="cat dog")
        refused = post(platform, "/v1/embeddings", model="tiny-embed", input="cat " * 20)
    finally:
        remove_limits(platform)
    until(lambda: is_written(platform))

    used = taken.json()["usage"]["total_tokens"]
    records = rows(platform)[since:]
    assert refused.status_code == 429
    assert {each.endpoint for each in records} == {"embeddings"}
    assert sorted((each.http_status, each.num_prompt_tokens) for each in records) == [
        (200, used),
        (429, 0),
    ]

    since, body = len(rows(platform)), {"model": "tiny-embed", "input": ["cat " * 400] * 50}
    num_read = metric(platform, "vinery_work_total")
    with ThreadPoolExecutor(2) as threads:
        with stopped(platform.pids("pooling engine")):
            asked = [threads.submit(post, platform, "/v1/embeddings", **body) for _ in range(2)]
            until(lambda: metric(platform, "vinery_work_total") == num_read + 2)
            platform.kill("pooling engine")
        answers = [each.result() for each in asked]

    assert [len(answer.json()["data"]) for answer in answers] == [50, 50]
    until(lambda: is_written(platform))
    assert [each.outcome for each in rows(platform)[since:]] == ["ok", "ok"]
