"""The options that do not change the generated text, over HTTP with the real engine."""

from collections.abc import Iterator
from typing import Any

import httpx

from tests.conftest import Running, until
from tests.system.ledger import rows
from tests.tables import table

from . import tiny_chat
from .tiny_chat import OPENAI, asking, ids_of, prompt_of, text_of

COUNT = "count to 30"
PROMPT = prompt_of(COUNT)
NO_REASONING = {"enable_thinking": False}
PREFIXES = {"chat/completions": "chatcmpl-", "completions": "cmpl-", "responses": "resp_"}

every_endpoint = table("endpoint", OPENAI)


def fields_of(endpoint: str) -> dict[str, Any]:
    limit = {"max_tokens": 200} if endpoint == "completions" else {}
    return {"temperature": 0, **asking(endpoint, COUNT), **limit}


def ask(raw: httpx.Client, endpoint: str, **fields: Any) -> Any:
    return tiny_chat.ask(raw, f"/v1/{endpoint}", **{**fields_of(endpoint), **fields})


def chunks(raw: httpx.Client, endpoint: str, **fields: Any) -> Iterator[Any]:
    return tiny_chat.ask_in_parts(raw, f"/v1/{endpoint}", **{**fields_of(endpoint), **fields})


@every_endpoint
def test_an_answer_has_the_id_of_its_request(raw: httpx.Client, endpoint: str) -> None:
    first = ask(raw, endpoint, request_id="job-7")
    again = ask(raw, endpoint, request_id="job-7")
    ids = {
        chunk.get("response", chunk).get("id")
        for chunk in chunks(raw, endpoint, request_id="job-7")
        if endpoint != "responses" or "response" in chunk
    }

    assert first["id"] == again["id"] == PREFIXES[endpoint] + "job-7"
    assert ids == {first["id"]}


def test_an_id_that_is_used_twice_has_two_records_and_is_not_prefixed_twice(
    raw: httpx.Client, running: Running
) -> None:
    num_tokens = 123  # as no other request here has
    for _ in range(2):
        ask(raw, "completions", request_id="req_7", prompt=[50] * num_tokens, max_tokens=1)

    def ids() -> list[str]:
        return [row.request_id for row in rows(running) if row.num_prompt_tokens == num_tokens]

    until(lambda: len(ids()) == 2)
    assert len({*ids(), "req_7"}) == 3
    assert ask(raw, "responses", request_id="resp_7")["id"] == "resp_7"


def num_cached(answer: Any) -> int:
    usage = answer["usage"]
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    return int(details["cached_tokens"])


@every_endpoint
def test_only_requests_with_the_same_salt_share_a_cached_prompt(
    raw: httpx.Client, endpoint: str
) -> None:
    words = " ".join(f"{endpoint} {number}" for number in range(40)) + " " + COUNT
    asked = asking(endpoint, words)
    plain = ask(raw, endpoint, **asked)
    assert num_cached(ask(raw, endpoint, **asked)) > 32, "what is shared by all without a salt"

    for salt in ("a", "b"):
        first = ask(raw, endpoint, **asked, cache_salt=f"{endpoint} {salt}")
        again = ask(raw, endpoint, **asked, cache_salt=f"{endpoint} {salt}")

        assert num_cached(first) == 0
        assert num_cached(again) > 32
        assert text_of(first) == text_of(again) == text_of(plain)


def test_an_answer_has_the_text_of_its_prompt_on_request(raw: httpx.Client) -> None:
    chat = ask(raw, "chat/completions", return_prompt_text=True, chat_template_kwargs=NO_REASONING)
    first = next(chunks(raw, "completions", return_prompt_text=True))
    of_ids = ask(raw, "completions", prompt=ids_of(raw, PROMPT), return_prompt_text=True)

    assert chat["prompt_text"] == PROMPT
    assert first["choices"][0]["prompt_text"] == PROMPT
    assert of_ids["choices"][0]["prompt_text"] == PROMPT
    assert "prompt_text" not in ask(raw, "chat/completions")
