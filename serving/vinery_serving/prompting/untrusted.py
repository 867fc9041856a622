"""Renders chat templates that came with a request. Call it in a worker process only.

Jinja's sandbox keeps such a template from the server's objects, but not from endless loops or
texts that fill the memory. A worker process has limits for both, and may be killed.
"""

from collections.abc import Mapping
from typing import Final

from vinery_serving.core.errors import InvalidRequest, cited
from vinery_serving.core.request import Conversation
from vinery_serving.prompting.folder import UnusableFolder
from vinery_serving.prompting.render import ChatRenderer, Rendered
from vinery_serving.prompting.template import ChatTemplate

# Longer than any model's context.
_MAX_CHARS: Final = 16_000_000


def render_untrusted(conversation: Conversation, named_tokens: Mapping[str, str]) -> Rendered:
    """Return the text of a conversation with a template. Raises `InvalidRequest` for what the
    template refuses or cannot do within the limits of this process."""
    template = conversation.rendering.template
    assert template is not None
    try:
        renderer = ChatRenderer(ChatTemplate(template, named_tokens))
        rendered = renderer.render(conversation)
    except UnusableFolder as error:
        raise _refused(cited(error)) from None
    except MemoryError:
        raise _refused("The chat template takes too much memory.") from None
    if len(rendered.text) > _MAX_CHARS:
        raise _refused(f"The chat template renders more than {_MAX_CHARS} characters.")
    return rendered


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(reason, param="chat_template")
