"""Refuses prompts that cannot fit into the context, before they are rendered or tokenized.

Tokenizing takes a microsecond for a few bytes. That a text of 20 MB does not fit into a context
of 4,000 tokens is known from its length and the longest token. A prompt that may be
truncated is an exception. Of a conversation that may be shortened, the oldest messages that
cannot fit are left out.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from vinery_serving.core.errors import ContextTooLong
from vinery_serving.core.request import PROMPT_FIELDS, Conversation, GenerationRequest, RawPrompts
from vinery_serving.gateway.preparing.rendering import droppable, least_output
from vinery_serving.prompting.assets import ModelAssets


class _Model(Protocol):
    @property
    def assets(self) -> ModelAssets: ...

    @property
    def max_context(self) -> int | None: ...


def within_context(request: GenerationRequest, model: _Model) -> GenerationRequest:
    """Return the request, perhaps with fewer messages. Raises `ContextTooLong` if its own texts
    or tokens cannot fit. What its template renders is looked at in `rendering`."""
    prompt, max_context = request.prompt, model.max_context
    if max_context is None or request.encoding.max_tokens is not None:
        return request
    if isinstance(prompt, Conversation) and prompt.drops_oldest:
        return replace(request, prompt=_without_oldest(prompt, model.assets, max_context))
    least = _least_tokens(prompt, model.assets)
    if least > max_context:
        raise ContextTooLong(
            max_context=max_context,
            num_prompt_tokens=least,
            num_output_tokens=least_output(request),
            param=PROMPT_FIELDS[request.endpoint],
            is_bound=not _has_ids(prompt),
        )
    return request


def _has_ids(prompt: Conversation | RawPrompts) -> bool:
    """Whether the prompt is tokens already, so that their number is exact."""
    if isinstance(prompt, Conversation):
        return prompt.token_ids is not None
    return not any(isinstance(each, str) for each in (*prompt.prompts, prompt.suffix))


def _without_oldest(
    conversation: Conversation, assets: ModelAssets, max_context: int
) -> Conversation:
    """The conversation without the oldest messages that cannot fit into the context with all
    that follows them. `rendering.shortened` would leave these out, too, but only after it has
    rendered them."""
    messages, bound = conversation.messages, assets.tokenizer.bound
    spans = droppable(messages)
    kept = set(range(len(messages))).difference(*spans)

    def least_bytes(indexes: Iterable[int]) -> int:
        part = replace(conversation, messages=tuple(messages[at] for at in indexes))
        return sum(map(bound.least_bytes, assets.surely_shown(part)))

    num_bytes = least_bytes(kept)
    for span in reversed(spans):
        num_bytes += least_bytes(span)
        if bound.tokens_of(num_bytes) > max_context:
            break
        kept.update(span)
    return replace(conversation, messages=tuple(messages[at] for at in sorted(kept)))


def _least_tokens(prompt: Conversation | RawPrompts, assets: ModelAssets) -> int:
    """The fewest tokens of the longest prompt."""
    bound = assets.tokenizer.bound
    if isinstance(prompt, Conversation):
        if prompt.token_ids is not None:
            return len(prompt.token_ids)
        return bound.least_tokens(*assets.surely_shown(prompt))
    suffix = bound.least_tokens(prompt.suffix or "")
    return suffix + max(
        bound.least_tokens(each) if isinstance(each, str) else len(each) for each in prompt.prompts
    )
