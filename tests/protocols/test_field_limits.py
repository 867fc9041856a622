"""Each field of a request has a limit, which is checked before any work is done with the field."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core import field_limits as limits
from vinery_serving.core.field_limits import FIELD_LIMITS, FieldLimit
from vinery_serving.core.request import Endpoint
from vinery_serving.protocols.openapi import document

from .exchanges import exchange
from .test_refusals import refused

CHAT, TEXTS, RESPONSES = Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES
HI = [{"role": "user", "content": "Hi"}]


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


def schema(num_properties: int) -> dict[str, Any]:
    properties = {f"p{at}": {"type": "string"} for at in range(num_properties)}
    return {"type": "object", "properties": properties}


def by_name(name: str, value: Callable[[int], Any]) -> Callable[[int], dict[str, Any]]:
    """A field with a value that depends on the size."""
    return lambda n: {name: value(n)}


def a_text(n: int) -> str:
    return "a" * n


def of_user(content: Any) -> dict[str, Any]:
    """The fields of a chat in which the user sends this."""
    return {"messages": [{"role": "user", "content": content}]}


def a_picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": url}


def a_file(name: str) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": "YQ==", "filename": name}}


def namespaces(n: int) -> list[Any]:
    """Namespaces with `n` functions in all."""
    return [
        {
            "type": "namespace",
            "name": f"n{at}",
            "tools": [{"type": "function", "name": "f"}] * min(128, n - 128 * at),
        }
        for at in range(-(-n // 128))
    ]


def described_tools(n: int) -> list[Any]:
    """20 tools with `n` characters in all: each name has one character."""
    return [a_tool(description=a_text(n // 20 - (n % 20 == 0)))] * 20


def allowing(n: int) -> dict[str, Any]:
    tools = [{"type": "function", "name": "f"}] * n
    choice = {"type": "allowed_tools", "mode": "auto", "tools": tools}
    return {"tools": [a_tool()], "tool_choice": choice}


def an_enum(n: int) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": {"enum": list(range(n))}}}


IMAGE_URL = "messages[0].content[0].image_url"
FILENAME = "messages[0].content[0].file.filename"
ARGUMENTS = "messages[1].tool_calls[0].function.arguments"
DEFINITION = "tools[0].custom.format.grammar.definition"
DESCRIPTION, PARAMETERS = "tools[0].function.description", "tools[0].function.parameters"
ENUM = "response_format.json_schema.schema"
INCLUDED = "reasoning.encrypted_content"
KWARGS, OUTPUTS, SCORED = "chat_template_kwargs", "structured_outputs", "logprob_token_ids"
ANSWERED = {"type": "function_call_output", "call_id": "", "output": ""}
# The limits of texts by field, then the limits of lists with an entry.
TEXTS_OF_CHATS = {
    "chat_template": limits.TEMPLATE, "guided_regex": limits.PATTERN,
    "guided_grammar": limits.GRAMMAR, "stop": limits.STOP_CHARS, "user": limits.IDENTIFIER,
    "model": limits.MODEL_NAME, "safety_identifier": limits.SAFETY_IDENTIFIER,
    "cache_salt": limits.CACHE_SALT, "request_id": limits.REQUEST_ID,
}  # fmt: skip
LISTS_OF_CHATS: list[tuple[str, FieldLimit, Any]] = [
    ("messages", limits.MESSAGES, HI[0]),
    ("prompt_token_ids", limits.PROMPT_IDS, 1),
    ("documents", limits.DOCUMENTS, {"a": "b"}),
    ("tools", limits.TOOLS, a_tool()),
    ("functions", limits.TOOLS, {"name": "f"}),
    ("guided_choice", limits.CHOICE, "a"),
    ("stop", limits.STOPS_V1, "a"),
    ("stop_token_ids", limits.STOP_IDS, 1),
    ("bad_words", limits.BAD_WORDS, "a"),
    ("bad_words_token_ids", limits.BAD_WORD_SEQUENCES, 1),
    ("allowed_token_ids", limits.ALLOWED_IDS, 1),
]
# The limit, the field's path, and the fields with exactly `n` of what is counted.
CHAT_ROWS: list[tuple[FieldLimit, str, Any]] = [
    *((limit, name, by_name(name, a_text)) for name, limit in TEXTS_OF_CHATS.items()),
    *(
        (limit, name, by_name(name, lambda n, entry=entry: [entry] * n))  # type: ignore[misc]
        for name, limit, entry in LISTS_OF_CHATS
    ),
    (limits.PARTS, "messages[0].content", lambda n: of_user([{"type": "text", "text": ""}] * n)),
    (limits.TOOL_CALLS, "messages[1].tool_calls", lambda n: {"messages": calling(*[a_call()] * n)}),
    (limits.ARGUMENTS, ARGUMENTS, lambda n: {"messages": calling(a_call(f'"{a_text(n - 2)}"'))}),
    (limits.IDENTIFIER, "messages[0].name", lambda n: {"messages": [{**HI[0], "name": a_text(n)}]}),
    (limits.TEXT, "messages[0].content", lambda n: of_user(a_text(n))),
    (limits.URL, IMAGE_URL, lambda n: of_user([a_picture(f"https://{a_text(n - 8)}")])),
    (limits.FILENAME, FILENAME, lambda n: of_user([a_file(a_text(n))])),
    (limits.ARGS_MEMBERS, KWARGS, by_name(KWARGS, lambda n: {f"k{at}": 1 for at in range(n)})),
    (limits.ARGS_VALUES, KWARGS, by_name(KWARGS, lambda n: {"k": [1] * (n - 2)})),
    (limits.ARGS_CHARS, "vllm_xargs", by_name("vllm_xargs", lambda n: {"k": a_text(n - 1)})),
    (limits.DESCRIPTION, DESCRIPTION, lambda n: {"tools": [a_tool(description=a_text(n))]}),
    (limits.TOOLS_CHARS, "tools", by_name("tools", described_tools)),
    (limits.ALLOWED_TOOLS, "tool_choice", allowing),
    (limits.SCHEMA_PROPERTIES, "guided_json", by_name("guided_json", schema)),
    (limits.SCHEMA_PROPERTIES, PARAMETERS, lambda n: {"tools": [a_tool(parameters=schema(n))]}),
    (limits.SCHEMA_ENUM_VALUES, ENUM, by_name("response_format", an_enum)),
    (
        limits.SCHEMA_VALUES,
        f"{OUTPUTS}.json",
        lambda n: {OUTPUTS: {"json": json.dumps({"required": [1] * (n - 2)})}},
    ),
    (limits.SCHEMA_CHARS, "structural_tag", lambda n: {"structural_tag": {"type": a_text(n - 4)}}),
    (limits.PATTERN, f"{OUTPUTS}.regex", lambda n: {OUTPUTS: {"regex": a_text(n)}}),
    (limits.LARK, DEFINITION, lambda n: {"tools": [a_lark_tool(a_text(n))]}),
    (limits.CHOICE_CHARS, "guided_choice[0]", lambda n: {"guided_choice": [a_text(n)]}),
    (limits.STOP_CHARS, "stop[0]", lambda n: {"stop": [a_text(n)]}),
    (limits.LOGIT_BIAS, "logit_bias", lambda n: {"logit_bias": {str(at): 1 for at in range(n)}}),
    (limits.BAD_WORD_CHARS, "bad_words[0]", lambda n: {"bad_words": [a_text(n)]}),
    (limits.BAD_WORD_IDS, "bad_words_token_ids[0]", lambda n: {"bad_words_token_ids": [[1] * n]}),
    (limits.LOGPROB_IDS, SCORED, lambda n: {"logprobs": True, SCORED: [1] * n}),
    (limits.METADATA, "metadata", lambda n: {"metadata": {str(at): "" for at in range(n)}}),
    (limits.METADATA_VALUE, "metadata.k", lambda n: {"metadata": {"k": "v" * n}}),
    (limits.CHOICES, "n", lambda n: {"n": n}),
    (
        limits.PATTERN_TOKENS,
        "repetition_detection.max_pattern_size",
        lambda n: {"repetition_detection": {"max_pattern_size": n, "min_count": 2}},
    ),
]
TEXT_ROWS: list[tuple[FieldLimit, str, Any]] = [
    (limits.PROMPTS, "prompt", lambda n: {"prompt": ["a"] * n}),
    (limits.PROMPTS, "prompt", lambda n: {"prompt": [[1]] * n}),
    (limits.PROMPT_IDS, "prompt", lambda n: {"prompt": [1] * n}),
    (limits.TEXT, "prompt", lambda n: {"prompt": [a_text(n - 9), a_text(9)]}),
    (limits.TEXT, "suffix", lambda n: {"suffix": a_text(n), "prompt": [1]}),
]
RESPONSE_ROWS: list[tuple[FieldLimit, str, Any]] = [
    (limits.FUNCTIONS, "tools", by_name("tools", namespaces)),
    (limits.INPUT_ITEMS, "input", lambda n: {"input": HI * n}),
    (limits.TEXT, "input", by_name("input", a_text)),
    (limits.TEXT, "instructions", lambda n: {"instructions": a_text(n), "input": [ANSWERED]}),
    (limits.INCLUDE, "include", lambda n: {"include": [INCLUDED] * n}),
]
ROWS: list[tuple[Endpoint, FieldLimit, str, Any]] = [
    *((CHAT, *row) for row in CHAT_ROWS),
    *((TEXTS, *row) for row in TEXT_ROWS),
    *((RESPONSES, *row) for row in RESPONSE_ROWS),
]


@table("endpoint, limit, param, fields", ROWS)
def test_a_field_may_have_as_much_as_its_limit_and_no_more(
    endpoint: Endpoint, limit: FieldLimit, param: str, fields: Any
) -> None:
    exchange(endpoint, **fields(limit.value))

    error = refused(endpoint, **fields(limit.value + 1))

    assert (error.status, error.code, error.param) == (400, "invalid_value", param)
    assert f"`{param}` must " in error.message
    assert str(limit.value) in error.message


def test_unknown_fields_count_with_the_body_and_signs_inside_of_texts_do_not() -> None:
    error = refused(CHAT, unheard_of=[[]] * (limits.JSON_CONTAINERS.value + 1))

    assert "VINERY_MAX_JSON_CONTAINERS" in error.message

    code = '{["\\' * (limits.JSON_CONTAINERS.value + 1)

    exchange(CHAT, messages=[{"role": "user", "content": code}])


@table("keyword", ["minimum", "maximum", "multipleOf", "minItems", "maxItems"])
def test_a_schema_has_no_number_that_does_not_fit_into_a_float(keyword: str) -> None:
    huge = {"type": "number", keyword: 10**309}
    for param, fields in (
        ("guided_json", {"guided_json": huge}),
        ("guided_json", {"guided_json": json.dumps(huge)}),
        ("tools[0].function.parameters", {"tools": [a_tool(parameters=huge, strict=True)]}),
    ):
        error = refused(CHAT, **fields)

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
    error = refused(CHAT, **fields)

    assert len(error.message) <= 4001
    assert len(error.param or "") <= 501


def test_integers_of_more_than_64_bits_are_text_and_reach_no_engine() -> None:
    error = refused(CHAT, logits_processors_args={"a": [{"b": 2**64}]})

    assert error.param == "logits_processors_args"
    assert "64 bits" in error.message

    exchange(CHAT, messages=calling(a_call({"wei": 10**30})), metadata={"wei": 10**30})


@pytest.fixture
def raised() -> Iterator[None]:
    limits.configure({"tools": 130})
    yield
    limits.configure({})


@pytest.mark.usefixtures("raised")
def test_a_setting_changes_a_limit_and_its_documents() -> None:
    exchange(CHAT, tools=[a_tool()] * 130)

    schemas = document(version="1", max_body_mb=1)["components"]["schemas"]
    tools = schemas["ChatBody"]["properties"]["tools"]["anyOf"][0]
    assert tools["maxItems"] == 130
    assert "130" in refused(CHAT, tools=[a_tool()] * 131).message
    assert limits.configured()["tools"] == 130


def test_every_limit_has_a_name_a_setting_and_a_test() -> None:
    names = [limit.name for limit in FIELD_LIMITS]
    # Other tests send more than these.
    elsewhere = """
    json_levels json_containers json_members json_values stops_v3 schema_name_chars
    request_answers media media_bytes media_pixels media_pages
    """
    tested = {"metadata_key_chars", *elsewhere.split(), *(row[1].name for row in ROWS)}

    assert len(set(names)) == len(names)
    assert set(names) == tested
    with pytest.raises(KeyError):
        limits.configure({"no_such": 1})
