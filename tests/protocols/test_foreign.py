"""Parameters of other servers and endpoints: each is honoured, refused or reported, everywhere."""

from functools import cache

from tests.tables import table
from vinery_serving.core.request import Endpoint, Unused
from vinery_serving.core.tasks import GENERATION_ENDPOINTS
from vinery_serving.protocols.common.body_fields import (
    FOREIGN,
    REFUSED,
    ForeignParameter,
    Harmless,
    Refused,
)
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.openapi import BODIES

from . import exchanges
from .test_refusals import refused

REFUSED_ROWS = [each for each in FOREIGN.values() if isinstance(each.fate, Refused)]
HARMLESS_ROWS = [each for each in FOREIGN.values() if isinstance(each.fate, Harmless)]


@cache
def fields_of(endpoint: Endpoint) -> set[str]:
    own = {field.alias or name for name, field in BODIES[endpoint].model_fields.items()}
    return own | set(REFUSED[endpoint])


@table("endpoint", GENERATION_ENDPOINTS)
@table("row", REFUSED_ROWS)
def test_a_parameter_is_refused_by_name_if_it_would_change_the_answer(
    endpoint: Endpoint, row: ForeignParameter
) -> None:
    if row.name in fields_of(endpoint):
        return
    error = refused(endpoint, **{row.name: "other"})
    assert (error.code, error.param) == ("unsupported_parameter", row.name)
    assert error.message.startswith(f"`{row.name}` is not supported by this server: ")
    assert isinstance(row.fate, Refused)
    for value in (None, *row.fate.harmless):
        assert exchanges.request(endpoint, **{row.name: value}).unused == Unused()


@table("endpoint", GENERATION_ENDPOINTS)
@table("row", HARMLESS_ROWS)
def test_a_parameter_that_cannot_change_the_answer_is_named(
    endpoint: Endpoint, row: ForeignParameter
) -> None:
    if row.name in fields_of(endpoint):
        return
    for value in (5, {"a": 1}, "text", False):
        sent = exchanges.request(endpoint, **{row.name: value})
        assert sent.unused == Unused(harmless=(row.name,))
        assert sent == exchanges.request(endpoint)


def test_unknown_members_are_named_those_of_entries_of_lists_as_harmless() -> None:
    """Clients keep data of their own in messages and tools, so these are never refused."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "at": 1}}
    wanted = {"name": "n", "schema": {"any": 1}, "colour": 1}
    asked = exchanges.chat(
        stream=True,
        stream_options={"include_usage": True, "pace": 1},
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Hi", "mood": 1}], "id": "m1"},
            {"role": "assistant", "content": None, "id": "m2", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "x", "at": None},
        ],
        tools=[{"type": "function", "function": {"name": "f", "hue": 1}, "cached": True}],
        response_format={"type": "json_schema", "json_schema": wanted, "extra": 1},
    )
    in_lists = ("messages.content.mood", "messages.id", "messages.tool_calls.function.at")
    in_tools = ("tools.function.hue", "tools.cached")
    in_formats = ("response_format.json_schema.colour", "response_format.extra")

    assert asked.unused == Unused(("stream_options.pace", *in_formats), 3, (*in_lists, *in_tools))
    tag = {"type": "const_string", "value": "yes"}
    assert exchanges.chat(response_format=tag).unused == Unused()
    deep = exchanges.response(
        text={"format": {"type": "text", "hue": 1}, "tone": "calm"},
        reasoning={"mood": "calm"},
        input=[{"type": "message", "role": "user", "content": "Hi", "tint": 1}],
        tools=[{"type": "web_search", "filters": {}}],
    )
    assert set(deep.unused.unknown) == {"text.tone", "text.format.hue", "reasoning.mood"}
    assert deep.unused.harmless == ("input.tint",)
    many = [{"role": "user", "content": "Hi", f"k{at}": 1} for at in range(99)]
    assert len(exchanges.chat(messages=many).unused.harmless) == 32


def test_few_of_many_unknown_names_are_kept_and_each_is_short() -> None:
    asked = exchanges.chat(**{f"{number:04}" + "x" * 10_000: 1 for number in range(500)})

    assert asked.unused.num_unknown == 500
    assert len(asked.unused.unknown) == 32
    assert {len(name) for name in asked.unused.unknown} == {128}


def test_responses_repeat_no_limit_as_null() -> None:
    asked = exchanges.exchange(Endpoint.RESPONSES, max_output_tokens=-1)

    assert asked.request.stopping.is_unlimited
    assert exchanges.answered(asked, exchanges.PLAIN)["max_output_tokens"] is None


def test_numbers_inside_of_schemas_and_variables_stay_as_they_were() -> None:
    variables = {"scale": 2.0, "level": "3"}
    kwargs = exchanges.conversation_of(
        Endpoint.CHAT, chat_template_kwargs=variables
    ).template_kwargs

    assert json_bytes(dict(kwargs)) == b'{"scale":2.0,"level":"3"}'
