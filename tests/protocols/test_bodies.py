"""Malformed and random bodies are refused, or answered if they are valid."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import table
from vinery_serving.core.dialects import DIALECTS, V1
from vinery_serving.core.errors import InvalidRequest, ServingError
from vinery_serving.core.field_limits import JSON_LEVELS
from vinery_serving.core.request import Conversation, Endpoint
from vinery_serving.core.tasks import GENERATION_ENDPOINTS
from vinery_serving.protocols import parse
from vinery_serving.protocols.openapi import BODIES

from .clients import payloads
from .exchanges import LEAST, PLAIN, answered, streamed

DEPTH = JSON_LEVELS.value
MALFORMED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it is empty"),
    "blanks": (b" \n", "it is empty"),
    "not JSON": (b"{'a': 1}", "not valid JSON"),
    "two documents": (b"{}{}", "not valid JSON"),
    "a list": (b"[]", "must be a JSON object"),
    "a string": (b'"messages"', "must be a JSON object"),
    "null": (b"null", "must be a JSON object"),
    "NaN": (b'{"temperature": NaN}', "NaN is not a JSON number"),
    "infinity": (b'{"temperature": -Infinity}', "-Infinity is not a JSON number"),
    "a huge float": (b'{"temperature": 1e999}', "a number is too large"),
    "a huge integer": (b'{"seed": ' + b"9" * 5000 + b"}", "a number is too large"),
    "the same key twice": (b'{"n": 1, "n": 2}', "the same key twice"),
    "the same key twice inside": (b'{"a": [{"n": 1, "n": 1}]}', "the same key twice"),
    "Latin-1": ('{"a": "ü"}'.encode("latin-1"), "not valid UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not valid UTF-8"),
    "half a surrogate pair": (b'{"a": "\\ud83d"}', "half of a surrogate pair"),
    "half a pair as a key": (b'{"\\uDC00": 1}', "half of a surrogate pair"),
    "arrays too deep": (b'{"a": ' + b"[" * DEPTH + b"]" * DEPTH + b"}", "nests"),
    "a bomb of arrays": (b"[" * 50_000, "nests"),
    "a bomb of objects": (b'{"a":' * 50_000, "nests"),
    "many arrays": (b'{"a":[' + b"[]," * 100_000 + b"[]]}", "100000 objects and arrays"),
    "many members": (b'{"a":{' + b'"a":1,' * 200_000 + b'"a":1}}', "200000 members"),
    "many values": (b'{"a":[' + b"1," * 2_000_000 + b"1]}", "2000000 JSON values"),
}


@table("endpoint", GENERATION_ENDPOINTS)
@table("name", MALFORMED)
def test_a_malformed_body_is_refused(endpoint: Endpoint, name: str) -> None:
    body, words = MALFORMED[name]

    with pytest.raises(InvalidRequest) as caught:
        parse(endpoint, body, V1)

    assert words in caught.value.message
    assert caught.value.code == "invalid_json"
    assert len(caught.value.message) < 200


def test_depth_up_to_the_limit_and_whole_surrogate_pairs_are_accepted() -> None:
    deep: Any = {}
    for _ in range(DEPTH - 2):  # the body and the innermost object are levels too
        deep = [deep]

    parse(Endpoint.CHAT, json.dumps({**LEAST[Endpoint.CHAT], "x": deep}).encode(), V1)

    body = b'{"messages": [{"role": "user", "content": "\\ud83c\\udf47 \\\\ud83d"}]}'

    prompt = parse(Endpoint.CHAT, body, V1).request.prompt

    assert isinstance(prompt, Conversation)
    assert prompt.messages[0].text == "🍇 \\ud83d"


KEYS = """
role content type text name tool_calls function arguments id call_id output summary
refusal tool_call_id schema format effort include_usage input action operation queries
status results encrypted_content context mode ttl source data media_type url thinking
tool_use_id input input_schema budget_tokens title citations
transformations oversized_image input_examples allowed_callers clear_at output_config
"""
WORDS = """
user assistant tool function system text input_text image_url function_call reasoning
function_call_output message none auto required named json_schema json_object low max
image document tool_use tool_result thinking base64 url any enabled adaptive
search_result server_tool_use redacted_thinking content between_tools error direct
"""
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**31, 2**63, -(2**64), 0.5, 1.0, 1e300, "", "f"])
    | st.sampled_from(WORDS.split()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4)
    ),
    max_leaves=8,
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "bot"])
ITEM_TYPES = """
message function_call function_call_output reasoning item_reference custom custom_tool_call
custom_tool_call_output local_shell_call local_shell_call_output shell_call shell_call_output
apply_patch_call apply_patch_call_output web_search_call file_search_call
code_interpreter_call mcp_call computer_call compaction other
text image document search_result tool_use tool_result thinking server_tool_use
"""
TYPES = st.sampled_from(ITEM_TYPES.split())
# Objects that resemble a message, an item or a tool.
NEARLY = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(KEYS.split(), VALUES),
            "role": ROLES,
            "type": TYPES,
            "content": st.text(max_size=2) | VALUES,
        },
    ),
    min_size=1,
    max_size=4,
)
PROMPTS = {
    Endpoint.CHAT: "messages", Endpoint.COMPLETIONS: "prompt",
    Endpoint.RESPONSES: "input", Endpoint.MESSAGES: "messages",
}  # fmt: skip


@cache  # for Hypothesis, a strategy is expensive to make
def few_fields(endpoint: Endpoint) -> st.SearchStrategy[dict[str, Any]]:
    fields = sorted(BODIES[endpoint].model_fields)
    return st.dictionaries(st.sampled_from(fields), VALUES | NEARLY, max_size=3)


@st.composite
def bodies(draw: st.DrawFn, endpoint: Endpoint) -> dict[str, Any]:
    """A body with a few wrong values at most."""
    prompt = {PROMPTS[endpoint]: draw(NEARLY)} if draw(st.booleans()) else {}
    return {**LEAST[endpoint], **draw(few_fields(endpoint)), **prompt}


@table("endpoint", GENERATION_ENDPOINTS)
@settings(max_examples=examples(20))  # for each endpoint, and they are slow
@given(data=st.data(), dialect=st.sampled_from(list(DIALECTS.values())))
def test_random_json_is_answered_or_refused(
    endpoint: Endpoint, data: st.DataObject, dialect: Any
) -> None:
    body = json.dumps(data.draw(bodies(endpoint))).encode()

    try:
        exchange = parse(endpoint, body, dialect)
    except ServingError as error:
        assert error.status == 400
        assert error.param
        assert f"`{error.param}" in error.message
    else:
        assert payloads(streamed(exchange, PLAIN))
        assert answered(exchange, PLAIN)


@table("endpoint", GENERATION_ENDPOINTS)
@given(st.binary(max_size=40))
@example(b'{"a":\xff}')
def test_random_bytes_are_refused(endpoint: Endpoint, body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse(endpoint, body, V1)
