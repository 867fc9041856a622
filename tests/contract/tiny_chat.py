"""Questions to the reference model that several tests share, and its answers."""

from __future__ import annotations

from typing import Any

MODEL = "tiny-chat"
QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
PARIS = "The capital of France is Paris."
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


def prompt_of(question: str) -> str:
    """Return the rendered prompt, up to the start of the answer."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
