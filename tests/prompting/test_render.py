"""Conversations become the exact text of a template."""

import json
import re
from dataclasses import replace
from typing import get_args

import pytest

from tests.tables import table
from vinery_serving.core import request as req
from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.field_limits import JSON_CONTAINERS, JSON_LEVELS
from vinery_serving.prompting.assets import ModelAssets
from vinery_serving.prompting.render import (
    ReasoningSettings,
    Rendered,
    reasoning_settings,
    render_untrusted,
)
from vinery_serving.prompting.template import ChatTemplate

from . import templates
from .builders import GOLDEN, MODEL, a_calling_chat, a_chat, a_message, rendered

TINY = (MODEL / "chat_template.jinja").read_text()
WEATHER = req.Tool("get_weather", "Get the weather", {"type": "object", "properties": {}})
HOST = req.Tool("ping", None, {"type": "object", "properties": {"host": {"type": "string"}}})
NO_CALLS = req.ToolChoice(req.ToolMode.NONE)
PING = req.Tool("ping")
# Of two calls in a turn this template shows none.
RAISES_FOR_TWO = templates.SINGLE_CALLS.replace(
    "{%- if message.content and",
    "{%- if message.tool_calls | length != 1 -%}{{ raise_exception('one') }}{%- endif -%}"
    "{%- if message.content and",
)
HI = ("user", "Hi")
TWO_PARTS = a_chat(req.Message(req.Role.USER, (req.TextPart("one"), req.TextPart("two"))))
EARLIER = a_calling_chat("{}")
ARGUMENTS = "messages[{}].tool_calls[{}].function.arguments"


def conversation_of(case: dict) -> req.Conversation:
    """A case of the golden file. It holds arguments as objects, which clients cannot send."""
    messages = []
    for turn in case["messages"]:
        called = [call["function"] for call in turn.get("tool_calls", [])]
        calls = [req.ToolCall("", each["name"], json.dumps(each["arguments"])) for each in called]
        messages.append(a_message(turn["role"], turn["content"], tool_calls=tuple(calls)))
    tools = tuple(req.Tool(**tool["function"]) for tool in case["tools"])
    return a_chat(*messages, tools=tools, template_kwargs={"enable_thinking": case["thinking"]})


def a_caller(*calls: req.ToolCall) -> req.Conversation:
    return a_chat(HI, a_message("assistant", tool_calls=calls))


def parallel_calls(**fields) -> req.Conversation:
    calls = (req.ToolCall("a", "get_weather", "{}"), req.ToolCall("b", "ping", '{"n": 1}'))
    results = [("b", "Pong"), ("x", "Odd"), ("a", "Sunny")]
    return a_chat(
        HI,
        a_message("assistant", tool_calls=calls, **fields),
        *(a_message("tool", text, tool_call_id=call_id) for call_id, text in results),
        ("assistant", "Done"),
    )


def spoken() -> req.Conversation:
    """A call after reasoning and text."""
    question, calling, result = a_calling_chat("{}", reasoning="Hm.").messages
    return a_chat(question, replace(calling, content=(req.TextPart("Wait."),)), result)


@table("case", json.loads((GOLDEN / "tiny_chat.json").read_text()))
def test_the_reference_model_gets_the_prompts_that_it_was_trained_on(case):
    assert rendered(TINY, conversation_of(case)) == case["prompt"]


def row(template, chat, *expected):
    return template, chat, *expected


SHOWN = {
    "a developer is a system to templates that do not know one": row(
        templates.CHATML,
        a_chat(("developer", "Be brief."), HI),
        "<|system|>Be brief.\n<|user|>Hi\n<|assistant|>",
    ),
    "others are shown a developer": row(
        templates.DEVELOPER_AWARE, a_chat(("developer", "Be brief."), HI), "<dev>Be brief.<user>Hi"
    ),
    "instructions are joined where the template renders one": row(
        templates.LEADING_SYSTEM,
        a_chat(
            *(("system", "One."), ("developer", "Two."), HI, ("assistant", "Hello")),
            *(("system", "Three."), ("user", "And?")),
        ),
        "[SYS]One.\n\nTwo.\n\nThree.[/SYS][user]Hi[assistant]Hello[user]And?",
    ),
    "without a system role instructions begin the first user message": row(
        templates.NO_SYSTEM,
        a_chat(("system", "Be brief."), HI, ("assistant", "Yes?"), ("user", "So")),
        "<bos><user>Be brief.\n\nHi<assistant>Yes?<user>So",
    ),
    "content is parts where the template reads parts": row(
        templates.PARTS, TWO_PARTS, "<user>onetwo"
    ),
    "arguments keep their text where the template takes text": row(
        templates.TEXT_ARGUMENTS,
        a_calling_chat('{"city":"Paris"}'),
        '<user>Hi<call>get_weather:{"city":"Paris"}<tool>Sunny',
    ),
    "a turn with only calls renders no empty answer": row(
        templates.EMPTY_ANSWERS, EARLIER, "<user>Hi<call>get_weather<tool>Sunny"
    ),
    "arguments are objects where the template reads members": row(
        templates.ITEMIZED_ARGUMENTS,
        a_calling_chat('{"city": "Paris"}'),
        "<user>Hi<assistant>get_weather city=Paris<tool>Sunny",
    ),
    "a tool answer gets the name of the called tool": row(
        "{% for m in messages %}{{ m.content }}{{ '=' + m.name if m.name }};{% endfor %}",
        EARLIER,
        "Hi;;Sunny=get_weather;",
    ),
    "without calls the prompt has no tools": row(
        templates.TOOLS, a_chat(HI, tools=(WEATHER,), tool_choice=NO_CALLS), "<user>Hi"
    ),
    "and the template may drop tools": row(
        templates.CHATML,
        a_chat(HI, tools=(WEATHER,), tool_choice=NO_CALLS),
        "<|user|>Hi\n<|assistant|>",
    ),
    "clients set variables of the template": row(
        templates.CHATML,
        a_chat(HI, template_kwargs={"add_generation_prompt": False}),
        "<|user|>Hi\n",
    ),
    "tools that may not be called are not shown beside no calls": row(
        templates.CALLS_BESIDE_TOOLS, a_chat(HI, tools=(WEATHER,), tool_choice=NO_CALLS), "<user>Hi"
    ),
    "no tools are an empty list where the template reads a list": row(
        templates.LISTED_TOOLS, EARLIER, "<user>Hi<assistant>get_weather{}<tool>Sunny"
    ),
    "a tool without a description has an empty one where the template reads it": row(
        templates.LISTED_TOOLS, a_chat(HI, tools=(HOST,)), "def ping:  host: <user>Hi"
    ),
    "or joins it": row(templates.JOINED_DESCRIPTION, a_chat(HI, tools=(HOST,)), "//  ping<user>Hi"),
    **{
        f"each call has a turn where the template takes one{more}": row(
            template,
            parallel_calls(reasoning="Hm."),
            "<user>Hi<think>Hm.</think>get_weather{}<get_weather>Sunny"
            '<think></think>ping{"n": 1}<ping>Pong<ping>Odd<assistant>Done',
        )
        for template, more in (
            (templates.SINGLE_CALLS, ""),
            (RAISES_FOR_TWO, " and raises for two"),
        )
    },
    "text joins the reasoning where the template refuses both": row(
        templates.SINGLE_CALLS,
        spoken(),
        "<user>Hi<think>Hm.\nWait.</think>get_weather{}<get_weather>Sunny",
    ),
    **{
        f"reasoning is replayed by the name that the template reads: {key}": row(
            templates.REASONING.replace("KEY", key),
            a_chat(HI, a_message("assistant", "Hello", reasoning="Hm.")),
            "<user>Hi<assistant><think>Hm.</think>Hello<assistant><think>\n",
        )
        for key in ("reasoning_content", "reasoning", "thinking")
    },
    "and is left out of others": row(
        templates.CHATML,
        a_chat(HI, a_message("assistant", "Yes", reasoning="Hm.")),
        "<|user|>Hi\n<|assistant|>Yes\n<|assistant|>",
    ),
}


@table("text, chat, prompt", [pytest.param(*row, id=key) for key, row in SHOWN.items()])
def test_a_template_gets_what_it_can_render(text, chat, prompt):
    assert rendered(text, chat) == prompt


PARIS_ASKED = replace(a_calling_chat('{"city": "Paris"}'), tools=(WEATHER,))
NAMED = req.ToolChoice(req.ToolMode.NAMED, "ping")


@table(
    "text, chat, shown",
    [
        # No arguments are an empty object.
        (TINY, a_calling_chat(""), '"arguments": {}'),
        # A named tool leaves the others in the prompt.
        (templates.TOOLS, a_chat(HI, tools=(WEATHER, PING), tool_choice=NAMED), "get_weather"),
        # Arguments are written as JSON once beside tools.
        (templates.CALLS_BESIDE_TOOLS, PARIS_ASKED, '"arguments": {"city": "Paris"}'),
        # Calls that are shown only beside tools keep them when no tool may be called.
        (
            templates.CALLS_BESIDE_TOOLS,
            replace(EARLIER, tools=(WEATHER,), tool_choice=NO_CALLS),
            "Sunny",
        ),
    ],
)
def test_a_prompt_has_what_its_conversation_needs_and_no_null(text, chat, shown):
    assert shown in rendered(text, chat)
    assert "None" not in rendered(templates.PRINTED_ARGUMENTS, EARLIER)


def test_tools_have_openais_format():
    [weather, ping] = json.loads(
        rendered(templates.TOOLS, a_chat(HI, tools=(WEATHER, PING))).split("<")[0]
    )

    parameters = {"type": "object", "properties": {}}
    called = {"name": "get_weather", "description": "Get the weather", "parameters": parameters}
    assert weather == {"type": "function", "function": called}
    assert ping["function"] == {"name": "ping", "parameters": parameters}


@table("call_id", ["call_0123456789abcdef0000", "", "ein-zwei", "é23456789", "chatcmpl-tool-1f2e"])
def test_a_call_and_its_result_share_a_short_id_where_the_template_demands_one(call_id):
    calls = tuple(req.ToolCall(id_, "get_weather", "{}") for id_ in (call_id, "other"))
    results = [a_message("tool", "Sunny", tool_call_id=id_) for id_ in ("other", call_id)]
    chat = a_chat(HI, a_message("assistant", tool_calls=calls), *results)

    text = rendered(templates.SHORT_IDS, chat)

    called = re.findall(r"\[CALL\]get_weather (\w+)", text)
    answered = re.findall(r"\[RESULT\]Sunny ?(\w*)", text)
    assert [len(id_) for id_ in called] == [9, 9]
    assert called[0] != called[1]
    assert answered == called[::-1]
    assert all(id_.isascii() and id_.isalnum() for id_ in called)
    assert rendered(templates.SHORT_IDS, chat) == text


@table(
    "ids",
    [
        ["call_a", "call_b", "call_c", "call_d"],
        ["functions.ping:7", "functions.ping:8", "x", "y"],  # of a conversation that was cut
        ["1", "2", "1", "2"],  # a client that starts again in each turn
    ],
)
def test_kimi_sees_the_ids_that_it_was_trained_on_whatever_clients_send(ids):
    chat = [HI]
    for turn in (ids[:2], ids[2:]):
        calls = tuple(map(req.ToolCall, turn, ("ping", "get_weather"), ("{}", "[]")))
        results = [a_message("tool", id_, tool_call_id=id_) for id_ in reversed(turn)]
        chat += [a_message("assistant", tool_calls=calls), *results]
    unknown = a_message("tool", "", tool_call_id="z")

    text = rendered(templates.NUMBERED_IDS, a_chat(*chat, unknown, HI))

    called = re.findall(r"<\|tool_call_begin\|>(.*?)<", text)
    names = ["functions.ping:0", "functions.get_weather:1"]
    names += ["functions.ping:2", "functions.get_weather:3"]
    assert called == names
    results = re.findall(r"<(ping|get_weather)>Return of (.*?): (\w[\w.:]*)", text)
    expected = [("get_weather", 1), ("ping", 0), ("get_weather", 3), ("ping", 2)]
    assert results == [(name, names[at], ids[at]) for name, at in expected]
    assert "<tool>Return of z: <user>Hi" in text


# Also texts that nest deeply or have too many values.
NO_OBJECTS = [
    *('{"city": "Rome"} extra', '{"city": ', "[1]", "5", "\u00e9"),
    *(
        '{"a":' + begin * num_levels + "1" + end * num_levels + "}"
        for num_levels in (JSON_LEVELS.value, 990, 50_000)
        for begin, end in (("[", "]"), ('{"a":', "}"))
    ),
    '{"a":[' + "[]," * JSON_CONTAINERS.value + "[]]}",
]


@table("arguments", NO_OBJECTS)
@table(
    "text",
    [
        TINY,
        templates.TEXT_ARGUMENTS,
        templates.ITEMIZED_ARGUMENTS,
        templates.CALLS_BESIDE_TOOLS,
        templates.PRINTED_ARGUMENTS,
        templates.TEXT_ARGUMENTS.replace(
            "call.function.arguments", "(call.function.arguments | from_json | tojson)"
        ),
    ],
)
def test_arguments_that_are_no_json_object_are_a_member_of_one(text, arguments):
    tools = (WEATHER,) if text == templates.CALLS_BESIDE_TOOLS else ()
    shown = rendered(text, replace(a_calling_chat(arguments), tools=tools))

    assert "INVALID_JSON" in shown
    assert any(each in shown for each in (arguments, json.dumps(arguments)[1:-1]))


# -- Refusals -----------------------------------------------------------------------------

REFUSED = {
    "a refusal of the template reaches the client": row(
        templates.NO_SYSTEM, a_chat(HI, ("user", "Hello?")), "messages", "must alternate"
    ),
    "clients cannot set the conversation by a variable": row(
        templates.CHATML,
        a_chat(HI, template_kwargs={"messages": []}),
        "chat_template_kwargs",
        "messages",
    ),
    "tools that the template would drop": row(
        templates.CHATML, a_chat(HI, tools=(WEATHER,)), "tools", None
    ),
}


@table("text, chat, param, words", [pytest.param(*row, id=key) for key, row in REFUSED.items()])
def test_what_a_template_cannot_render_is_refused_by_its_path(text, chat, param, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        rendered(text, chat)

    assert caught.value.param == param
    assert param != "tools" or isinstance(caught.value, UnsupportedParameter)


# -- Templates that come with a request: `tests/gateway/reading` has their limits ------------------


def untrusted(template: str, **rendering) -> Rendered:
    chat = a_chat(HI, rendering=req.Rendering(template=template, **rendering))
    return render_untrusted(chat, {"bos_token": "<s>"})


def test_a_template_of_a_request_renders_as_the_models_own_would_with_an_effort():
    assert untrusted("{{ bos_token }}" + templates.CHATML).text == "<s><|user|>Hi\n<|assistant|>"

    template = "{{ enable_thinking }}{{ messages[0].content }}"
    assert untrusted(template, effort="low") == Rendered("TrueHi", 1024)


@table(
    "template, words",
    [("{% if %}", "does not compile"), ("{{ raise_exception('not today') }}", "not today")],
)
def test_what_a_template_of_a_request_cannot_do_is_refused(template, words):
    with pytest.raises(InvalidRequest, match=words):
        untrusted(template)


NAMES = [
    *("self", "loop", "context", "environment", "caller", "varargs", "kwargs", "super", "range"),
    *("namespace", "raise_exception", "strftime_now", "missing", "undefined", "", "a b", "None"),
    *("message", "tool", "template", "variables", "name", "args", "cls", "__class__", "blocks"),
    *("documents", "enable_thinking", "add_generation_prompt"),
]


@table("name", NAMES)
@table("value", [1, None, "a", [], {}])
def test_a_variable_may_have_any_name(name, value):
    try:
        text = rendered(TINY, a_chat(HI, template_kwargs={name: value}))
    except InvalidRequest as error:
        assert error.param == "messages"
        assert name not in ("self", "loop")
    else:
        assert "Hi" in text
        assert name not in ("self", "loop") or text == rendered(TINY, a_chat(HI))


# -- Efforts: variables of the template, or a budget where the template cannot express one ------

BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192}
BUDGETS |= {"high": 24576, "xhigh": 32768, "max": None}
LEVELS = {"minimal": "low", "low": "low", "medium": "medium"}
LEVELS |= {"high": "high", "xhigh": "high", "max": "high"}

# Qwen 3, and DeepSeek V3.1
SWITCH = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
OTHER_SWITCH = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ thinking }}"
# gpt-oss names only the default level, Mistral Small all levels.
LEVEL = '{% if reasoning_effort is not defined %}{% set reasoning_effort = "medium" %}{% endif %}'
TWO_LEVELS = (
    "{% if reasoning_effort not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}"
)
# Seed-OSS
BUDGET = "{% if thinking_budget is defined %}{{ thinking_budget }}{% endif %}"


@table(
    "template, effort, variables, budget",
    [
        # Without a variable the effort is a budget.
        *((templates.CHATML, effort, {}, budget) for effort, budget in BUDGETS.items()),
        # A switch is set, and efforts above none are limited.
        *(
            (template, effort, {name: effort != "none"}, budget)
            for template, name in ((SWITCH, "enable_thinking"), (OTHER_SWITCH, "thinking"))
            for effort, budget in (("none", None), ("low", 1024), ("max", None))
        ),
        # A level needs no budget.
        *((LEVEL, effort, {"reasoning_effort": level}, None) for effort, level in LEVELS.items()),
        # No reasoning is a budget of zero where the levels lack none.
        (LEVEL, "none", {"reasoning_effort": "low"}, 0),
        # A template gets only levels that it names.
        (TWO_LEVELS, "none", {"reasoning_effort": "none"}, None),
        (TWO_LEVELS, "minimal", {"reasoning_effort": "high"}, None),
        (TWO_LEVELS, "medium", {"reasoning_effort": "high"}, None),
        # A template with a budget variable gets the budget.
        (BUDGET, "low", {"thinking_budget": 1024}, 1024),
        (BUDGET, "max", {}, None),
    ],
)
def test_an_effort_becomes_what_a_template_can_express(template, effort, variables, budget):
    parsed = ChatTemplate(template)

    settings = reasoning_settings(effort, parsed.words.variables, parsed.words.constants)

    assert settings == ReasoningSettings(variables, budget)


def test_every_effort_has_a_budget_and_without_one_nothing_is_set():
    assert set(BUDGETS) == set(get_args(req.Effort))
    assert reasoning_settings(None, ChatTemplate(SWITCH).words.variables) == ReasoningSettings()


def test_the_reference_model_reasons_with_an_effort_which_is_a_budget_without_its_template():
    assets = ModelAssets.load(MODEL)

    def prompt(effort: str, uses_template: bool = True, **fields):
        rendering = req.Rendering(effort=effort, uses_template=uses_template)
        return assets.render(a_chat(HI, rendering=rendering, **fields))

    assert prompt("low").opens_reasoning
    assert prompt("low").reasoning_budget == 1024
    assert not prompt("none").opens_reasoning
    assert prompt("none").reasoning_budget is None
    # Explicit variables override the effort.
    assert prompt("none", template_kwargs={"enable_thinking": True}).opens_reasoning
    assert prompt("low", token_ids=(5, 6)).reasoning_budget == 1024
    assert prompt("low", uses_template=False).reasoning_budget == 1024
