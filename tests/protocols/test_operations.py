"""No field of a request costs more than twice the work when it is twice as large.

The tests count the lines of code that run, which shows loops inside of loops. Some fields would
need too long lists to double: the limits are raised here, so that only the algorithms count.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.operations import growth
from tests.protocols.exchanges import LEAST
from tests.protocols.test_field_limits import CHAT, HI, RESPONSES, ROWS, TEXTS, a_tool
from tests.tables import table
from vinery_serving.core import field_limits
from vinery_serving.core.dialects import V3
from vinery_serving.core.field_limits import FIELD_LIMITS
from vinery_serving.core.request import Endpoint
from vinery_serving.protocols import parse
from vinery_serving.protocols.tokens import parse_detokenize, parse_tokenize

# A little of a request's work does not depend on the field, so the growth is below 2; a quadratic
# part makes it larger at once.
MOST_GROWTH = 2.1
SIZE = 400


@pytest.fixture(autouse=True)
def unlimited() -> Iterator[None]:
    field_limits.configure({limit.name: 10**9 for limit in FIELD_LIMITS})
    yield
    field_limits.configure({})


def reading(endpoint: Endpoint, fields: Any) -> Callable[[int], Callable[[], Any]]:
    def work(size: int) -> Callable[[], Any]:
        body = json.dumps({**LEAST[endpoint], **fields(size)}).encode()
        return lambda: parse(endpoint, body, V3)

    return work


def named_tools(size: int) -> list[Any]:
    return [
        {"type": "namespace", "name": f"n{at}", "tools": [{"name": f"f{at}"}]} for at in range(size)
    ]


def a_function_call(at: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "{}"}


def choosing(size: int) -> dict[str, Any]:
    tools = [{"type": "function", "name": f"f{at}"} for at in range(size)]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": tools}
    return {"tools": named_tools(size), "tool_choice": choice}


def reason(size: int) -> dict[str, Any]:
    return {"type": "reasoning", "content": [{"text": "a"}] * size}


MORE: list[tuple[Endpoint, Any]] = [
    (RESPONSES, lambda n: {"input": [a_function_call(at) for at in range(n)]}),
    (RESPONSES, lambda n: {"input": [reason(n)] * 2}),
    (RESPONSES, lambda n: {"input": [reason(1)] * n}),
    (RESPONSES, lambda n: {"tools": named_tools(n)}),
    (RESPONSES, choosing),
    # Unknown fields, and an unknown field.
    (CHAT, lambda n: {f"u{at}": [{}] for at in range(n)}),
    (CHAT, lambda n: {"unheard_of": [{"a": [1]}] * n}),
    (CHAT, lambda n: {"guided_json": {"properties": {f"p{at}": {"enum": [1]} for at in range(n)}}}),
    (CHAT, lambda n: {"tools": [a_tool(parameters={"enum": [1]})] * n}),
    (TEXTS, lambda n: {"prompt": ["a"] * n, "n": 2}),
]


@table("endpoint, fields", [*((endpoint, fields) for endpoint, _, _, fields in ROWS), *MORE])
def test_a_field_of_twice_the_size_costs_at_most_twice_the_work(
    endpoint: Endpoint, fields: Any
) -> None:
    work = reading(endpoint, fields)

    work(SIZE)()  # the first call fills caches
    assert growth(work, SIZE) < MOST_GROWTH


@table(
    "parse_tokens, fields",
    [
        (parse_tokenize, lambda n: {"text": ["a"] * n}),
        (parse_tokenize, lambda n: {"messages": HI * n}),
        (parse_tokenize, lambda n: {"messages": HI, "tools": [a_tool()] * n}),
        (parse_detokenize, lambda n: {"tokens": [1] * n}),
    ],
)
def test_tokenizing_costs_at_most_twice_the_work(parse_tokens: Any, fields: Any) -> None:
    def work(size: int) -> Callable[[], Any]:
        body = json.dumps(fields(size)).encode()
        return lambda: parse_tokens(body)

    work(SIZE)()  # the first call fills caches
    assert growth(work, SIZE) < MOST_GROWTH
