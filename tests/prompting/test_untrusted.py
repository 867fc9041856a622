"""Templates that come with a request render, and cannot exceed their limits."""

import asyncio

import pytest

from serving.core.errors import InvalidRequest, Overloaded, UnsupportedParameter
from serving.core.request import Effort, Rendering, Tool, ToolCall
from serving.prompting.render import Rendered
from serving.prompting.untrusted import MAX_UNTRUSTED_PROCESSES, UntrustedTemplates

from . import templates
from .builders import a_chat, a_message

ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)
BLOATED = "{{ 'x' * 4000000000 }}"
# Twice as long at each turn.
GROWING = (
    "{% set ns = namespace(t='x') %}{% for a in range(60) %}{% set ns.t = ns.t ~ ns.t %}"
    "{% endfor %}{{ ns.t }}"
)


async def rendered(template: str, *turns, time_limit_s: float = 60.0, **fields) -> Rendered:
    rendering = Rendering(template=template, **fields.pop("rendering", {}))
    chat = a_chat(*(turns or [("user", "Hi")]), rendering=rendering, **fields)
    return await UntrustedTemplates(time_limit_s=time_limit_s).render(chat, {"bos_token": "<s>"})


async def test_it_renders_as_the_models_own_would():
    text = (await rendered("{{ bos_token }}" + templates.CHATML)).text

    assert text == "<s><|user|>Hi\n<|assistant|>"


async def test_every_part_of_a_conversation_arrives():
    call = ToolCall("call_1", "ping", '{"a": 1}')
    template = (
        "{{ tools | tojson }}{{ mood }}{% for m in messages %}{{ m.content }}"
        "{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}"
        "{% endfor %}"
    )

    answer = await rendered(
        template,
        ("user", "Hi"),
        a_message("assistant", tool_calls=(call,)),
        a_message("tool", "pong", tool_call_id="call_1"),
        tools=(Tool("ping", "Ping", {"type": "object", "properties": {}}),),
        template_kwargs={"mood": "glad"},
    )

    assert answer.text == (
        '[{"type": "function", "function": {"name": "ping", "description": "Ping", '
        '"parameters": {"type": "object", "properties": {}}}}]gladHi{"a": 1}pong'
    )


async def test_an_effort_becomes_this_templates_variables():
    answer = await rendered(
        "{{ enable_thinking }}{{ messages[0].content }}", rendering={"effort": Effort.LOW}
    )

    assert answer == Rendered("TrueHi", 1024)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% if %}", "does not compile"),
        ("{{ raise_exception('not today') }}", "not today"),
        ("{{ messages.nothing.at.all }}", "cannot render"),
        ("{{ ''.__class__.__mro__ }}", "cannot render"),
        (BLOATED, "too much memory"),
        (GROWING, "too much memory"),
    ],
    ids=["broken", "refusing", "failing", "escaping", "bloated", "growing"],
)
async def test_what_it_cannot_do_is_refused(template, words):
    with pytest.raises(InvalidRequest, match=words):
        await rendered(template)


async def test_unsupported_options_are_refused_by_name():
    with pytest.raises(UnsupportedParameter) as caught:
        await rendered(templates.CHATML, rendering={"documents": ({"text": "a"},)})

    assert caught.value.param == "documents"


async def test_an_endless_one_is_ended_without_blocking_the_event_loop():
    num_turns = 0
    rendering = asyncio.create_task(rendered(ENDLESS, time_limit_s=1.0))
    while not rendering.done():
        await asyncio.sleep(0.01)
        num_turns += 1

    with pytest.raises(InvalidRequest, match="too long") as caught:
        await rendering

    assert caught.value.param == "chat_template"
    assert num_turns > 3


async def test_it_sees_nothing_of_the_servers_environment(monkeypatch):
    monkeypatch.setenv("VINERY_SECRET", "grapes")
    seen = []
    spawn = asyncio.create_subprocess_exec

    async def recording(*command, env, **options):
        seen.append(env)
        return await spawn(*command, env=env, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recording)
    await rendered(templates.CHATML)

    assert [set(env) for env in seen] == [{"PYTHONPATH"}]


async def test_only_a_few_run_at_a_time():
    untrusted_templates = UntrustedTemplates(time_limit_s=1.0)
    chat = a_chat(("user", "Hi"), rendering=Rendering(template=ENDLESS))
    running = [
        asyncio.create_task(untrusted_templates.render(chat, {}))
        for _ in range(MAX_UNTRUSTED_PROCESSES)
    ]
    await asyncio.sleep(0)

    with pytest.raises(Overloaded):
        await untrusted_templates.render(chat, {})

    endings = await asyncio.gather(*running, return_exceptions=True)
    assert all(isinstance(ending, InvalidRequest) for ending in endings)
    # Others can run again.
    quick = a_chat(("user", "Hi"), rendering=Rendering(template="a{{ messages[0].content }}"))
    assert (await UntrustedTemplates().render(quick, {})).text == "aHi"


async def test_cancelling_the_request_ends_the_template():
    untrusted_templates = UntrustedTemplates(time_limit_s=60.0)
    chat = a_chat(("user", "Hi"), rendering=Rendering(template=ENDLESS))
    rendering = asyncio.create_task(untrusted_templates.render(chat, {}))
    await asyncio.sleep(0.3)

    rendering.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(rendering, 30)
