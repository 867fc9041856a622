"""Every name of structured output becomes one grammar, on every endpoint."""

import json
from typing import Any

from tests.tables import table
from vinery_serving.core.request import Endpoint, Grammar, GrammarKind
from vinery_serving.core.tasks import GENERATION_ENDPOINTS

from .exchanges import exchange

SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}
SOURCE = '{"type":"object","properties":{"b":{},"a":{}}}'
TAG = {"type": "structural_tag", "format": {"type": "any_text"}}
BARE = {"type": "const_string", "value": "Hello World!"}
OLD_TAG = {"type": "structural_tag", "structures": [], "triggers": ["<f>"]}

every_endpoint = table("endpoint", GENERATION_ENDPOINTS)


def grammar_of(endpoint: Endpoint, **fields: Any) -> Grammar | None:
    return exchange(endpoint, **fields).request.grammar


def json_grammar(param: str, **marks: bool) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, SOURCE, param, **marks)


def tag_grammar(tag: Any, param: str) -> Grammar:
    source = json.dumps(tag, separators=(",", ":"))
    return Grammar(GrammarKind.STRUCTURAL_TAG, source, param, is_strict=True)


VLLM = "structured_outputs"
# Of FastDeploy, and of vLLM.
NAMES: list[tuple[dict[str, Any], Grammar]] = [
    ({"guided_json": SCHEMA}, json_grammar("guided_json", is_strict=True)),
    ({"guided_json": SOURCE}, json_grammar("guided_json", is_strict=True)),
    ({"guided_regex": "a|b"}, Grammar(GrammarKind.REGEX, "a|b", "guided_regex")),
    ({"guided_choice": ["é", "b"]}, Grammar(GrammarKind.CHOICE, '["é","b"]', "guided_choice")),
    ({"guided_grammar": "r ::= x"}, Grammar(GrammarKind.EBNF, "r ::= x", "guided_grammar")),
    ({"structural_tag": TAG}, tag_grammar(TAG, "structural_tag")),
    ({"structural_tag": json.dumps(TAG)}, tag_grammar(TAG, "structural_tag")),
    ({VLLM: {"json": SOURCE}}, json_grammar(f"{VLLM}.json", is_strict=True)),
    (
        {VLLM: {"json": SCHEMA, "disable_any_whitespace": True}},
        json_grammar(f"{VLLM}.json", is_strict=True, is_compact=True),
    ),
    (
        {VLLM: {"json_object": True, "disable_fallback": True}},
        Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}', f"{VLLM}.json_object", True),
    ),
    ({VLLM: {"regex": "a"}}, Grammar(GrammarKind.REGEX, "a", f"{VLLM}.regex")),
    ({VLLM: {"choice": ["a"]}}, Grammar(GrammarKind.CHOICE, '["a"]', f"{VLLM}.choice")),
    ({VLLM: {"grammar": "r ::= x"}}, Grammar(GrammarKind.EBNF, "r ::= x", f"{VLLM}.grammar")),
    ({VLLM: {"structural_tag": json.dumps(TAG)}}, tag_grammar(TAG, f"{VLLM}.structural_tag")),
]


@every_endpoint
@table("fields, grammar", NAMES)
def test_the_names_of_other_servers_are_read(
    endpoint: Endpoint, fields: dict[str, Any], grammar: Grammar
) -> None:
    assert grammar_of(endpoint, **fields) == grammar


@every_endpoint
@table(
    "fields",
    [
        {"structured_outputs": {}},
        {"structured_outputs": {"json_object": False}},
        {"guided_choice": []},
        {"guided_json": None, "structural_tag": None},
        {"guided_json_object": False},
    ],
)
def test_plain_formats_are_no_constraint(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    assert grammar_of(endpoint, **fields) is None


@table("tag", [TAG, BARE, OLD_TAG])
def test_a_response_format_or_a_text_format_may_be_a_tag(tag: Any) -> None:
    for endpoint in (Endpoint.CHAT, Endpoint.COMPLETIONS):
        assert grammar_of(endpoint, response_format=tag) == tag_grammar(tag, "response_format")
    grammar = grammar_of(Endpoint.RESPONSES, text={"format": tag})
    assert grammar == tag_grammar(tag, "text.format")


@table("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
@table("strict, is_strict", [(True, True), (False, False), (None, False)])
def test_only_a_strict_schema_is_enforced_completely(
    endpoint: Endpoint, strict: bool | None, is_strict: bool
) -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": strict}}

    grammar = grammar_of(endpoint, response_format=wanted)

    assert grammar == json_grammar("response_format.json_schema.schema", is_strict=is_strict)


@table("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES])
def test_the_schema_of_a_json_object_is_enforced(endpoint):
    """As in llama.cpp's API."""
    wanted = {"type": "json_object", "schema": {"type": "object", "maxProperties": 0}}
    is_response = endpoint is Endpoint.RESPONSES

    grammar = grammar_of(
        endpoint, **({"text": {"format": wanted}} if is_response else {"response_format": wanted})
    )

    path = "text.format.schema" if is_response else "response_format.schema"
    source = '{"type":"object","maxProperties":0}'
    assert grammar == Grammar(GrammarKind.JSON_SCHEMA, source, path, is_strict=False)


def test_a_member_named_tag_is_no_tag() -> None:
    """The name is used inside; a client's member of this name means nothing."""
    wanted = {"type": "json_object", "tag": BARE}

    grammar = grammar_of(Endpoint.CHAT, response_format=wanted)

    assert grammar == Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}', "response_format")
