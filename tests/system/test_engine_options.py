"""An administrator's options for a model's engine, as the clients see them."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import REPOSITORY, Running
from tests.prompting.builders import name_markers
from tests.system.clients import http_of, serving, vinery
from tests.tables import table

CHAT = REPOSITORY / "models" / "tiny-chat"
DRAFT = REPOSITORY / "models" / "tiny-draft"
OPTIONS = {
    "drafting": f"draft_model={DRAFT}",
    "looking-up": "prompt_lookup=true",
    "processed": 'logits_processors=["tests.system.logits_processors:only_token"]',
    "thinking-devstral": "output_format=think+devstral",
    "formless": "output_format=none",
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
MARKERS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
CODER_OPTIONS = ("max_tokens_limit=12", "best_of_limit=2")
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
CHAT_WITH_CODER = {"model": "coder", "messages": CAPITAL}
COUNTING = {"messages": [{"role": "user", "content": "count to 30"}], "temperature": 0}


@pytest.fixture(scope="module")
def raw(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    coder = tmp_path_factory.mktemp("models") / "coder"
    shutil.copytree(CHAT, coder, ignore=shutil.ignore_patterns("openvino_tokenizer*"))
    name_markers(coder, MARKERS)
    models = {
        **{name: [CHAT, f"--option={option}"] for name, option in OPTIONS.items()},
        "bounded": [CHAT, *(f"--option={key}={json.dumps(it)}" for key, it in BOUNDED.items())],
        "coder": [coder, *(f"--option={option}" for option in CODER_OPTIONS)],
    }
    with serving(running, models), http_of(running) as client:
        yield client


def ask(raw: httpx.Client, model: str, **fields: Any) -> Any:
    answer = raw.post("/v1/chat/completions", json={**COUNTING, "model": model, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_the_administrator_sets_defaults_limits_and_the_chat_template_without_a_restart(
    raw: httpx.Client, running: Running
) -> None:
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

    engines = set(running.pids("engine"))

    def num_tokens() -> int:
        answer = raw.post("/v1/chat/completions", json=message)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["usage"]["completion_tokens"])

    defaults = json.dumps({**BOUNDED["defaults"], "max_tokens": 2})  # type: ignore[dict-item]
    vinery(running, "model", "change", "bounded", "--option", f"defaults={defaults}")
    assert num_tokens() == 2
    vinery(running, "model", "change", "bounded", "--option", "chat_template=")
    assert num_tokens() == 2
    assert set(running.pids("engine")) == engines


def test_a_processor_gets_the_arguments_of_its_requests(raw: httpx.Client) -> None:
    only = raw.post("/tokenize", json={"model": "processed", "prompt": " blue"}).json()["tokens"][0]
    for field in ("logits_processors_args", "vllm_xargs"):
        answer = ask(raw, "processed", max_tokens=3, **{field: {"only_token": only}})
        assert text_of(answer) == " blue blue blue"
    assert text_of(ask(raw, "processed")).startswith("1 2 3")


def test_calls_have_the_chosen_format_and_without_one_there_are_none(raw: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "pick", "parameters": {"type": "object"}}}
    asked = {"tools": [tool], "chat_template_kwargs": {"enable_thinking": True}}

    answer = ask(raw, "thinking-devstral", tool_choice="required", **asked)
    refused = raw.post(
        "/v1/chat/completions",
        json={**COUNTING, "model": "formless", "tools": [tool], "tool_choice": "required"},
    )

    message = answer["choices"][0]["message"]
    assert message["reasoning"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["pick"]
    assert text_of(ask(raw, "formless", tools=[tool]))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")


# -- A model that fills in the middle, with limits and templates of requests


def complete(raw: httpx.Client, tree: str = "v1", **fields: Any) -> httpx.Response:
    body = {"model": "coder", "prompt": "Once upon", **fields}
    return raw.post(f"/{tree}/completions", json=body)


def chat_with_coder(raw: httpx.Client, **fields: Any) -> httpx.Response:
    return raw.post("/v1/chat/completions", json={**CHAT_WITH_CODER, **fields})


@table("tree", ["v1", "v3"])
def test_a_middle_is_filled_in_within_the_limits_of_the_model(raw: httpx.Client, tree: str) -> None:
    usual = complete(raw, tree, ignore_eos=True).json()
    assert usual["usage"]["completion_tokens"] == 12
    assert usual["choices"][0]["finish_reason"] == "length"

    assert complete(raw, tree, max_tokens=12).status_code == 200
    error = complete(raw, tree, max_tokens=13).json()["error"]
    assert error["param"] == "max_tokens"
    assert "at most 12" in error["message"]
    refused = chat_with_coder(raw, max_completion_tokens=13).json()["error"]
    assert refused["param"] == "max_completion_tokens"
    assert len(complete(raw, tree, n=2).json()["choices"]) == 2
    assert complete(raw, tree, n=3).json()["error"]["param"] == "n"

    def tokens(text: str) -> int:
        answer = raw.post("/tokenize", json={"model": "coder", "prompt": text})
        return int(answer.json()["count"])

    answer = complete(raw, tree, suffix=" the end", echo=True, max_tokens=4).json()

    assert answer["usage"]["prompt_tokens"] == 3 + tokens("Once upon") + tokens(" the end")
    assert answer["choices"][0]["text"].startswith("Once upon")
    assert answer["usage"]["completion_tokens"] >= 1
