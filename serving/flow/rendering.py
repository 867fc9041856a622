"""Renders the prompts of requests, and answers requests to a model's tokenizer.

The engine is not needed and need not run. `truncation: auto` fits a conversation into the
context by leaving out its oldest messages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from serving.core.errors import InvalidRequest, UnsupportedParameter
from serving.core.request import (
    ALL_THAT_FIT,
    Conversation,
    Encoding,
    Endpoint,
    GenerationRequest,
    Message,
    RawPrompts,
    Role,
)
from serving.core.tokens import Padding, Tokenized, TokenizeRequest
from serving.flow.directory import Engine
from serving.prompting.assets import ModelAssets, Prompt
from serving.prompting.untrusted import UntrustedTemplates

ResultT = TypeVar("ResultT")

# Longer texts are processed in a thread: tokenizing them would block every stream of this
# process.
_LONG_CHARS: Final = 20_000
# A shortened conversation leaves one part in eight of the context for an answer without a
# limit. Shortened to the last token, the answer would be cut after its first word.
_ANSWER_SHARE: Final = 8
# The clients' names for the prompt, for error messages.
PROMPT_FIELDS: Final = {
    Endpoint.CHAT: "messages",
    Endpoint.COMPLETIONS: "prompt",
    Endpoint.RESPONSES: "input",
}
_INSTRUCTING: Final = (Role.SYSTEM, Role.DEVELOPER)
_UNTRUSTED_TEMPLATES: Final = UntrustedTemplates()


async def render(request: GenerationRequest, engine: Engine) -> tuple[Prompt, ...]:
    """Return the token ids for each prompt of the request.

    Raises `InvalidRequest`, and `Overloaded` while too many templates of requests run.
    """
    assets, prompt = engine.assets, request.prompt
    encoding = _encoding(request, engine)
    if isinstance(prompt, RawPrompts):
        num_chars = sum(len(each) for each in prompt.prompts) + len(prompt.suffix or "")
        encode = partial(assets.encode_prompt, encoding=encoding, suffix=prompt.suffix)
        return await off_loop(lambda: tuple(map(encode, prompt.prompts)), num_chars)
    try:
        return (await _render_fitting(request, prompt, engine, encoding),)
    except InvalidRequest as error:
        # Errors of templates name `messages`, whatever the endpoint calls the field.
        if request.endpoint is Endpoint.RESPONSES and (error.param or "").startswith("messages"):
            error.param = PROMPT_FIELDS[Endpoint.RESPONSES]
        raise


async def tokenize(request: TokenizeRequest, engine: Engine) -> Tokenized:
    """Return the tokens that a generation would have as its prompt. Raises `InvalidRequest`."""
    ids = await _token_ids(request, engine)
    return await off_loop(lambda: _tokenized(ids, request, engine), sum(map(len, ids)))


async def detokenize(token_ids: Sequence[int], engine: Engine) -> str:
    """Return the text of these tokens. Raises `InvalidRequest` for unknown ids."""
    return await off_loop(lambda: engine.assets.text_of_ids(token_ids), len(token_ids))


async def count_tokens(request: GenerationRequest, engine: Engine) -> int:
    """Return the number of prompt tokens of a request. Raises `InvalidRequest`."""
    return sum(prompt.num_tokens for prompt in await render(request, engine))


async def off_loop(work: Callable[[], ResultT], num_chars: int) -> ResultT:
    """Run `work` here, or in a thread if the text is long."""
    return await asyncio.to_thread(work) if num_chars > _LONG_CHARS else work()


def least_output(request: GenerationRequest) -> int:
    """Return the number of output tokens that must fit into the context with the prompt."""
    return request.stopping.max_tokens or request.stopping.min_tokens


def _encoding(request: GenerationRequest, engine: Engine) -> Encoding:
    """The encoding with a number of tokens instead of `ALL_THAT_FIT`. The requested answer
    fits, too."""
    encoding = request.encoding
    if encoding.max_tokens != ALL_THAT_FIT:
        return encoding
    if engine.max_context is None:
        return replace(encoding, max_tokens=None)
    max_tokens = engine.max_context - max(1, least_output(request))
    # If the answer alone exceeds the context, the prompt is refused as too long later.
    return replace(encoding, max_tokens=max_tokens if max_tokens > 0 else None)


async def _render_fitting(
    request: GenerationRequest, conversation: Conversation, engine: Engine, encoding: Encoding
) -> Prompt:
    """The prompt of a conversation, shortened if that is necessary and allowed."""
    render_one = partial(_render_conversation, engine=engine, encoding=encoding)
    prompt = await render_one(conversation)
    if not conversation.drops_oldest or engine.max_context is None:
        return prompt
    if prompt.num_tokens + max(1, least_output(request)) <= engine.max_context:
        return prompt
    stopping = request.stopping
    num_output = stopping.max_tokens or max(
        1, stopping.min_tokens, engine.max_context // _ANSWER_SHARE
    )
    max_num_tokens = engine.max_context - num_output
    return await shortened(conversation, render_one, max_num_tokens=max_num_tokens) or prompt


async def _render_conversation(
    conversation: Conversation, engine: Engine, encoding: Encoding
) -> Prompt:
    if conversation.rendering.template is not None and conversation.token_ids is None:
        return await _render_untrusted(conversation, engine, encoding)
    num_chars = len(conversation.token_ids or ()) + sum(
        len(part.text) for message in conversation.messages for part in message.content
    )
    return await off_loop(lambda: engine.assets.render(conversation, encoding), num_chars)


async def _render_untrusted(
    conversation: Conversation, engine: Engine, encoding: Encoding
) -> Prompt:
    if not engine.entry.options.trust_request_chat_template:
        raise UnsupportedParameter(
            "This model takes no `chat_template` from requests. Leave it out, or ask the "
            "administrator to set the model's option trust_request_chat_template.",
            param="chat_template",
        )
    assets = engine.assets
    rendered = await _UNTRUSTED_TEMPLATES.render(conversation, assets.folder.named_tokens)
    return await off_loop(
        lambda: assets.encode_rendered(rendered, conversation, encoding), len(rendered.text)
    )


async def shortened(
    conversation: Conversation,
    render: Callable[[Conversation], Awaitable[Prompt]],
    *,
    max_num_tokens: int,
) -> Prompt | None:
    """Return the prompt of the longest shorter conversation of at most `max_num_tokens`, or of
    the shortest if none is that short. None when no message may be left out.

    Renders about log2(number of turns) times, because only a rendered part has a known number
    of tokens. Raises `InvalidRequest` as `render` does.
    """
    spans = droppable(conversation.messages)
    if not spans:
        return None
    best = await render(_without(conversation, spans))
    too_few, enough = 0, len(spans)  # numbers of spans to leave out
    if best.num_tokens > max_num_tokens:
        return best
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        prompt = await render(_without(conversation, spans[:middle]))
        if prompt.num_tokens <= max_num_tokens:
            best, enough = prompt, middle
        else:
            too_few = middle
    return best


def _without(conversation: Conversation, spans: Sequence[Sequence[int]]) -> Conversation:
    dropped = {at for span in spans for at in span}
    kept = [message for at, message in enumerate(conversation.messages) if at not in dropped]
    return replace(conversation, messages=tuple(kept))


def droppable(messages: Sequence[Message]) -> list[list[int]]:
    """Return the indexes of the messages that may be left out, oldest first, in spans of
    messages that are left out together.

    Instructions, the last question and the newest turn stay: without them there is nothing to
    answer. Before the last question, a span is a question with all that follows it, so that
    the rest begins with a question, as many templates demand. After the last question, a span
    is a turn. A tool call and its output are in one span.
    """
    questions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    last_question = questions[-1] if questions else -1
    answered_at = {
        message.tool_call_id: at for at, message in enumerate(messages) if message.tool_call_id
    }
    spans: list[list[int]] = []
    last_output = -1  # the index of the last output of the calls so far
    for at, message in enumerate(messages):
        begins = message.role is Role.USER if at < last_question else message.role is not Role.TOOL
        if message.role not in _INSTRUCTING and at != last_question:
            if not spans or (begins and at > last_output):
                spans.append([])
            spans[-1].append(at)
        outputs = [answered_at.get(call.id, -1) for call in message.tool_calls]
        last_output = max(last_output, *outputs, -1)
    if spans and spans[-1][-1] == len(messages) - 1:
        spans.pop()
    return spans


async def _token_ids(request: TokenizeRequest, engine: Engine) -> list[Sequence[int]]:
    prompt = request.prompt
    if isinstance(prompt, Conversation):
        chat = GenerationRequest(Endpoint.CHAT, request.model, prompt, encoding=request.encoding)
        return [each.token_ids for each in await render(chat, engine)]
    ids_of_text = partial(engine.assets.ids_of_text, encoding=request.encoding)
    return await off_loop(lambda: list(map(ids_of_text, prompt)), sum(map(len, prompt)))


def _tokenized(ids: list[Sequence[int]], request: TokenizeRequest, engine: Engine) -> Tokenized:
    padding, strings = request.padding, None
    if padding is not None:
        ids = [_padded(each, padding, engine.assets) for each in ids]
    if request.wants_token_strings:
        name = engine.assets.tokenizer.token_name
        strings = tuple(tuple(map(name, each)) for each in ids)
    return Tokenized(tuple(map(tuple, ids)), strings, engine.max_context)


def _padded(ids: Sequence[int], padding: Padding, assets: ModelAssets) -> Sequence[int]:
    pad_id = assets.pad_id
    if pad_id is None:
        raise UnsupportedParameter(
            "The tokenizer of this model has no token to pad with.", param="pad_to_max_length"
        )
    missing = [pad_id] * (padding.length - len(ids))
    return [*missing, *ids] if padding.is_left else [*ids, *missing]
