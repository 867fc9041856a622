"""Each field of a request has a limit, which is checked before any work is done with the field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core import field_limits
from vinery_serving.core.dialects import V1, V3, Dialect
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.field_limits import FIELD_LIMITS, FieldLimit
from vinery_serving.core.request import Endpoint
from vinery_serving.protocols import parse
from vinery_serving.protocols.openapi.document import document
from vinery_serving.protocols.tokens import parse_detokenize, parse_tokenize

CHAT, TEXTS, RESPONSES = Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES
HI = [{"role": "user", "content": "Hi"}]
LEAST: dict[Endpoint, dict[str, Any]] = {
    CHAT: {"messages": HI},
    TEXTS: {"prompt": "Hi"},
    RESPONSES: {"input": "Hi"},
}


def sent(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> None:
    body = json.dumps({**LEAST[endpoint], **fields}).encode()
    parse(endpoint, body, dialect)


def refusal(endpoint: Endpoint, dialect: Dialect = V1, /, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        sent(endpoint, dialect, **fields)
    return caught.value


def a_tool(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **fields}}


def a_lark_tool(definition: str) -> dict[str, Any]:
    grammar = {"syntax": "lark", "definition": definition}
    form = {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": {"name": "f", "format": form}}


def a_call(arguments: Any = "{}") -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


def calling(*calls: Any) -> list[Any]:
    return [*HI, {"role": "assistant", "tool_calls": list(calls)}]


def showing(**part: Any) -> dict[str, Any]:
    return {"role": "user", "content": [part]}


def schema(num_properties: int) -> dict[str, Any]:
    properties = {f"p{at}": {"type": "string"} for at in range(num_properties)}
    return {"type": "object", "properties": properties}


# The endpoint, the limit, the field's path, and the field with exactly `size` of what is counted.
ROWS: list[tuple[Endpoint, FieldLimit, str, Any]] = [
    (CHAT, field_limits.MESSAGES, "messages", lambda n: {"messages": HI * n}),
    (
        CHAT,
        field_limits.PARTS,
        "messages[0].content",
        lambda n: {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * n}]},
    ),
    (
        CHAT,
        field_limits.TOOL_CALLS,
        "messages[1].tool_calls",
        lambda n: {"messages": calling(*[a_call()] * n)},
    ),
    (
        CHAT,
        field_limits.ARGUMENTS,
        "messages[1].tool_calls[0].function.arguments",
        lambda n: {"messages": calling(a_call('"' + "a" * (n - 2) + '"'))},
    ),
    (
        CHAT,
        field_limits.IDENTIFIER,
        "messages[0].name",
        lambda n: {"messages": [{"role": "user", "content": "Hi", "name": "a" * n}]},
    ),
    (
        CHAT,
        field_limits.TEXT,
        "messages[0].content",
        lambda n: {"messages": [{"role": "user", "content": "a" * n}]},
    ),
    (
        CHAT,
        field_limits.URL,
        "messages[0].content[0].image_url",
        lambda n: {"messages": [showing(type="image_url", image_url="https://" + "a" * (n - 8))]},
    ),
    (
        CHAT,
        field_limits.FILENAME,
        "messages[0].content[0].file.filename",
        lambda n: {
            "messages": [showing(type="file", file={"file_data": "YQ==", "filename": "a" * n})]
        },
    ),
    (CHAT, field_limits.PROMPT_IDS, "prompt_token_ids", lambda n: {"prompt_token_ids": [1] * n}),
    (CHAT, field_limits.TEMPLATE, "chat_template", lambda n: {"chat_template": "a" * n}),
    (CHAT, field_limits.DOCUMENTS, "documents", lambda n: {"documents": [{"a": "b"}] * n}),
    (
        CHAT,
        field_limits.ARGS_MEMBERS,
        "chat_template_kwargs",
        lambda n: {"chat_template_kwargs": {f"k{at}": 1 for at in range(n)}},
    ),
    (
        CHAT,
        field_limits.ARGS_VALUES,
        "chat_template_kwargs",
        lambda n: {"chat_template_kwargs": {"k": [1] * (n - 2)}},
    ),
    (
        CHAT,
        field_limits.ARGS_CHARS,
        "vllm_xargs",
        lambda n: {"vllm_xargs": {"k": "a" * (n - 1)}},
    ),
    (CHAT, field_limits.TOOLS, "tools", lambda n: {"tools": [a_tool()] * n}),
    (CHAT, field_limits.TOOLS, "functions", lambda n: {"functions": [{"name": "f"}] * n}),
    (
        CHAT,
        field_limits.DESCRIPTION,
        "tools[0].function.description",
        lambda n: {"tools": [a_tool(description="a" * n)]},
    ),
    (
        CHAT,
        field_limits.TOOLS_CHARS,
        "tools",
        # Each has a name of one character.
        lambda n: {"tools": [a_tool(description="a" * (n // 20 - (n % 20 == 0)))] * 20},
    ),
    (
        RESPONSES,
        field_limits.FUNCTIONS,
        "tools",
        lambda n: {
            "tools": [
                {
                    "type": "namespace",
                    "name": f"n{at}",
                    "tools": [{"type": "function", "name": "f"}] * min(128, n - 128 * at),
                }
                for at in range(-(-n // 128))
            ]
        },
    ),
    (
        CHAT,
        field_limits.ALLOWED_TOOLS,
        "tool_choice",
        lambda n: {
            "tools": [a_tool()],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}] * n,
            },
        },
    ),
    (
        CHAT,
        field_limits.SCHEMA_PROPERTIES,
        "guided_json",
        lambda n: {"guided_json": schema(n)},
    ),
    (
        CHAT,
        field_limits.SCHEMA_PROPERTIES,
        "tools[0].function.parameters",
        lambda n: {"tools": [a_tool(parameters=schema(n))]},
    ),
    (
        CHAT,
        field_limits.SCHEMA_ENUM_VALUES,
        "response_format.json_schema.schema",
        lambda n: {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {"enum": list(range(n))}},
            }
        },
    ),
    (
        CHAT,
        field_limits.SCHEMA_VALUES,
        "structured_outputs.json",
        lambda n: {"structured_outputs": {"json": json.dumps({"required": [1] * (n - 2)})}},
    ),
    (
        CHAT,
        field_limits.SCHEMA_CHARS,
        "structural_tag",
        lambda n: {"structural_tag": {"type": "a" * (n - 4)}},
    ),
    (CHAT, field_limits.PATTERN, "guided_regex", lambda n: {"guided_regex": "a" * n}),
    (
        CHAT,
        field_limits.PATTERN,
        "structured_outputs.regex",
        lambda n: {"structured_outputs": {"regex": "a" * n}},
    ),
    (
        CHAT,
        field_limits.LARK,
        "tools[0].custom.format.grammar.definition",
        lambda n: {"tools": [a_lark_tool("a" * n)]},
    ),
    (CHAT, field_limits.GRAMMAR, "guided_grammar", lambda n: {"guided_grammar": "a" * n}),
    (CHAT, field_limits.CHOICE, "guided_choice", lambda n: {"guided_choice": ["a"] * n}),
    (
        CHAT,
        field_limits.CHOICE_CHARS,
        "guided_choice[0]",
        lambda n: {"guided_choice": ["a" * n]},
    ),
    (CHAT, field_limits.STOPS_V1, "stop", lambda n: {"stop": ["a"] * n}),
    (CHAT, field_limits.STOP_CHARS, "stop", lambda n: {"stop": "a" * n}),
    (CHAT, field_limits.STOP_CHARS, "stop[0]", lambda n: {"stop": ["a" * n]}),
    (CHAT, field_limits.STOP_IDS, "stop_token_ids", lambda n: {"stop_token_ids": [1] * n}),
    (
        CHAT,
        field_limits.LOGIT_BIAS,
        "logit_bias",
        lambda n: {"logit_bias": {str(at): 1 for at in range(n)}},
    ),
    (CHAT, field_limits.BAD_WORDS, "bad_words", lambda n: {"bad_words": ["a"] * n}),
    (CHAT, field_limits.BAD_WORD_CHARS, "bad_words[0]", lambda n: {"bad_words": ["a" * n]}),
    (
        CHAT,
        field_limits.BAD_WORD_SEQUENCES,
        "bad_words_token_ids",
        lambda n: {"bad_words_token_ids": [1] * n},
    ),
    (
        CHAT,
        field_limits.BAD_WORD_IDS,
        "bad_words_token_ids[0]",
        lambda n: {"bad_words_token_ids": [[1] * n]},
    ),
    (CHAT, field_limits.ALLOWED_IDS, "allowed_token_ids", lambda n: {"allowed_token_ids": [1] * n}),
    (
        CHAT,
        field_limits.LOGPROB_IDS,
        "logprob_token_ids",
        lambda n: {"logprobs": True, "logprob_token_ids": [1] * n},
    ),
    (
        CHAT,
        field_limits.METADATA,
        "metadata",
        lambda n: {"metadata": {str(at): "" for at in range(n)}},
    ),
    (CHAT, field_limits.METADATA_VALUE, "metadata.k", lambda n: {"metadata": {"k": "v" * n}}),
    (CHAT, field_limits.IDENTIFIER, "user", lambda n: {"user": "a" * n}),
    (CHAT, field_limits.MODEL_NAME, "model", lambda n: {"model": "a" * n}),
    (
        CHAT,
        field_limits.SAFETY_IDENTIFIER,
        "safety_identifier",
        lambda n: {"safety_identifier": "a" * n},
    ),
    (CHAT, field_limits.CACHE_SALT, "cache_salt", lambda n: {"cache_salt": "a" * n}),
    (CHAT, field_limits.REQUEST_ID, "request_id", lambda n: {"request_id": "a" * n}),
    (CHAT, field_limits.CHOICES, "n", lambda n: {"n": n}),
    (
        CHAT,
        field_limits.PATTERN_TOKENS,
        "repetition_detection.max_pattern_size",
        lambda n: {"repetition_detection": {"max_pattern_size": n, "min_count": 2}},
    ),
    (TEXTS, field_limits.PROMPTS, "prompt", lambda n: {"prompt": ["a"] * n}),
    (TEXTS, field_limits.PROMPTS, "prompt", lambda n: {"prompt": [[1]] * n}),
    (TEXTS, field_limits.PROMPT_IDS, "prompt", lambda n: {"prompt": [1] * n}),
    (TEXTS, field_limits.TEXT, "prompt", lambda n: {"prompt": ["a" * (n - 9), "a" * 9]}),
    (TEXTS, field_limits.TEXT, "suffix", lambda n: {"suffix": "a" * n, "prompt": [1]}),
    (RESPONSES, field_limits.INPUT_ITEMS, "input", lambda n: {"input": HI * n}),
    (RESPONSES, field_limits.TEXT, "input", lambda n: {"input": "a" * n}),
    (
        RESPONSES,
        field_limits.TEXT,
        "instructions",
        lambda n: {
            "instructions": "a" * n,
            "input": [{"type": "function_call_output", "call_id": "", "output": ""}],
        },
    ),
    (
        RESPONSES,
        field_limits.INCLUDE,
        "include",
        lambda n: {"include": ["reasoning.encrypted_content"] * n},
    ),
]


@table("endpoint, limit, param, fields", ROWS)
def test_a_field_may_have_as_much_as_its_limit_and_no_more(
    endpoint: Endpoint, limit: FieldLimit, param: str, fields: Any
) -> None:
    sent(endpoint, **fields(limit.value))

    error = refusal(endpoint, **fields(limit.value + 1))

    assert (error.status, error.code, error.param) == (400, "invalid_value", param)
    assert f"`{param}` must " in error.message
    assert str(limit.value) in error.message


def test_an_error_names_the_limit_and_what_was_sent_and_the_setting() -> None:
    error = refusal(CHAT, tools=[a_tool()] * 130)

    assert error.message == (
        "`tools` must have at most 128 entries, but has 130. Send fewer, or ask the administrator "
        "to raise VINERY_MAX_TOOLS."
    )


@table(
    "endpoint, fields",
    [
        (CHAT, {"messages": [{}] * 2049}),
        (CHAT, {"messages": [{"role": "user", "content": [{}] * 2049}]}),
        (CHAT, {"messages": calling(*[{}] * 129)}),
        (CHAT, {"tools": [{}] * 129}),
        (CHAT, {"logit_bias": {f"cat{at}": "" for at in range(301)}}),
        (CHAT, {"bad_words": [""] * 301}),
        (CHAT, {"bad_words_token_ids": [""] * 1001}),
        (CHAT, {"stop_token_ids": [""] * 1001}),
        (CHAT, {"chat_template_kwargs": {f"m{at}": at for at in range(129)}}),
        (CHAT, {"metadata": {"k" * at: at for at in range(90)}}),
        (CHAT, {"guided_choice": [1] * 5001}),
        (CHAT, {"documents": [""] * 1025}),
        (TEXTS, {"prompt": [[""]] * 2049}),
        (TEXTS, {"prompt": [-1] * 1_000_001}),
        (RESPONSES, {"input": [{}] * 8193}),
    ],
)
def test_the_limit_is_checked_before_the_entries(endpoint: Endpoint, fields: Any) -> None:
    assert "must have at most" in refusal(endpoint, **fields).message


def test_v3_takes_more_stop_strings_than_v1() -> None:
    sent(CHAT, V3, stop=["a"] * field_limits.STOPS_V3.value)

    assert refusal(CHAT, V3, stop=["a"] * 17).param == "stop"


def test_unknown_fields_count_with_the_body() -> None:
    error = refusal(CHAT, unheard_of=[[]] * (field_limits.JSON_CONTAINERS.value + 1))

    assert "VINERY_MAX_JSON_CONTAINERS" in error.message


def test_signs_inside_of_texts_are_no_objects() -> None:
    code = '{["\\' * (field_limits.JSON_CONTAINERS.value + 1)

    sent(CHAT, messages=[{"role": "user", "content": code}])


def test_tokenizing_has_the_same_limits() -> None:
    long = "a" * (field_limits.TEXT.value + 1)
    for parse_tokens, fields in (
        (parse_tokenize, {"prompt": long}),
        (parse_tokenize, {"text": ["a"] * 2049}),
        (parse_tokenize, {"messages": HI * 2049}),
        (parse_tokenize, {"messages": HI, "tools": [a_tool()] * 129}),
        (parse_detokenize, {"tokens": [1] * 1_000_001}),
    ):
        with pytest.raises(InvalidRequest, match="must have at most"):
            parse_tokens(json.dumps(fields).encode())


@table("keyword", ["minimum", "maximum", "multipleOf", "minItems", "maxItems"])
def test_a_schema_has_no_number_that_does_not_fit_into_a_float(keyword: str) -> None:
    huge = {"type": "number", keyword: 10**309}
    for param, fields in (
        ("guided_json", {"guided_json": huge}),
        ("guided_json", {"guided_json": json.dumps(huge)}),
        ("tools[0].function.parameters", {"tools": [a_tool(parameters=huge, strict=True)]}),
    ):
        error = refusal(CHAT, **fields)

        assert (error.status, error.param) == (400, param)
        assert "more than 308 digits" in error.message


@table(
    "fields",
    [
        {"metadata": {"k" * 3_000_000: "v"}},
        {"tool_choice": {"type": "function", "name": "f" * 3_000_000}, "tools": [a_tool()]},
        {"messages": [{"role": "r" * 3_000_000, "content": "Hi"}]},
        {"service_tier": "s" * 3_000_000},
        {"reasoning_effort": "e" * 3_000_000},
        {"chat_template_kwargs": {"k" * 3_000_000: "v"}},
        {"logit_bias": {"k" * 3_000_000: 1}},
        {"response_format": {"type": "t" * 3_000_000}},
        {"tools": [{"type": "t" * 3_000_000}]},
        {"tools": [a_tool(), a_tool(name="f" * 3_000_000)]},
        {"structured_outputs": {"s" * 3_000_000: 1}},
    ],
)
def test_an_error_repeats_little_of_what_was_sent(fields: dict[str, Any]) -> None:
    error = refusal(CHAT, **fields)

    assert len(error.message) <= 4001
    assert len(error.param or "") <= 501


def test_integers_of_more_than_64_bits_are_text_in_arguments_and_metadata() -> None:
    sent(CHAT, messages=calling(a_call({"wei": 10**30})), metadata={"wei": 10**30})


def test_the_engine_gets_no_integer_of_more_than_64_bits() -> None:
    error = refusal(CHAT, logits_processors_args={"a": [{"b": 2**64}]})

    assert error.param == "logits_processors_args"
    assert "64 bits" in error.message


@pytest.fixture
def raised() -> Iterator[None]:
    field_limits.configure({"tools": 130})
    yield
    field_limits.configure({})


@pytest.mark.usefixtures("raised")
def test_a_setting_changes_a_limit_and_its_documents() -> None:
    sent(CHAT, tools=[a_tool()] * 130)

    schemas = document(version="1", max_body_mb=1)["components"]["schemas"]
    tools = schemas["ChatBody"]["properties"]["tools"]["anyOf"][0]
    assert (tools["maxItems"], tools["x-setting"]) == (130, "VINERY_MAX_TOOLS")
    assert "130" in refusal(CHAT, tools=[a_tool()] * 131).message
    assert field_limits.configured()["tools"] == 130


def test_every_limit_has_a_name_a_setting_and_a_test() -> None:
    names = [limit.name for limit in FIELD_LIMITS]
    # Other tests send more than these.
    tested = {
        "schema_steps",
        "request_steps",
        "json_levels",
        "json_containers",
        "json_members",
        "json_values",
        "schema_name_chars",
        "request_answers",
        "stops_v3",
        "media",
        "media_bytes",
        "media_pixels",
        "media_pages",
    }
    tested |= {"metadata_key_chars"} | {row[1].name for row in ROWS}

    assert len(set(names)) == len(names)
    assert set(names) == tested
    with pytest.raises(KeyError):
        field_limits.configure({"no_such": 1})
