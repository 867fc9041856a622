"""What an administrator may set for a model's engine, seen by its clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import REPOSITORY, Running
from tests.system.clients import http_of, serving
from tests.system.commands import vinery
from tests.tables import table

pytestmark = pytest.mark.system

CHAT = REPOSITORY / "models" / "tiny-chat"
DRAFT = REPOSITORY / "models" / "tiny-draft"
OPTIONS = {
    "drafting": f"draft_model={DRAFT}",
    "looking-up": "prompt_lookup=true",
    "processed": 'logits_processors=["tests.system.logits_processors:only_token"]',
}
TEMPLATE = (
    "{% for each in messages %}<|im_start|>user\n{{ each.content }} to 3<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n<think>\n\n</think>{{ '\n\n' }}"
)
BOUNDED = {
    "defaults": {"temperature": 0, "max_tokens": 4},
    "maxima": {"temperature": 0.5},
    "chat_template": TEMPLATE,
    "kv_cache_precision": "u8",
    "sparse_attention": {"num_recent_tokens": 256},
}
COUNTING = {"messages": [{"role": "user", "content": "count to 30"}], "temperature": 0}


@pytest.fixture(scope="module")
def raw(running: Running) -> Iterator[httpx.Client]:
    bounds = [f"--option={name}={json.dumps(value)}" for name, value in BOUNDED.items()]
    models = {name: [CHAT, "--option", option] for name, option in OPTIONS.items()}
    with serving(running, {**models, "bounded": [CHAT, *bounds]}), http_of(running) as client:
        yield client


def ask(raw: httpx.Client, model: str, **fields: Any) -> Any:
    answer = raw.post("/v1/chat/completions", json={**COUNTING, "model": model, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(answer: Any) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


@table("model", ["drafting", "looking-up"])
def test_speculation_changes_no_text_and_is_counted_in_the_usage(
    model: str, raw: httpx.Client
) -> None:
    plain, ahead = ask(raw, "tiny-chat"), ask(raw, model)
    details = ahead["usage"]["completion_tokens_details"]
    assert text_of(ahead) == text_of(plain)
    assert text_of(plain).endswith("29 30")
    assert details["accepted_prediction_tokens"] > 0
    assert details["rejected_prediction_tokens"] >= 0
    assert "accepted_prediction_tokens" not in plain["usage"]["completion_tokens_details"]


def test_the_request_sets_how_many_tokens_are_proposed(raw: httpx.Client) -> None:
    def rejected(**fields: Any) -> int:
        usage = ask(raw, "looking-up", **fields)["usage"]
        count: int = usage["completion_tokens_details"]["rejected_prediction_tokens"]
        return count

    assert rejected(num_assistant_tokens=1) < rejected(num_assistant_tokens=8)
    confident = ask(raw, "drafting", assistant_confidence_threshold=0.5)
    assert text_of(confident) == text_of(ask(raw, "tiny-chat"))


def test_tools_and_schemas_work_with_proposals(raw: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    for model in ("drafting", "looking-up"):
        assert '"a"' in text_of(ask(raw, model, response_format=shape))
        result = ask(raw, model, logprobs=True, top_logprobs=2, max_tokens=8)
        tokens = result["choices"][0]["logprobs"]["content"]
        assert "".join(token["token"] for token in tokens) == text_of(result)


def test_the_administrator_sets_defaults_limits_and_the_chat_template(raw: httpx.Client) -> None:
    message = {"messages": [{"role": "user", "content": "count"}], "model": "bounded"}

    short = raw.post("/v1/chat/completions", json=message).json()
    whole = raw.post("/v1/chat/completions", json={**message, "max_tokens": 20}).json()
    refused = raw.post("/v1/chat/completions", json={**message, "temperature": 0.6})

    assert short["usage"]["completion_tokens"] == 4
    assert text_of(whole) == "1 2 3"
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "temperature"
    assert refused.json()["error"]["message"] == (
        "`temperature` must be at most 0.5, the limit of the model bounded."
    )


def test_a_model_that_is_served_is_not_imported_again(raw: httpx.Client, running: Running) -> None:
    command = f"ovms --model_path {CHAT} --model_name bounded --rest_port 8000"

    report = vinery(running, "import-ovms", "--command", command)

    assert "bounded is served already, with other settings: it stays" in report
    assert "no counterpart: --rest_port: set VINERY_PORT" in report


def test_a_processor_gets_the_arguments_of_its_requests(raw: httpx.Client) -> None:
    only = raw.post("/tokenize", json={"model": "processed", "prompt": " blue"}).json()["tokens"][0]
    for field in ("logits_processors_args", "vllm_xargs"):
        answer = ask(raw, "processed", max_tokens=3, **{field: {"only_token": only}})
        assert text_of(answer) == " blue blue blue"
    assert text_of(ask(raw, "processed")).startswith("1 2 3")


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("tiny-chat", {"num_assistant_tokens": 3}, "num_assistant_tokens", "with the option"),
    ("tiny-chat", {"max_ngram_size": 3}, "max_ngram_size", "with the option prompt_lookup"),
    ("drafting", {"max_ngram_size": 3}, "max_ngram_size", "with the option prompt_lookup"),
    (
        "looking-up",
        {"assistant_confidence_threshold": 0.5},
        "assistant_confidence_threshold",
        "with the option draft_model",
    ),
    (
        "drafting",
        {"num_assistant_tokens": 3, "assistant_confidence_threshold": 0.5},
        "assistant_confidence_threshold",
        "exclude each other",
    ),
    (
        "drafting",
        {"use_beam_search": True, "n": 2, "temperature": None},
        "use_beam_search",
        "speculative decoding",
    ),
    ("processed", {"vllm_xargs": {"other": 1}}, None, "No logits processor"),  # type: ignore[list-item]
]


@table("model, fields, param, words", REFUSED)
def test_what_a_model_is_not_served_for_is_refused(
    model: str, fields: dict[str, Any], param: str | None, words: str, raw: httpx.Client
) -> None:
    answer = raw.post("/v1/chat/completions", json={**COUNTING, "model": model, **fields})
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["param"] == param
    assert words in error["message"]


def test_a_change_of_defaults_takes_effect_without_a_restart(
    raw: httpx.Client, running: Running
) -> None:
    engines = set(running.pids("engine"))
    message = {"messages": [{"role": "user", "content": "count"}], "model": "bounded"}

    def num_tokens() -> int:
        answer = raw.post("/v1/chat/completions", json=message)
        assert answer.status_code == 200, answer.text
        number: int = answer.json()["usage"]["completion_tokens"]
        return number

    assert num_tokens() == 4
    defaults = json.dumps({**BOUNDED["defaults"], "max_tokens": 2})  # type: ignore[dict-item]
    vinery(running, "model", "change", "bounded", "--option", f"defaults={defaults}")
    assert num_tokens() == 2
    vinery(running, "model", "change", "bounded", "--option", "chat_template=")
    assert num_tokens() == 2
    assert set(running.pids("engine")) == engines
