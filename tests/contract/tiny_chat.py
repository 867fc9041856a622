"""The reference model: shared questions, the answers, and helpers to ask."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai

MODEL = "tiny-chat"
CONTEXT = 2048  # tokens
PARIS = "The capital of France is Paris."
CAPITAL = "What is the capital of France?"
QUESTION: Any = [{"role": "user", "content": CAPITAL}]
WEATHER_QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
GET_WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Get the weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
WEATHER: Any = {"type": "function", "function": GET_WEATHER}
SUNNY = '{"temperature": 21, "condition": "sunny"}'
SUNNY_IN_PARIS = "It is 21 degrees and sunny in Paris."
OPENAI = ("chat/completions", "completions", "responses")


def prompt_of(question: str) -> str:
    """Return the rendered prompt, up to the start of the answer."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def numbers(last: int) -> str:
    """The answer to `Count to {last}.`"""
    return " ".join(str(number) for number in range(1, last + 1))


def asking(endpoint: str, question: str) -> dict[str, Any]:
    """The fields that ask the same of each of OpenAI's endpoints."""
    match endpoint:
        case "chat/completions":
            return {"messages": [{"role": "user", "content": question}]}
        case "completions":
            return {"prompt": prompt_of(question)}
        case _:
            return {"input": question}


def ask(raw: httpx.Client, path: str, **fields: Any) -> Any:
    """The body of an answer."""
    response = raw.post(path, json={"model": MODEL, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def ask_in_parts(raw: httpx.Client, path: str, **fields: Any) -> Iterator[Any]:
    """The events of a stream."""
    response = raw.post(path, json={"model": MODEL, "stream": True, **fields})
    assert response.status_code == 200, response.text
    for line in response.text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def refusal(raw: httpx.Client, path: str, **fields: Any) -> Any:
    """The error of a request that is refused for its fields."""
    response = raw.post(path, json={"model": MODEL, **fields})
    assert response.status_code == 400, response.text
    return response.json()["error"]


def text_of(answer: Any) -> str:
    """The text of the first choice, or of the last item of a response."""
    if "output" in answer:
        return str(answer["output"][-1]["content"][0]["text"])
    choice = answer["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def num_reasoning(answer: Any) -> int:
    return int(answer["usage"]["completion_tokens_details"]["reasoning_tokens"])


def ids_of(raw: httpx.Client, text: str) -> list[int]:
    ids: list[int] = ask(raw, "/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    return ids


def lenient(client: openai.OpenAI) -> openai.OpenAI:
    """A client that does not validate answers. The types forbid what OpenAI itself streams: the
    null finish reason of completions, calls of custom tools, a null as first logprob."""
    return openai.OpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=0)
