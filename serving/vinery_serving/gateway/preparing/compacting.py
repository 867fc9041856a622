"""When a conversation becomes a summary, and the request that asks for the summary.

The request has the conversation and a last message that asks for the summary, because models answer
the last message. Without tools its prompt begins with the cached prompt of the turn before. A
conversation that does not fit into the context with its summary loses its oldest turns.
"""

from dataclasses import replace
from typing import Final

from vinery_serving.core.errors import ContextTooLong
from vinery_serving.core.request import (
    Conversation,
    GenerationRequest,
    Message,
    Rendering,
    Role,
    Stopping,
    TextPart,
    joined_questions,
)
from vinery_serving.gateway.engines.models import LoadedModel
from vinery_serving.gateway.preparing.prepare import prepare
from vinery_serving.gateway.preparing.prepared import Draft, Origin
from vinery_serving.gateway.preparing.rendering import least_output

_ASK: Final = (
    "Summarize the conversation up to here for an assistant that goes on without it: what the user "
    "wants, the state of the work, decisions and their reasons, names, numbers and results that "
    "are still needed, and what is open. Answer nothing else, and call no tool: write only the "
    "summary."
)
# The most tokens of a summary, which is at most a quarter of the context, or of the threshold. What
# stays of the messages of the user has as many.
_MAX_SUMMARY_TOKENS: Final = 4096


def prepare_within(request: GenerationRequest, model: LoadedModel, origin: Origin) -> Draft:
    """Return the prepared request, or that for a summary of it. Raises `InvalidRequest`."""
    above, prompt = request.compact_above, request.prompt
    if above is None or not isinstance(prompt, Conversation):
        return prepare(request, model, origin)
    rendering = prompt.rendering
    context = model.max_context or 8 * _MAX_SUMMARY_TOKENS
    if above:
        whole = replace(request, prompt=replace(prompt, drops_oldest=False), compact_above=None)
        try:
            draft = prepare(whole, model, origin)
            if draft.tokens.num_prompt_tokens <= above:
                return draft
        except ContextTooLong:
            if least_output(request) >= context:
                raise  # whatever the prompt is
    most = model.entry.options.max_tokens_limit or _MAX_SUMMARY_TOKENS
    num_tokens = min(most, _MAX_SUMMARY_TOKENS, min(above or context, context) // 4)
    asks = Message(Role.USER, (TextPart(_ASK),), stays=True)
    asking = GenerationRequest(
        request.endpoint,
        request.model,
        Conversation(
            joined_questions((*prompt.messages, asks)),
            template_kwargs=prompt.template_kwargs,
            drops_oldest=True,
            rendering=Rendering(rendering.template, rendering.uses_template, effort="none"),
        ),
        request.sampling,
        Stopping(max_tokens=num_tokens),
        is_streamed=request.is_streamed,
        dialect=request.dialect,
        handling=request.handling,
        compact_above=above,
    )
    return replace(prepare(asking, model, origin), summarizes=True)
