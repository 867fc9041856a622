"""The value of each body field in the request, on every endpoint with the field.

A row of `golden/fields.jsonl` has the fields of a body, and what they set: a part of the request,
without the members that have their defaults.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any

from tests.tables import table
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.request import Endpoint
from vinery_serving.core.tasks import GENERATION_ENDPOINTS

from .exchanges import parsed, request

CHAT, TEXTS, RESPONSES = Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES
ANY = GENERATION_ENDPOINTS
FIELDS = Path(__file__).parents[1] / "golden" / "fields.jsonl"


def shown(value: Any) -> Any:
    """The value as JSON, without the members that have their defaults."""
    match value:
        case Enum():
            return value.value
        case tuple() | list():
            return [shown(each) for each in value]
        case Mapping():
            return {name: shown(each) for name, each in value.items()}
        case _ if is_dataclass(value):
            members = {each.name: getattr(value, each.name) for each in fields(value)}
            usual = {each.name: default_of(each) for each in fields(value)}
            return {name: shown(each) for name, each in members.items() if each != usual[name]}
    return value


def default_of(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


@table("row", [json.loads(line) for line in FIELDS.read_text(encoding="utf-8").splitlines()])
def test_a_field_sets_a_part_of_the_request(row: dict[str, Any]) -> None:
    dialect = DIALECTS[row.get("tree", "v1")]
    for endpoint in map(Endpoint, row["endpoints"]):
        asked = parsed(endpoint, dialect, **row["fields"]).request
        assert shown(attrgetter(*row["sets"].split())(asked)) == row["value"], endpoint


LABELS: dict[str, Any] = {
    "store": True,
    "metadata": {"k": "v"},
    "prompt_cache_options": {"mode": "implicit", "ttl": "12h"},
    "modalities": ["text"],
    **dict.fromkeys(("user", "safety_identifier", "prompt_cache_key"), "s"),
    "service_tier": "auto",
    "prompt_cache_retention": "24h",
}
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("add_generation_prompt", "skip_special_tokens", "include_reasoning"), True),
    **dict.fromkeys(("logprobs", "use_beam_search", "ignore_eos", "echo"), False),
    **dict.fromkeys(("disable_chat_template", "continue_final_message"), False),
    "top_logprobs": 0,
    "min_tokens": 0,
    "best_of": 1,
    "length_penalty": 1.0,
    "stop_token_ids": [],
    "documents": [],
    "modalities": ["text"],
}
NO_TOOLS: dict[str, Any] = {"tools": [], "functions": []}
EMPTY = {**NO_TOOLS, "stop": [], "logit_bias": {}, "bad_words": []}
NULLABLE = """
model temperature top_p top_k min_p seed max_tokens max_completion_tokens stop n
frequency_penalty presence_penalty repetition_penalty stream stream_options tools
tool_choice parallel_tool_calls functions function_call response_format logprobs
top_logprobs logit_bias best_of reasoning_effort chat_template_kwargs service_tier
include_stop_str_in_output guided_json structured_outputs audio modalities
"""
NOTHING: list[tuple[tuple[Endpoint, ...], dict[str, Any]]] = [
    ((CHAT,), dict.fromkeys(NULLABLE.split())),
    ((CHAT,), EMPTY),
    ((CHAT,), LABELS),
    ((CHAT,), DEFAULTS),
    ((CHAT,), {"response_format": {"type": "text"}}),
    ((CHAT,), {"tool_choice": "auto"}),  # among no tools
    ((TEXTS,), {"prompt_token_ids": []}),
    ((TEXTS,), {"echo": False, "suffix": None, "best_of": 1, "logprobs": None, "user": "u"}),
    ((RESPONSES,), {"n": 1}),
]


@table("endpoints, fields", NOTHING)
def test_what_asks_for_nothing_is_the_same_as_absent(
    endpoints: tuple[Endpoint, ...], fields: dict[str, Any]
) -> None:
    for endpoint in endpoints:
        assert request(endpoint, **fields) == request(endpoint), endpoint


def test_a_salt_is_not_shown() -> None:
    for endpoint in GENERATION_ENDPOINTS:
        assert "secret" not in repr(request(endpoint, cache_salt="secret").handling)
