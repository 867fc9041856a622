"""The GenerationRequest of a chat body."""

from __future__ import annotations

from typing import Any

from tests.tables import table
from vinery_serving.core.dialects import V1, V3
from vinery_serving.core.request import (
    Conversation,
    Effort,
    Endpoint,
    Grammar,
    GrammarKind,
    Message,
    Role,
    Sampling,
    Stopping,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)

from .exchanges import PLAIN, answered, chat, exchange

WEATHER = {"name": "get_weather", "description": "Now.", "parameters": {"type": "object"}}
NESTED = {"type": "function", "function": WEATHER}
NAMED = ToolChoice(ToolMode.NAMED, "get_weather")

NULLABLE = """
model temperature top_p top_k min_p seed max_tokens max_completion_tokens stop n
frequency_penalty presence_penalty repetition_penalty stream stream_options tools
tool_choice parallel_tool_calls functions function_call response_format logprobs
top_logprobs logit_bias best_of reasoning_effort chat_template_kwargs service_tier
include_stop_str_in_output guided_json structured_outputs audio modalities
"""


def conversation(**fields: Any) -> Conversation:
    prompt = chat(**fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def message(role: str = "assistant", content: Any = "a", **fields: Any) -> Message:
    return conversation(messages=[{"role": role, "content": content, **fields}]).messages[0]


def said(*texts: str, **fields: Any) -> Message:
    return Message(Role.ASSISTANT, tuple(map(TextPart, texts)), **fields)


def test_a_minimal_request_has_only_defaults() -> None:
    request = chat()

    assert request.model is None
    assert request.sampling == Sampling()
    assert request.stopping == Stopping()
    assert request.grammar is None
    assert request.dialect is V1
    assert (request.n, request.is_streamed, request.wants_progress) == (1, False, False)
    assert request.prompt == Conversation((Message(Role.USER, (TextPart("Hi"),)),))


@table(
    "fields",
    [
        dict.fromkeys(NULLABLE.split()),
        {"tools": [], "functions": [], "stop": [], "logit_bias": {}, "bad_words": []},
        {"response_format": {"type": "text"}},
        {"tool_choice": "auto"},  # among no tools
        # Labels.
        {
            "store": True,
            "user": "u",
            "metadata": {"k": "v"},
            "service_tier": "flex",
            "safety_identifier": "s",
            "prompt_cache_key": "k",
            "prompt_cache_retention": "24h",
            "prompt_cache_options": {"mode": "implicit", "ttl": "12h"},
            "verbosity": "low",
            "prediction": {"type": "content", "content": "x"},
            "session_id": "s",
            "modalities": ["text"],
        },
        # The defaults of parameters.
        {
            "logprobs": False,
            "top_logprobs": 0,
            "best_of": 1,
            "use_beam_search": False,
            "length_penalty": 1.0,
            "min_tokens": 0,
            "ignore_eos": False,
            "skip_special_tokens": True,
            "echo": False,
            "add_generation_prompt": True,
        },
    ],
)
def test_what_asks_for_nothing_is_the_same_as_absent(fields: dict[str, Any]) -> None:
    assert chat(**fields) == chat()


def test_unknown_fields_are_accepted_everywhere() -> None:
    part = {"type": "text", "text": "Hi", "opts": {}}
    request = chat(
        messages=[{"role": "user", "id": 1, "content": [part]}],
        tools=[{"type": "function", "x": 1, "function": {**WEATHER, "x": 1}}],
        frobnicate=[[]],
    )

    assert request.prompt == conversation(tools=[NESTED])


def test_metadata_of_any_type_is_repeated_as_text() -> None:
    returned = exchange(Endpoint.CHAT, metadata={"id": "a", "try": 2, "debug": True, "tags": ["x"]})

    metadata = {"id": "a", "try": "2", "debug": "true", "tags": '["x"]'}
    assert answered(returned, PLAIN)["metadata"] == metadata


def test_sampling_is_read() -> None:
    penalties = {"frequency_penalty": -2, "presence_penalty": 2, "repetition_penalty": 1.1}
    request = chat(temperature=1, top_p=0.5, top_k=-1, min_p=0.1, seed=7, **penalties)

    assert request.sampling == Sampling(1.0, 0.5, -1, 0.1, 7, -2.0, 2.0, 1.1)
    # An empty nucleus keeps the most likely token.
    assert chat(top_p=0, top_k=40).sampling == Sampling(top_p=1.0, top_k=1)


@table("given, folded", [(0, 0), (-1, 2**63 - 1), (-(2**63), 0), (2**63 - 1, 2**63 - 1)])
def test_any_seed_of_64_bits_is_mapped_to_the_range_of_engines(given: int, folded: int) -> None:
    assert chat(seed=given).sampling.seed == folded


def test_the_newest_name_of_the_token_limit_wins() -> None:
    assert chat(max_tokens=5).stopping.max_tokens == 5
    assert chat(max_tokens=5, max_completion_tokens=6).stopping.max_tokens == 6


def test_one_stop_string_is_a_list_of_one() -> None:
    assert chat(stop="END").stopping.stop == ("END",)
    assert chat(stop=["a", "b"]).stopping.stop == ("a", "b")
    assert len(chat(V3, stop=["x"] * 16).stopping.stop) == 16


def test_the_dialect_sets_the_default_of_include_stop_str_in_output() -> None:
    assert not chat(V1, stop="x", stream=True).stopping.include_stop_text
    assert chat(V3, stop="x", stream=True).stopping.include_stop_text
    assert not chat(V3, stop="x").stopping.include_stop_text


@table("dialect", [V1, V3])
@table("stream", [True, False])
@table("wanted", [True, False])
def test_include_stop_str_in_output_is_read(dialect: Any, stream: bool, wanted: bool) -> None:
    request = chat(dialect, stop="x", stream=stream, include_stop_str_in_output=wanted)

    assert request.stopping.include_stop_text is wanted


def test_running_usage_comes_with_the_totals_only() -> None:
    for totals in (True, False):
        options = {"include_usage": totals, "continuous_usage_stats": True}
        assert chat(stream=True, stream_options=options).wants_progress is totals


@table("role", ["system", "developer", "user", "assistant"])
@table("kind", ["text", "input_text", "output_text"])
def test_any_role_may_send_text_parts(role: str, kind: str) -> None:
    parts = [{"type": kind, "text": "a"}, {"type": "refusal", "refusal": "b"}]

    assert message(role, parts) == Message(Role(role), (TextPart("a"), TextPart("b")))


CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {"b": 2}}},
    {"id": "c3", "function": {"name": "h"}},
]
CALLED = (ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "g", '{"b":2}'), ToolCall("c3", "h", "{}"))


@table(
    "fields, turn",
    [
        ({"name": "bob"}, said("a", name="bob")),
        ({"tool_calls": []}, said("a")),
        ({"content": None, "tool_calls": CALLS}, said(tool_calls=CALLED)),
        ({"content": None}, said()),
        ({"content": None, "refusal": "No."}, said("No.")),
        ({"reasoning": "Hm"}, said("a", reasoning="Hm")),
        ({"reasoning_content": "Hm"}, said("a", reasoning="Hm")),
        (
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "4"}]},
            Message(Role.TOOL, (TextPart("4"),), tool_call_id="c1"),
        ),
    ],
)
def test_a_turn_of_the_assistant_or_a_tool_is_read(fields: dict[str, Any], turn: Message) -> None:
    assert message(**fields) == turn


def test_the_content_of_the_assistant_may_be_missing() -> None:
    assert conversation(messages=[{"role": "assistant"}]).messages == (said(),)


def test_the_deprecated_function_role_answers_by_the_name_of_the_function() -> None:
    call = {"role": "assistant", "function_call": {"name": "f", "arguments": ""}}

    turns = conversation(messages=[call, {"role": "function", "name": "f", "content": "4"}])

    assert turns.messages == (
        said(tool_calls=(ToolCall("f", "f", "{}"),)),
        Message(Role.TOOL, (TextPart("4"),), name="f", tool_call_id="f"),
    )


def test_system_messages_stay_where_they_are() -> None:
    roles = ["system", "developer", "user", "system"]

    turns = conversation(messages=[{"role": role, "content": role} for role in roles]).messages

    assert [(turn.role.value, turn.text) for turn in turns] == [(role, role) for role in roles]


@table(
    "tools",
    [
        {"tools": [NESTED]},
        {"tools": [{"type": "function", **WEATHER}]},
        {"tools": [{"function": WEATHER}]},
        {"functions": [WEATHER]},
    ],
)
def test_tools_are_read_in_every_shape(tools: dict[str, Any]) -> None:
    assert conversation(**tools).tools == (Tool("get_weather", "Now.", {"type": "object"}),)


@table(
    "field, value, choice",
    [
        ("tool_choice", "none", ToolChoice(ToolMode.NONE)),
        ("tool_choice", "auto", ToolChoice(ToolMode.AUTO)),
        ("tool_choice", "required", ToolChoice(ToolMode.REQUIRED)),
        ("tool_choice", {"type": "function", "function": {"name": "get_weather"}}, NAMED),
        ("tool_choice", {"type": "function", "name": "get_weather"}, NAMED),
        ("function_call", "none", ToolChoice(ToolMode.NONE)),
        ("function_call", {"name": "get_weather"}, NAMED),
    ],
)
def test_tool_choice_is_read_in_every_shape(field: str, value: Any, choice: ToolChoice) -> None:
    assert conversation(tools=[NESTED], **{field: value}).tool_choice == choice


def test_parallel_calls_are_allowed_unless_refused() -> None:
    assert conversation().parallel_tool_calls
    assert not conversation(parallel_tool_calls=False).parallel_tool_calls


@table("effort", Effort)
def test_every_effort_reaches_the_template(effort: Effort) -> None:
    prompt = conversation(reasoning_effort=effort.value)

    assert prompt.rendering.effort is effort
    assert prompt.template_kwargs == {}


def test_template_variables_are_passed_on() -> None:
    kwargs = {"enable_thinking": True, "persona": {"a": [1]}}

    assert conversation(chat_template_kwargs=kwargs).template_kwargs == kwargs


@table(
    "response_format, source, param",
    [
        ({"type": "json_object"}, '{"type":"object"}', "response_format"),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"b": "ü", "a": 1}}},
            '{"b":"ü","a":1}',
            "response_format.json_schema.schema",
        ),
    ],
)
def test_a_response_format_is_a_grammar(response_format: Any, source: str, param: str) -> None:
    grammar = chat(response_format=response_format).grammar

    assert grammar == Grammar(GrammarKind.JSON_SCHEMA, source, param)
