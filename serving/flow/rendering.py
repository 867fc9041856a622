"""From a request to the prompts that its engine is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from serving.core.errors import InvalidRequest, UnsupportedParameter
from serving.core.request import (
    ALL_THAT_FIT,
    Conversation,
    Encoding,
    Endpoint,
    GenerationRequest,
    RawPrompts,
)
from serving.flow.directory import Engine
from serving.flow.shortening import shortened
from serving.prompting.assets import Prompt
from serving.prompting.untrusted import UntrustedTemplates

ResultT = TypeVar("ResultT")

# Texts above this many characters are worked on in a thread: tokenizing them would hold up
# every stream of this process.
_LONG_CHARS: Final = 20_000
# The part of the context, one in so many, that a shortened conversation leaves for an answer
# without a limit: shortened to the last token, it would be cut after its first word.
_ANSWER_SHARE: Final = 8
# What clients call the prompt, for error messages.
PROMPT_FIELDS: Final = {
    Endpoint.CHAT: "messages",
    Endpoint.COMPLETIONS: "prompt",
    Endpoint.RESPONSES: "input",
}
_GUESTS: Final = UntrustedTemplates()


async def render(request: GenerationRequest, engine: Engine) -> tuple[Prompt, ...]:
    """The prompts as the engine is given them, one for each of the request's. Raises
    `InvalidRequest`, and `Overloaded` while too many templates of requests run."""
    assets, prompt = engine.assets, request.prompt
    encoding = _encoding(request, engine)
    if isinstance(prompt, RawPrompts):
        num_chars = sum(len(each) for each in prompt.prompts) + len(prompt.suffix or "")

        def encode_all() -> tuple[Prompt, ...]:
            return tuple(
                assets.encode_prompt(each, encoding, suffix=prompt.suffix)
                for each in prompt.prompts
            )

        return await off_loop(encode_all, num_chars)
    try:
        return (await _render_fitting(request, prompt, engine, encoding),)
    except InvalidRequest as error:
        # Templates speak of messages, whatever the client calls them.
        if request.endpoint is Endpoint.RESPONSES and (error.param or "").startswith("messages"):
            error.param = PROMPT_FIELDS[Endpoint.RESPONSES]
        raise


async def off_loop(work: Callable[[], ResultT], num_chars: int) -> ResultT:
    """Long texts are worked on in a thread."""
    return await asyncio.to_thread(work) if num_chars > _LONG_CHARS else work()


async def _render_fitting(
    request: GenerationRequest, conversation: Conversation, engine: Engine, encoding: Encoding
) -> Prompt:
    """The prompt of a conversation, shortened if it must be and may be."""

    async def render_one(each: Conversation) -> Prompt:
        return await _render_conversation(each, engine, encoding)

    prompt = await render_one(conversation)
    if not conversation.drops_oldest or engine.max_context is None:
        return prompt
    if prompt.num_tokens + max(1, least_output(request)) <= engine.max_context:
        return prompt
    room = engine.max_context - _usual_output(request, engine.max_context)
    return await shortened(conversation, render_one, max_num_tokens=room) or prompt


def _usual_output(request: GenerationRequest, max_context: int) -> int:
    """The tokens that a shortened conversation leaves for its answer."""
    return request.stopping.max_tokens or max(
        1, request.stopping.min_tokens, max_context // _ANSWER_SHARE
    )


async def _render_conversation(
    conversation: Conversation, engine: Engine, encoding: Encoding
) -> Prompt:
    if conversation.rendering.template is not None and conversation.token_ids is None:
        return await _render_by_guest(conversation, engine, encoding)
    num_chars = len(conversation.token_ids or ()) + sum(
        len(part.text) for message in conversation.messages for part in message.content
    )
    return await off_loop(lambda: engine.assets.render(conversation, encoding), num_chars)


async def _render_by_guest(
    conversation: Conversation, engine: Engine, encoding: Encoding
) -> Prompt:
    if not engine.entry.options.trust_request_chat_template:
        raise UnsupportedParameter(
            "This model takes no `chat_template` from requests. Leave it out, or ask the "
            "administrator to set the model's option trust_request_chat_template.",
            param="chat_template",
        )
    assets = engine.assets
    rendered = await _GUESTS.render(conversation, assets.folder.named_tokens)
    return await off_loop(
        lambda: assets.encode_rendered(rendered, conversation, encoding), len(rendered.text)
    )


def _encoding(request: GenerationRequest, engine: Engine) -> Encoding:
    """With the number of tokens for `ALL_THAT_FIT`: the answer that was asked for fits too."""
    encoding = request.encoding
    if encoding.max_tokens != ALL_THAT_FIT:
        return encoding
    if engine.max_context is None:
        return replace(encoding, max_tokens=None)
    room = engine.max_context - max(1, least_output(request))
    # Where nothing has room, the prompt is left to be too long.
    return replace(encoding, max_tokens=room if room > 0 else None)


def least_output(request: GenerationRequest) -> int:
    """The tokens that an answer must have room for."""
    return request.stopping.max_tokens or request.stopping.min_tokens
