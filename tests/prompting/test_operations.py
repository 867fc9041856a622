"""Rendering costs at most twice the work for a conversation of twice the size."""

from tests.operations import growth
from tests.tables import table
from vinery_serving.core.request import Rendering, Tool, ToolCall
from vinery_serving.prompting.render import ChatRenderer
from vinery_serving.prompting.template import ChatTemplate

from . import templates
from .builders import MODEL, a_calling_chat, a_chat, a_message, renderer_of

TINY = (MODEL / "chat_template.jinja").read_text()
RENDERERS = [
    renderer_of(text)
    for text in (TINY, templates.CHATML, templates.LEADING_SYSTEM, templates.PARTS)
]
HI = ("user", "Hi")
CALL = ToolCall("c", "f", '{"a": [1]}')
CALLING = a_message("assistant", tool_calls=(CALL,))
DOCUMENTED = ChatRenderer(ChatTemplate("{{ documents }}{{ messages[0].content }}"))


@table(
    "renderer, chat, size",
    [
        *(
            (renderer, chat, 200)
            for renderer in RENDERERS
            for chat in (
                lambda n: a_chat(*[HI] * n),
                lambda n: a_chat(*[HI, ("system", "Be brief.")] * n),
                lambda n: a_chat(HI, a_message("assistant", tool_calls=(CALL,) * n)),
                lambda n: a_chat(HI, CALLING, *[a_message("tool", "Done", tool_call_id="c")] * n),
                lambda n: a_chat(HI, template_kwargs={f"k{at}": at for at in range(n)}),
            )
        ),
        (RENDERERS[0], lambda n: a_chat(HI, tools=(Tool("f"),) * n), 200),
        (RENDERERS[0], lambda n: a_calling_chat('{"a": [' + "[1]," * n + "1]}"), 2000),
        (DOCUMENTED, lambda n: a_chat(HI, rendering=Rendering(documents=({"a": "b"},) * n)), 200),
    ],
)
def test_a_conversation_of_twice_the_size(renderer, chat, size):
    def work(size):
        conversation = chat(size)
        return lambda: renderer.render(conversation)

    assert growth(work, size) < 2.1
