"""The value of each body field in the GenerationRequest, on every endpoint with the field."""

from operator import attrgetter
from typing import Any

from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.dialects import V1, V3, Dialect
from vinery_serving.core.tasks import GENERATION_ENDPOINTS

from .exchanges import OPENAI, request

CHAT, TEXTS = req.Endpoint.CHAT, req.Endpoint.COMPLETIONS
RESPONSES, MESSAGES = req.Endpoint.RESPONSES, req.Endpoint.MESSAGES
CONVERSATIONS = (CHAT, RESPONSES)
ANY = GENERATION_ENDPOINTS

Row = tuple[tuple[req.Endpoint, ...], dict[str, Any], Any]

CONTINUED = req.Rendering(adds_generation_prompt=False, continues_final_message=True)
RENDERINGS: list[Row] = [
    (CONVERSATIONS, {}, req.Rendering()),
    (CONVERSATIONS, {"chat_template": "{{ x }}"}, req.Rendering(template="{{ x }}")),
    (CONVERSATIONS, {"disable_chat_template": True}, req.Rendering(uses_template=False)),
    (CONVERSATIONS, {"documents": [{"text": "a"}]}, req.Rendering(documents=({"text": "a"},))),
    (CONVERSATIONS, {"add_generation_prompt": True}, req.Rendering()),
    (CONVERSATIONS, {"add_generation_prompt": False}, req.Rendering(adds_generation_prompt=False)),
    (CONVERSATIONS, {"continue_final_message": True}, CONTINUED),
    (CONVERSATIONS, {"continue_final_message": True, "add_generation_prompt": False}, CONTINUED),
]
SEVEN = {"truncate_prompt_tokens": 7}
ENCODINGS: list[Row] = [
    (ANY, {}, req.Encoding()),
    (ANY, {"add_special_tokens": False}, req.Encoding(adds_special_tokens=False)),
    (ANY, SEVEN, req.Encoding(max_tokens=7)),
    (ANY, {"truncate_prompt_tokens": -1}, req.Encoding(max_tokens=req.ALL_THAT_FIT)),
    (ANY, {**SEVEN, "truncation_side": "right"}, req.Encoding(max_tokens=7, keeps_start=True)),
    (ANY, {**SEVEN, "truncation_side": "left"}, req.Encoding(max_tokens=7)),
]
ADAPTIVE, DISABLED = {"type": "adaptive"}, {"type": "disabled"}
ENABLED = {"type": "enabled", "budget_tokens": 2048}
HIDDEN = {"reasoning": {"effort": "low", "max_tokens": 9, "exclude": True}}
# The model reasons on Messages only if it is asked to.
EFFORTS: list[Row] = [
    *(((CHAT,), {"reasoning_effort": effort.value}, effort) for effort in req.Effort),
    *(((RESPONSES,), {"reasoning": {"effort": effort.value}}, effort) for effort in req.Effort),
    ((RESPONSES,), {"reasoning": {"summary": "auto"}}, None),
    ((MESSAGES,), {}, req.Effort.NONE),
    ((MESSAGES,), {"thinking": DISABLED}, req.Effort.NONE),
    ((MESSAGES,), {"thinking": ADAPTIVE}, req.Effort.HIGH),
    ((MESSAGES,), {"thinking": ENABLED}, req.Effort.HIGH),
    ((MESSAGES,), {"output_config": {"effort": "low"}}, req.Effort.LOW),
    ((MESSAGES,), {"thinking": ADAPTIVE, "output_config": {"effort": "max"}}, req.Effort.MAX),
    ((MESSAGES,), {"thinking": DISABLED, "output_config": {"effort": "max"}}, req.Effort.NONE),
    ((MESSAGES,), {"reasoning_effort": "medium"}, req.Effort.MEDIUM),
    ((MESSAGES,), {"chat_template_kwargs": {"enable_thinking": True}}, None),
    ((MESSAGES,), {"thinking_token_budget": 5}, None),
    # Switches of other servers.
    (CONVERSATIONS, {"enable_thinking": False}, req.Effort.NONE),
    (CONVERSATIONS, {"enable_thinking": "low"}, req.Effort.LOW),
    (CONVERSATIONS, {"thinking": DISABLED}, req.Effort.NONE),
    (CONVERSATIONS, {"reasoning_effort": "high"}, req.Effort.HIGH),
    ((CHAT,), HIDDEN, req.Effort.LOW),
]
REASONS = {"enable_thinking": True, "thinking": True}
KWARGS = {"enable_thinking": True, "persona": {"a": [1]}}
VARIABLES: list[Row] = [
    ((CHAT,), {"reasoning_effort": "low"}, {}),
    ((CHAT,), {"chat_template_kwargs": KWARGS}, KWARGS),
    ((CHAT,), {"enable_thinking": True}, REASONS),
    ((CHAT,), {"reasoning": {"enabled": True}}, REASONS),
]
BUDGETS: list[Row] = [
    ((MESSAGES,), {"thinking": ENABLED}, 2048),
    ((MESSAGES,), {"thinking": ADAPTIVE}, None),
    ((CHAT,), {"thinking": ENABLED}, 2048),
    ((CHAT,), HIDDEN, 9),
]
HIDES: list[Row] = [
    ((MESSAGES,), {"thinking": {**ADAPTIVE, "display": "omitted"}}, True),
    ((MESSAGES,), {"thinking": {**ADAPTIVE, "display": "summarized"}}, False),
    ((CHAT,), HIDDEN, True),
    (CONVERSATIONS, {"include_reasoning": False}, True),
    (CONVERSATIONS, {"include_reasoning": True}, False),
]
NEWER = "max_completion_tokens"
LIMITS: list[Row] = [
    ((CHAT,), {"max_tokens": 5}, (5, "max_tokens", False)),
    # The newest name wins.
    ((CHAT,), {"max_tokens": 5, NEWER: 4}, (4, NEWER, False)),
    # A whole number with a point is an integer.
    ((CHAT,), {"max_tokens": 8.0}, (8, "max_tokens", False)),
    ((RESPONSES,), {"max_output_tokens": 5}, (5, "max_output_tokens", False)),
    ((TEXTS,), {"echo": True, "max_tokens": 0}, (0, "max_tokens", False)),
    # -1 is no limit, and replaces the default of completions.
    ((CHAT, TEXTS), {"max_tokens": -1}, (None, "max_tokens", True)),
    ((CHAT,), {NEWER: -1}, (None, NEWER, True)),
]
STOPS: list[Row] = [
    ((CHAT,), {"stop": "END"}, ("END",)),
    ((CHAT,), {"stop": ["a", "b"]}, ("a", "b")),
    ((CHAT,), {"stop": ""}, ()),
    ((MESSAGES,), {"stop_sequences": list("abcdefg"), "stream": True}, tuple("abcdefg")),
]
ENDS: dict[str, Any] = {
    "stop_token_ids": [3, 5], "ignore_eos": True, "min_tokens": 4, "max_tokens": 9, "stop": "x",
}  # fmt: skip
PENALTIES = {"frequency_penalty": -2, "presence_penalty": 2, "repetition_penalty": 1.1}
DRAWN = {"temperature": 1, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "seed": 7, **PENALTIES}
SAMPLINGS: list[Row] = [
    ((CHAT,), DRAWN, req.Sampling(1.0, 0.5, -1, 0.1, 7, -2.0, 2.0, 1.1)),
    # An empty nucleus keeps the most likely token.
    ((CHAT,), {"top_p": 0, "top_k": 40}, req.Sampling(top_p=1.0, top_k=1)),
    ((CHAT,), {"top_k": 40.0, "seed": 7.0}, req.Sampling(top_k=40, seed=7)),
    ((MESSAGES,), {"temperature": 0.5, "top_p": 0.9, "top_k": 40}, req.Sampling(0.5, 0.9, 40)),
    # Any seed of 64 bits is mapped to the range of engines.
    *(
        ((CHAT,), {"seed": given}, req.Sampling(seed=folded))
        for given, folded in ((0, 0), (-1, 2**63 - 1), (-(2**63), 0), (2**63 - 1, 2**63 - 1))
    ),
]
IN_TEXT = {"include": ["message.output_text.logprobs"]}
LOGPROBS: list[Row] = [
    ((RESPONSES,), {}, None),
    ((RESPONSES,), {"top_logprobs": 0}, None),
    ((RESPONSES,), {"logprobs": False}, None),
    ((RESPONSES,), {"logprobs": True}, 0),
    ((RESPONSES,), IN_TEXT, 0),
    ((RESPONSES,), {**IN_TEXT, "top_logprobs": 3}, 3),
    ((RESPONSES,), {"top_logprobs": 3}, 3),
]
PROMPTS: list[Row] = [
    ((TEXTS,), {"prompt": "Once"}, req.RawPrompts(("Once",))),
    ((TEXTS,), {"prompt": ["Once", "Twice"]}, req.RawPrompts(("Once", "Twice"))),
    ((TEXTS,), {"prompt": [1, 2, 3]}, req.RawPrompts(((1, 2, 3),))),
    ((TEXTS,), {"prompt": [[1, 2], [0]]}, req.RawPrompts(((1, 2), (0,)))),
    # Token ids go before the prompt.
    ((TEXTS,), {"prompt_token_ids": [1, 2]}, req.RawPrompts(((1, 2),))),
    ((TEXTS,), {"prompt_token_ids": [[1], [2, 3]], "prompt": None}, req.RawPrompts(((1,), (2, 3)))),
    ((TEXTS,), {"echo": True, "max_tokens": 0}, req.RawPrompts(("Once",), echo=True)),
    ((TEXTS,), {"suffix": "end"}, req.RawPrompts(("Once",), suffix="end")),
    ((TEXTS,), {"suffix": ""}, req.RawPrompts(("Once",))),
]
# Token ids go before the messages, which may then be missing.
IDS: list[Row] = [
    ((CHAT,), {"messages": [1, 300, 2]}, (1, 300, 2)),
    *(
        ((CHAT,), {"prompt_token_ids": [5, 6], **missing}, (5, 6))
        for missing in ({}, {"messages": []}, {"messages": None})
    ),
    ((CHAT,), {"prompt_token_ids": []}, None),
]
BARE: dict[str, Any] = {"type": "json_schema", "schema": {"type": "object"}}
NESTED = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"b": "ü", "a": 1}}}
PLAIN = {"type": "text"}


def an_object(param: str, source: str = '{"type":"object"}') -> req.Grammar:
    return req.Grammar(req.GrammarKind.JSON_SCHEMA, source, param)


GRAMMARS: list[Row] = [
    ((CHAT,), {"response_format": {"type": "json_object"}}, an_object("response_format")),
    (
        (CHAT,),
        {"response_format": NESTED},
        an_object("response_format.json_schema.schema", '{"b":"ü","a":1}'),
    ),
    ((RESPONSES,), {"text": {"format": {**BARE, "name": "n"}}}, an_object("text.format.schema")),
    ((RESPONSES,), {"response_format": PLAIN, "text": {"format": PLAIN}}, None),
    ((MESSAGES,), {"output_config": {"format": BARE}}, an_object("output_config.format.schema")),
    ((MESSAGES,), {"output_format": BARE}, an_object("output_format.schema")),
]
WEATHER = {"name": "f", "description": "Now.", "parameters": {"type": "object"}}
IN_FUNCTION = {"type": "function", "function": WEATHER}
FLAT = {"type": "function", **WEATHER}
OF_MESSAGES = {"name": "f", "description": "Now.", "input_schema": {"type": "object"}}
HOSTED: list[Any] = [
    {"type": "web_search", "filters": {}},
    {"type": "function", "name": "f", "strict": True},
    {"type": "mcp", "server_label": "x"},
    {"type": "function", "function": {"name": "g"}},
]
TWO: Any = {"functions": [{"name": "f"}, {"name": "g"}]}
F = req.Tool("f", "Now.", {"type": "object"})
TOOLS: list[Row] = [
    ((CHAT,), {"tools": [IN_FUNCTION]}, (F,)),
    ((CHAT,), {"tools": [FLAT]}, (F,)),
    ((CHAT,), {"tools": [{"function": WEATHER}]}, (F,)),
    ((CHAT,), {"functions": [WEATHER]}, (F,)),
    ((CHAT,), TWO, (req.Tool("f"), req.Tool("g"))),
    # Tools that only OpenAI hosts are left out.
    ((RESPONSES,), {"tools": HOSTED}, (req.Tool("f", strict=True), req.Tool("g"))),
    (
        (MESSAGES,),
        {"tools": [{**OF_MESSAGES, "type": "custom", "strict": True}]},
        (req.Tool("f", "Now.", {"type": "object"}, True),),
    ),
]
NAMED = req.ToolChoice(req.ToolMode.NAMED, "f")
ONLY_HOSTED = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
AUTO, NONE = req.ToolChoice(), req.ToolChoice(req.ToolMode.NONE)
REQUIRED = req.ToolChoice(req.ToolMode.REQUIRED)
FLAT_CHOICE = {"type": "function", "name": "f"}


def chosen(endpoint: req.Endpoint, tools: dict[str, Any], name: str, *rows: Any) -> list[Row]:
    """The tool choice for each value of a field."""
    return [((endpoint,), {**tools, name: sent}, choice) for sent, choice in rows]


CHOICES: list[Row] = [
    *chosen(
        CHAT, {"tools": [IN_FUNCTION]}, "tool_choice",
        ("none", NONE), ("auto", AUTO), ("required", REQUIRED), (FLAT_CHOICE, NAMED),
        ({"type": "function", "function": {"name": "f"}}, NAMED),
    ),
    *chosen(
        CHAT, {"tools": [IN_FUNCTION]}, "function_call", ("none", NONE), ({"name": "f"}, NAMED),
    ),
    *chosen(
        CHAT, TWO, "function_call", (None, AUTO), ("auto", AUTO), ("none", NONE),
        ({"name": "g"}, req.ToolChoice(req.ToolMode.NAMED, "g")),
    ),
    *chosen(
        RESPONSES, {"tools": [FLAT]}, "tool_choice", (FLAT_CHOICE, NAMED), (ONLY_HOSTED, NONE),
    ),
    *chosen(
        MESSAGES, {"tools": [OF_MESSAGES]}, "tool_choice",
        (None, AUTO), ({"type": "auto"}, AUTO), ({"type": "any"}, REQUIRED),
        ({"type": "none"}, NONE), ({"type": "tool", "name": "f"}, NAMED),
    ),
]  # fmt: skip
UNSET = dict.fromkeys(("priority", "stream_interval", "request_id", "cache_salt"))
ALL_SET = {"priority": 3, "stream_interval": 8, "request_id": "job-7.a", "cache_salt": "secret"}
REPETITIONS: list[Row] = [
    (ANY, {"repetition_detection": members}, repetition)
    for members, repetition in (
        ({"max_pattern_size": 20, "min_pattern_size": 2, "min_count": 4}, req.Repetition(20, 2, 4)),
        ({"max_pattern_size": 5, "min_count": 2}, req.Repetition(5, 1, 2)),
        ({"min_count": 9}, None),
        ({}, None),
    )
]
PROGRESS = {"include_usage": True, "continuous_usage_stats": True}
ONE = {"type": "auto", "disable_parallel_tool_use": True}
# By what they set in the request.
SET: dict[str, list[Row]] = {
    "prompt": PROMPTS,
    "prompt.rendering": RENDERINGS,
    "prompt.rendering.effort": EFFORTS,
    "prompt.template_kwargs": VARIABLES,
    "prompt.token_ids": IDS,
    "prompt.messages": [((CHAT,), {"messages": [1, 300, 2]}, ())],
    "prompt.drops_oldest": [
        ((RESPONSES,), {"truncation": "auto"}, True),
        ((RESPONSES,), {"truncation": "disabled"}, False),
        ((RESPONSES,), {}, False),
    ],
    "prompt.parallel_tool_calls": [
        ((CHAT,), {}, True),
        ((CHAT,), {"parallel_tool_calls": False}, False),
        ((CHAT,), TWO, False),
        ((MESSAGES,), {"tools": [OF_MESSAGES], "tool_choice": ONE}, False),
        ((MESSAGES,), {"tools": [OF_MESSAGES], "tool_choice": {"type": "auto"}}, True),
    ],
    "prompt.tools": TOOLS,
    "prompt.tool_choice": CHOICES,
    "encoding": ENCODINGS,
    "sampling": SAMPLINGS,
    "grammar": GRAMMARS,
    "logprobs.num_top": LOGPROBS,
    "num_choices": [
        ((RESPONSES,), {"n": 3}, 3),
        ((TEXTS,), {"prompt": ["a", "b", "c"], "n": 2}, 6),
    ],
    "wants_progress": [
        ((CHAT,), {"stream": True, "stream_options": PROGRESS}, True),
        ((CHAT,), {"stream": True, "stream_options": {**PROGRESS, "include_usage": False}}, False),
    ],
    "handling": [
        (ANY, {}, req.Handling()),
        (ANY, UNSET, req.Handling()),
        (ANY, ALL_SET, req.Handling(3, 8, "job-7.a", cache_salt="secret")),
    ],
    # FastDeploy's name works too.
    "handling.stream_interval": [
        (ANY, {"max_streaming_response_tokens": 4}, 4),
        (ANY, {"max_streaming_response_tokens": 4, "stream_interval": 2}, 2),
    ],
    "hides_reasoning": HIDES,
    "shows_special_tokens": [
        (ANY, {"skip_special_tokens": False}, True),
        (ANY, {"skip_special_tokens": True}, False),
    ],
    "stopping.max_tokens stopping.max_tokens_param stopping.is_unlimited": LIMITS,
    "stopping.stop": STOPS,
    "stopping.stop_token_ids stopping.ignore_eos stopping.min_tokens": [
        (OPENAI, ENDS, ((3, 5), True, 4))
    ],
    "stopping.max_tokens stopping.stop": [(OPENAI, ENDS, (9, ("x",)))],
    "stopping.min_tokens": [((CHAT,), {"max_tokens": -1, "min_tokens": 5}, 5)],
    "stopping.max_reasoning_tokens": BUDGETS,
    "stopping.repetition": [*REPETITIONS, (ANY, {}, None)],
}


@table("names, row", [(names, row) for names, rows in SET.items() for row in rows])
def test_a_field_sets_a_part_of_the_request(names: str, row: Row) -> None:
    endpoints, fields, value = row
    for endpoint in endpoints:
        assert attrgetter(*names.split())(request(endpoint, **fields)) == value, endpoint


STREAMED, SHOWN = {"stop": "x", "stream": True}, "include_stop_str_in_output"
BY_DIALECT: list[tuple[str, req.Endpoint, Dialect, dict[str, Any], Any]] = [
    ("stopping.max_tokens stopping.default_max_tokens", TEXTS, V1, {}, (None, 16)),
    ("stopping.max_tokens stopping.default_max_tokens", TEXTS, V3, {}, (None, None)),
    ("stopping.max_tokens", TEXTS, V3, {"max_tokens": 3}, 3),
    ("stopping.stop", CHAT, V3, {"stop": ["x"] * 16}, ("x",) * 16),
    ("stopping.stop", MESSAGES, V3, {"stop_sequences": list("abcdefg")}, tuple("abcdefg")),
    ("stopping.include_stop_text", CHAT, V1, STREAMED, False),
    ("stopping.include_stop_text", CHAT, V3, STREAMED, True),
    ("stopping.include_stop_text", CHAT, V3, {"stop": "x"}, False),
    ("stopping.include_stop_text", CHAT, V1, {**STREAMED, SHOWN: True}, True),
    ("stopping.include_stop_text", CHAT, V3, {**STREAMED, SHOWN: False}, False),
    # Stop sequences of Messages are never part of the answer.
    ("stopping.include_stop_text", MESSAGES, V3, {"stop_sequences": ["a"], "stream": True}, False),
    # Under /v3 a number may be a text.
    ("stopping.max_tokens", CHAT, V3, {"max_tokens": "8"}, 8),
    ("sampling", CHAT, V3, {"temperature": "0.5", "top_k": "40.0"}, req.Sampling(0.5, top_k=40)),
    ("n", CHAT, V3, {"n": "1"}, 1),
]


@table("names, endpoint, dialect, fields, value", BY_DIALECT)
def test_what_a_field_sets_may_depend_on_the_url_tree(
    names: str, endpoint: req.Endpoint, dialect: Dialect, fields: dict[str, Any], value: Any
) -> None:
    assert attrgetter(*names.split())(request(endpoint, dialect, **fields)) == value


@table(
    "endpoint, fields, end_user",
    [
        *((each, {"user": "a"}, "a") for each in (CHAT, TEXTS, RESPONSES)),
        (CHAT, {"user": {"id": "a"}, "safety_identifier": "b"}, "b"),
        (MESSAGES, {"metadata": {"user_id": "a"}}, "a"),
        (CHAT, {"metadata": {"user_id": "a"}}, ""),
    ],
)
def test_the_end_user_is_that_of_the_protocol(
    endpoint: req.Endpoint, fields: dict[str, Any], end_user: str
) -> None:
    assert request(endpoint, **fields).handling.end_user == end_user


LABELS: dict[str, Any] = {
    "store": True,
    "metadata": {"k": "v"},
    "prompt_cache_options": {"mode": "implicit", "ttl": "12h"},
    "prediction": {"type": "content", "content": "x"},
    "modalities": ["text"],
    **dict.fromkeys(("user", "safety_identifier", "prompt_cache_key", "session_id"), "s"),
    "service_tier": "auto",
    "prompt_cache_retention": "24h",
    "verbosity": "low",
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
NOTHING: list[tuple[tuple[req.Endpoint, ...], dict[str, Any]]] = [
    ((CHAT,), dict.fromkeys(NULLABLE.split())),
    ((CHAT,), EMPTY),
    ((CHAT,), LABELS),
    ((CHAT,), DEFAULTS),
    ((CHAT,), {"response_format": {"type": "text"}}),
    ((CHAT,), {"tool_choice": "auto"}),  # among no tools
    ((TEXTS,), {"prompt_token_ids": []}),
    ((TEXTS,), {"echo": False, "suffix": None, "best_of": 1, "logprobs": None, "user": "u"}),
    ((RESPONSES,), {"n": 1}),
    *((ANY, {"spaces_between_special_tokens": spaced}) for spaced in (True, False)),
]


@table("endpoints, fields", NOTHING)
def test_what_asks_for_nothing_is_the_same_as_absent(
    endpoints: tuple[req.Endpoint, ...], fields: dict[str, Any]
) -> None:
    for endpoint in endpoints:
        assert request(endpoint, **fields) == request(endpoint), endpoint


def test_a_salt_is_not_shown() -> None:
    for endpoint in GENERATION_ENDPOINTS:
        assert "secret" not in repr(request(endpoint, **ALL_SET).handling)


def test_an_object_of_a_user_is_its_id() -> None:
    user = {"id": "alice", "name": "Alice"}

    assert request(CHAT, user=user) == request(CHAT, user="alice")
