"""Templates that come with a request render, or are refused. `tests/intake` has their limits."""

import pytest

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import Effort, Rendering, Tool, ToolCall
from vinery_serving.prompting.render import Rendered, render_untrusted

from . import templates
from .builders import a_chat, a_message


def rendered(template: str, *turns, **fields) -> Rendered:
    rendering = Rendering(template=template, **fields.pop("rendering", {}))
    chat = a_chat(*(turns or [("user", "Hi")]), rendering=rendering, **fields)
    return render_untrusted(chat, {"bos_token": "<s>"})


def test_it_renders_as_the_models_own_would_with_an_effort_in_its_variables():
    text = (rendered("{{ bos_token }}" + templates.CHATML)).text
    assert text == "<s><|user|>Hi\n<|assistant|>"

    template = "{{ enable_thinking }}{{ messages[0].content }}"
    answer = rendered(template, rendering={"effort": Effort.LOW})
    assert answer == Rendered("TrueHi", 1024)


def test_unsupported_options_are_refused_by_name():
    with pytest.raises(UnsupportedParameter) as caught:
        rendered(templates.CHATML, rendering={"documents": ({"text": "a"},)})
    assert caught.value.param == "documents"


def test_every_part_of_a_conversation_arrives():
    call = ToolCall("call_1", "ping", '{"a": 1}')
    template = (
        "{{ tools | tojson }}{{ mood }}{% for m in messages %}{{ m.content }}"
        "{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}"
        "{% endfor %}"
    )

    answer = rendered(
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


@table(
    "template, words",
    [
        ("{% if %}", "does not compile"),
        ("{{ raise_exception('not today') }}", "not today"),
        ("{{ messages.nothing.at.all }}", "cannot render"),
        ("{{ ''.__class__.__mro__ }}", "cannot render"),
    ],
)
def test_what_it_cannot_do_is_refused(template, words):
    with pytest.raises(InvalidRequest, match=words):
        rendered(template)
