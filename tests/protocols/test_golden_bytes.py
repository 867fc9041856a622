"""The exact bytes of streams and bodies.

VINERY_TEST_UPDATE_GOLDEN=1 rewrites the files: read the difference before you
commit it, because every byte is a promise to some client.
"""

import os
from pathlib import Path
from typing import Any

from tests.results import build_result
from tests.tables import table
from vinery_serving.core import events as ev
from vinery_serving.core.dialects import V1, V3, Dialect
from vinery_serving.core.errors import EngineLost
from vinery_serving.core.request import Endpoint

from .exchanges import (
    CUSTOM_CALL,
    HEAD,
    PLAIN,
    TWO_CALLS,
    TWO_CHOICES,
    WITH_REASONING,
    WITH_REASONING_TWICE,
    exchange,
    streamed,
)

CHAT, TEXTS = Endpoint.CHAT, Endpoint.COMPLETIONS
RESPONSES, MESSAGES = Endpoint.RESPONSES, Endpoint.MESSAGES
GOLDEN = Path(__file__).parents[1] / "golden" / "protocols"

WITH_USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
RUNNING: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
WEATHER: dict[str, Any] = {
    "tools": [
        {
            "type": "function",
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
        {"type": "web_search"},
    ],
    "tool_choice": "required",
    "reasoning": {"effort": "low", "summary": "auto"},
    "instructions": "Be brief.",
    "temperature": 0.5,
    "metadata": {"team": "a"},
    "store": True,
}
EVERY_FIELD: dict[str, Any] = {
    **WEATHER,
    "model": "grape-1b",
    "n": 2,
    "tool_choice": {"type": "function", "name": "get_weather"},
    "parallel_tool_calls": False,
    "max_output_tokens": 64,
    "max_tool_calls": 3,
    "text": {
        "format": {"type": "json_schema", "name": "city", "schema": {"type": "object"}},
        "verbosity": "low",
    },
    "reasoning": {"effort": "high", "summary": "detailed", "context": "all_turns"},
    "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
    "truncation": "auto",
    "top_p": 0.9,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "service_tier": "flex",
    "user": "u",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit"},
}
GRAMMAR = {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}
RUN: dict[str, Any] = {
    "tools": [{"type": "custom", "name": "run", "description": "Run code", "format": GRAMMAR}],
    "tool_choice": {"type": "custom", "name": "run"},
}
BROKEN = ev.Failed(EngineLost("The engine ended while it ran this request. Try again."))
COUNTED: list[ev.Event] = [
    *PLAIN[:1],
    ev.Progress(ev.TokenCounts(num_prompt_tokens=11, num_output_tokens=1)),
    PLAIN[1],
    ev.Progress(ev.TokenCounts(num_prompt_tokens=11, num_output_tokens=2)),
    *PLAIN[2:],
]

WITH_IDS: dict[str, Any] = {"return_token_ids": True, "return_prompt_text": True}
MADE: list[ev.Event] = [
    ev.Started(1, ((5, 6),), ("<user>Hi",)),
    ev.TokensGenerated(0, (7,), "Gr"),
    ev.TextDelta(0, "Gr"),
    ev.TokensGenerated(0, (8, 2), "\u00fc\u00dfe<end>"),
    ev.TextDelta(0, "\u00fc\u00dfe"),
    *PLAIN[3:],
]

PADDED: dict[str, Any] = {"stream": True, "stream_options": {"include_obfuscation": True}}
LABELS: dict[str, Any] = {"service_tier": "default", "metadata": {"team": "a"}}

STREAMS: dict[str, tuple[Endpoint, Dialect, dict[str, Any], list[ev.Event]]] = {
    "chat_plain": (CHAT, V1, {"stream": True}, PLAIN),
    "chat_usage": (CHAT, V1, {**WITH_USAGE, "service_tier": "auto"}, PLAIN),
    "chat_running_usage": (CHAT, V1, RUNNING, COUNTED),
    "chat_reasoning": (CHAT, V3, {"stream": True}, WITH_REASONING),
    "chat_two_calls": (CHAT, V1, {"stream": True}, TWO_CALLS),
    "chat_custom_call": (CHAT, V1, {"stream": True, **RUN}, CUSTOM_CALL),
    "chat_two_choices": (CHAT, V1, {**WITH_USAGE, "n": 2}, TWO_CHOICES),
    "chat_token_ids": (CHAT, V1, {"stream": True, **WITH_IDS}, MADE),
    "chat_failure": (CHAT, V1, {"stream": True}, [*PLAIN[:2], BROKEN]),
    "completions_plain": (TEXTS, V1, {"stream": True}, PLAIN),
    "completions_two_choices": (TEXTS, V1, {**WITH_USAGE, "n": 2}, TWO_CHOICES),
    "completions_token_ids": (TEXTS, V1, {"stream": True, **WITH_IDS}, MADE),
    "completions_failure": (TEXTS, V1, {"stream": True}, [*PLAIN[:2], BROKEN]),
    "responses_plain": (RESPONSES, V1, {"stream": True}, PLAIN),
    "responses_cut_reasoning": (RESPONSES, V3, {"stream": True}, WITH_REASONING),
    "responses_two_calls": (RESPONSES, V1, {"stream": True, **WEATHER}, TWO_CALLS),
    "responses_custom_call": (RESPONSES, V1, {"stream": True, **RUN}, CUSTOM_CALL),
    "responses_every_field": (RESPONSES, V1, {**EVERY_FIELD, "n": 1, **PADDED}, WITH_REASONING),
    "messages_plain": (MESSAGES, V1, {"stream": True}, PLAIN),
    "messages_cut_reasoning": (MESSAGES, V3, {"stream": True}, WITH_REASONING),
    "messages_two_calls": (MESSAGES, V1, {"stream": True}, TWO_CALLS),
    "messages_failure": (MESSAGES, V1, {"stream": True}, [*PLAIN[:2], BROKEN]),
    "responses_failure": (RESPONSES, V1, {"stream": True}, [*PLAIN[:2], BROKEN]),
}
BODIES: dict[str, tuple[Endpoint, Dialect, dict[str, Any], list[ev.Event]]] = {
    "chat_plain": (CHAT, V1, {}, PLAIN),
    "chat_reasoning": (CHAT, V1, LABELS, WITH_REASONING),
    "chat_two_calls": (CHAT, V1, {}, TWO_CALLS),
    "chat_token_ids": (CHAT, V1, WITH_IDS, MADE),
    "completions_token_ids": (TEXTS, V1, WITH_IDS, MADE),
    "chat_custom_call": (CHAT, V1, RUN, CUSTOM_CALL),
    "completions_two_choices": (TEXTS, V1, {"n": 2}, TWO_CHOICES),
    "responses_plain": (RESPONSES, V1, {}, PLAIN),
    "responses_every_field": (RESPONSES, V1, EVERY_FIELD, WITH_REASONING_TWICE),
    "responses_cut_reasoning": (RESPONSES, V1, {}, WITH_REASONING),
    "responses_two_calls": (RESPONSES, V1, WEATHER, TWO_CALLS),
    "responses_custom_call": (RESPONSES, V1, RUN, CUSTOM_CALL),
    "messages_plain": (MESSAGES, V1, {}, PLAIN),
    "messages_cut_reasoning": (MESSAGES, V1, {}, WITH_REASONING),
    "messages_two_calls": (MESSAGES, V1, {}, TWO_CALLS),
}


def expect(name: str, actual: bytes) -> None:
    path = GOLDEN / name
    if os.environ.get("VINERY_TEST_UPDATE_GOLDEN"):
        path.write_bytes(actual)
    assert actual == path.read_bytes()


@table("name", STREAMS)
def test_a_stream_is_these_bytes(name: str) -> None:
    endpoint, dialect, fields, events = STREAMS[name]

    expect(f"{name}.sse", streamed(exchange(endpoint, dialect, **fields), events))


@table("name", BODIES)
def test_a_body_is_these_bytes(name: str) -> None:
    endpoint, dialect, fields, events = BODIES[name]

    expect(f"{name}.json", exchange(endpoint, dialect, **fields).body(HEAD, build_result(events)))
