"""Rendering costs at most twice the work for a conversation of twice the size."""

from tests.operations import growth
from tests.tables import table
from vinery_serving.core.request import Rendering, Tool, ToolCall
from vinery_serving.prompting.render import ChatRenderer
from vinery_serving.prompting.template import ChatTemplate

from . import templates
from .builders import MODEL, a_chat, a_message, renderer_of

TINY = (MODEL / "chat_template.jinja").read_text()
RENDERERS = [
    renderer_of(text)
    for text in (TINY, templates.CHATML, templates.LEADING_SYSTEM, templates.PARTS)
]
CALL = ToolCall("c", "f", '{"a": [1]}')
DOCUMENTED = ChatRenderer(ChatTemplate("{{ documents }}{{ messages[0].content }}"))


@table("renderer", RENDERERS)
@table(
    "chat",
    [
        lambda n: a_chat(*[("user", "Hi")] * n),
        lambda n: a_chat(*[("user", "Hi"), ("system", "Be brief.")] * n),
        lambda n: a_chat(("user", "Hi"), a_message("assistant", tool_calls=(CALL,) * n)),
        lambda n: a_chat(
            ("user", "Hi"),
            a_message("assistant", tool_calls=(CALL,)),
            *[a_message("tool", "Done", tool_call_id="c")] * n,
        ),
        lambda n: a_chat(("user", "Hi"), template_kwargs={f"k{at}": at for at in range(n)}),
    ],
)
def test_a_conversation_of_twice_the_size(renderer, chat):
    def work(size):
        conversation = chat(size)
        return lambda: renderer.render(conversation)

    assert growth(work, 200) < 2.1


@table(
    "renderer, chat",
    [
        (RENDERERS[0], lambda n: a_chat(("user", "Hi"), tools=(Tool("f"),) * n)),
        (
            DOCUMENTED,
            lambda n: a_chat(("user", "Hi"), rendering=Rendering(documents=({"a": "b"},) * n)),
        ),
    ],
)
def test_twice_the_tools_or_documents(renderer, chat):
    def work(size):
        conversation = chat(size)
        return lambda: renderer.render(conversation)

    assert growth(work, 200) < 2.1


def test_arguments_of_twice_the_size():
    def work(size):
        call = ToolCall("c", "f", '{"a": [' + "[1]," * size + "1]}")
        conversation = a_chat(("user", "Hi"), a_message("assistant", tool_calls=(call,)))
        return lambda: RENDERERS[0].render(conversation)

    assert growth(work, 2000) < 2.1
