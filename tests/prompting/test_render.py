"""Conversations become the exact text of a template."""

import json
import re
from dataclasses import replace

import pytest

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import (
    Conversation,
    Message,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)

from . import templates
from .builders import GOLDEN, MODEL, a_calling_chat, a_chat, a_message, rendered

TINY = (MODEL / "chat_template.jinja").read_text()
WEATHER = Tool("get_weather", "Get the weather", {"type": "object", "properties": {}})


def conversation_of(case: dict) -> Conversation:
    """A case of the golden file. It holds arguments as objects, which clients cannot send."""
    messages = [
        a_message(
            turn["role"],
            turn["content"],
            tool_calls=tuple(
                ToolCall("", call["function"]["name"], json.dumps(call["function"]["arguments"]))
                for call in turn.get("tool_calls", [])
            ),
        )
        for turn in case["messages"]
    ]
    tools = tuple(Tool(**tool["function"]) for tool in case["tools"])
    return a_chat(*messages, tools=tools, template_kwargs={"enable_thinking": case["thinking"]})


@pytest.mark.parametrize("case", json.loads((GOLDEN / "tiny_chat.json").read_text()))
def test_the_reference_model_gets_the_prompts_that_it_was_trained_on(case):
    assert rendered(TINY, conversation_of(case)) == case["prompt"]


def test_a_developer_is_a_system_to_templates_that_do_not_know_one():
    chat = a_chat(("developer", "Be brief."), ("user", "Hi"))

    assert rendered(templates.CHATML, chat) == "<|system|>Be brief.\n<|user|>Hi\n<|assistant|>"
    assert rendered(templates.DEVELOPER_AWARE, chat) == "<dev>Be brief.<user>Hi"


def test_instructions_are_joined_where_the_template_renders_one():
    chat = a_chat(
        ("system", "One."),
        ("developer", "Two."),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("system", "Three."),
        ("user", "And?"),
    )

    assert rendered(templates.LEADING_SYSTEM, chat) == (
        "[SYS]One.\n\nTwo.\n\nThree.[/SYS][user]Hi[assistant]Hello[user]And?"
    )


def test_instructions_stay_where_the_template_renders_them():
    chat = a_chat(("system", "One."), ("user", "Hi"), ("system", "Two."))

    assert rendered(templates.CHATML, chat) == (
        "<|system|>One.\n<|user|>Hi\n<|system|>Two.\n<|assistant|>"
    )


def test_without_a_system_role_instructions_begin_the_first_user_message():
    chat = a_chat(("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes?"), ("user", "So"))

    assert rendered(templates.NO_SYSTEM, chat) == (
        "<bos><user>Be brief.\n\nHi<assistant>Yes?<user>So"
    )


def test_without_a_system_role_instructions_alone_are_a_user_message():
    assert rendered(templates.NO_SYSTEM, a_chat(("system", "Go."))) == "<bos><user>Go."


def test_a_refusal_of_the_template_reaches_the_client():
    with pytest.raises(InvalidRequest, match="must alternate"):
        rendered(templates.NO_SYSTEM, a_chat(("user", "Hi"), ("user", "Hello?")))


def test_content_is_parts_where_the_template_reads_parts():
    message = Message(Role.USER, (TextPart("one"), TextPart("two")))

    assert rendered(templates.PARTS, a_chat(message)) == "<user>onetwo"
    assert rendered(templates.CHATML, a_chat(message)) == "<|user|>one\ntwo\n<|assistant|>"


def test_arguments_keep_their_text_where_the_template_takes_text():
    assert rendered(templates.TEXT_ARGUMENTS, a_calling_chat('{"city":"Paris"}')) == (
        '<user>Hi<call>get_weather:{"city":"Paris"}<tool>Sunny'
    )


def test_a_turn_with_only_calls_renders_no_empty_answer():
    assert rendered(templates.EMPTY_ANSWERS, a_calling_chat("{}")) == (
        "<user>Hi<call>get_weather<tool>Sunny"
    )


def test_a_template_that_prints_null_gets_an_empty_text():
    assert "None" not in rendered(templates.PRINTED_ARGUMENTS, a_calling_chat("{}"))


def test_arguments_are_objects_where_the_template_reads_members():
    assert rendered(templates.ITEMIZED_ARGUMENTS, a_calling_chat('{"city": "Paris"}')) == (
        "<user>Hi<assistant>get_weather city=Paris<tool>Sunny"
    )


def test_no_arguments_are_an_empty_object():
    assert '"arguments": {}' in rendered(TINY, a_calling_chat(""))


@pytest.mark.parametrize(
    ("arguments", "words"), [('{"city": ', "not JSON"), ("[1]", "must be a JSON object")]
)
def test_the_error_of_broken_arguments_names_their_path(arguments, words):
    chat = a_chat(("system", "Hi"), *a_calling_chat(arguments).messages)

    with pytest.raises(InvalidRequest, match=words) as caught:
        rendered(TINY, chat)

    assert caught.value.param == "messages[2].tool_calls[0].function.arguments"


def test_the_path_is_the_clients_even_after_instructions_have_moved():
    text = templates.ITEMIZED_ARGUMENTS.replace(
        "{%- for message in messages -%}",
        (
            "{%- for message in messages -%}"
            "{%- if message.role == 'system' and not loop.first -%}"
            "{{ raise_exception('late') }}{%- endif -%}"
        ),
        1,
    )
    first, *rest = a_calling_chat("{").messages

    with pytest.raises(InvalidRequest) as caught:
        rendered(text, a_chat(first, ("system", "late"), *rest))

    assert caught.value.param == "messages[2].tool_calls[0].function.arguments"


def test_a_tool_answer_gets_the_name_of_the_called_tool():
    text = "{% for m in messages %}{{ m.content }}{{ '=' + m.name if m.name }};{% endfor %}"

    assert rendered(text, a_calling_chat("{}")) == "Hi;;Sunny=get_weather;"


def test_reasoning_is_replayed_by_the_name_that_the_template_reads():
    chat = a_chat(("user", "Hi"), a_message("assistant", "Hello", reasoning="Hm."))

    text = rendered(templates.REASONING.replace("KEY", "thinking"), chat)

    assert text.startswith("<user>Hi<assistant><think>Hm.</think>Hello")


def test_tools_have_openais_format():
    plain = Tool("ping")

    [weather, ping] = json.loads(
        rendered(templates.TOOLS, a_chat(("user", "Hi"), tools=(WEATHER, plain))).split("<")[0]
    )

    assert weather == {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    assert ping["function"] == {"name": "ping", "parameters": {"type": "object", "properties": {}}}


def test_without_calls_the_prompt_has_no_tools():
    chat = a_chat(("user", "Hi"), tools=(WEATHER,), tool_choice=ToolChoice(ToolMode.NONE))

    assert rendered(templates.TOOLS, chat) == "<user>Hi"
    assert rendered(templates.CHATML, chat) == "<|user|>Hi\n<|assistant|>"


def test_a_named_tool_leaves_the_others_in_the_prompt():
    choice = ToolChoice(ToolMode.NAMED, "ping")
    chat = a_chat(("user", "Hi"), tools=(WEATHER, Tool("ping")), tool_choice=choice)

    assert "get_weather" in rendered(templates.TOOLS, chat)


def test_tools_that_the_template_would_drop_are_refused():
    with pytest.raises(UnsupportedParameter) as caught:
        rendered(templates.CHATML, a_chat(("user", "Hi"), tools=(WEATHER,)))

    assert caught.value.param == "tools"


def test_clients_set_variables_of_the_template():
    chat = a_chat(("user", "Hi"), template_kwargs={"add_generation_prompt": False})

    assert rendered(templates.CHATML, chat) == "<|user|>Hi\n"


@pytest.mark.parametrize("name", ["messages", "tools"])
def test_clients_cannot_set_the_conversation_that_way(name):
    chat = a_chat(("user", "Hi"), template_kwargs={name: []})

    with pytest.raises(InvalidRequest, match=name) as caught:
        rendered(templates.CHATML, chat)

    assert caught.value.param == "chat_template_kwargs"


OUR_ID = "call_0123456789abcdef0000"


@pytest.mark.parametrize("call_id", [OUR_ID, "", "ein-zwei", "é23456789", "chatcmpl-tool-1f2e"])
def test_a_call_and_its_result_share_a_short_id_where_the_template_demands_one(call_id):
    calls = tuple(ToolCall(id_, "get_weather", "{}") for id_ in (call_id, "other"))
    results = [a_message("tool", "Sunny", tool_call_id=id_) for id_ in ("other", call_id)]
    chat = a_chat(("user", "Hi"), a_message("assistant", tool_calls=calls), *results)

    text = rendered(templates.SHORT_IDS, chat)

    called = re.findall(r"\[CALL\]get_weather (\w+)", text)
    answered = re.findall(r"\[RESULT\]Sunny ?(\w*)", text)
    assert [len(id_) for id_ in called] == [9, 9]
    assert called[0] != called[1]
    assert answered == called[::-1]
    assert all(id_.isascii() and id_.isalnum() for id_ in called)
    assert rendered(templates.SHORT_IDS, chat) == text


def test_a_call_without_an_id_names_no_message_of_the_user():
    call, text = (
        ToolCall("", "get_weather", "{}"),
        "{% for m in messages %}{{ m.name }};{% endfor %}",
    )

    assert (
        rendered(text, a_chat(("user", "Hi"), a_message("assistant", tool_calls=(call,)))) == ";;"
    )


def test_a_short_id_stays_as_it_is():
    call = ToolCall("aB3dE6gH9", "get_weather", "{}")
    chat = a_chat(("user", "Hi"), a_message("assistant", tool_calls=(call,)))

    assert rendered(templates.SHORT_IDS, chat).endswith("[CALL]get_weather aB3dE6gH9")


def test_other_templates_get_the_clients_ids():
    text = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}{% endfor %}{% endfor %}"
    )

    assert rendered(text, a_calling_chat("{}")) == "call_1"


def test_arguments_are_written_as_json_once_beside_tools():
    chat = replace(a_calling_chat('{"city": "Paris"}'), tools=(WEATHER,))

    assert '"arguments": {"city": "Paris"}' in rendered(templates.CALLS_BESIDE_TOOLS, chat)


def test_calls_that_are_shown_only_beside_tools_keep_them_when_no_tool_may_be_called():
    chat = replace(a_calling_chat("{}"), tools=(WEATHER,), tool_choice=ToolChoice(ToolMode.NONE))

    assert "Sunny" in rendered(templates.CALLS_BESIDE_TOOLS, chat)
    assert rendered(templates.CALLS_BESIDE_TOOLS, replace(chat, messages=chat.messages[:1])) == (
        "<user>Hi"
    )


def test_calls_without_tools_are_no_error():
    assert rendered(templates.CALLS_BESIDE_TOOLS, a_calling_chat("{}")) == "<user>Hi<assistant>"


def test_no_tools_are_an_empty_list_where_the_template_reads_a_list():
    assert rendered(templates.LISTED_TOOLS, a_calling_chat("{}")) == (
        "<user>Hi<assistant>get_weather{}<tool>Sunny"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (templates.LISTED_TOOLS, "def ping:  host: <user>Hi"),
        (templates.JOINED_DESCRIPTION, "//  ping<user>Hi"),
    ],
)
def test_a_tool_without_a_description_has_an_empty_one_where_the_template_needs_it(text, shown):
    ping = Tool("ping", None, {"type": "object", "properties": {"host": {"type": "string"}}})

    assert rendered(text, a_chat(("user", "Hi"), tools=(ping,))) == shown


def test_a_schema_without_properties_needs_no_description():
    odd = Tool("ping", None, {"type": "object", "properties": {"host": True}})
    chat = a_chat(("user", "Hi"), tools=(odd, Tool("pong", None, {"properties": []})))

    assert rendered(templates.JOINED_DESCRIPTION, chat) == "//  ping//  pong<user>Hi"


def parallel_calls(**fields) -> Conversation:
    calls = (ToolCall("a", "get_weather", "{}"), ToolCall("b", "ping", '{"n": 1}'))
    results = [("b", "Pong"), ("x", "Odd"), ("a", "Sunny")]
    return a_chat(
        ("user", "Hi"),
        a_message("assistant", tool_calls=calls, **fields),
        *(a_message("tool", text, tool_call_id=call_id) for call_id, text in results),
        ("assistant", "Done"),
    )


def test_each_call_has_a_turn_where_the_template_takes_one():
    assert rendered(templates.SINGLE_CALLS, parallel_calls(reasoning="Hm.")) == (
        "<user>Hi"
        "<think>Hm.</think>get_weather{}<get_weather>Sunny"
        '<think></think>ping{"n": 1}<ping>Pong<ping>Odd'
        "<assistant>Done"
    )


def test_other_templates_keep_calls_together():
    text = (
        "{% for m in messages %}{{ m.role }}{{ m.tool_calls | length if m.tool_calls }};"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
    )

    assert rendered(text, parallel_calls()).startswith("user;assistant2;get_weatherpingtool;")


def test_the_error_of_a_call_in_a_turn_of_its_own_has_the_clients_path():
    broken = ToolCall("b", "ping", "[1]")
    chat = a_chat(
        ("user", "Hi"), a_message("assistant", tool_calls=(ToolCall("a", "f", ""), broken))
    )

    with pytest.raises(InvalidRequest) as caught:
        rendered(templates.SINGLE_CALLS, chat)

    assert caught.value.param == "messages[1].tool_calls[1].function.arguments"


def test_text_joins_the_reasoning_where_the_template_refuses_both():
    chat = a_calling_chat("{}", reasoning="Hm.")
    question, calling, result = chat.messages
    spoken = replace(calling, content=(TextPart("Wait."),))

    text = rendered(templates.SINGLE_CALLS, a_chat(question, spoken, result))

    assert text == "<user>Hi<think>Hm.\nWait.</think>get_weather{}<get_weather>Sunny"
