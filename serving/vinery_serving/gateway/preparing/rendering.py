"""Renders the prompts of requests, tokenizes texts for embeddings and scores, and answers requests
to a model's tokenizer.

The engine is not needed and need not run. `truncation: auto` fits a conversation into the
context by leaving out its oldest messages.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter, cited
from vinery_serving.core.pooling import (
    Padding,
    PoolingDraft,
    PoolingInput,
    PoolingRequest,
    TextPair,
    TextRole,
    Tokenized,
    TokenizeRequest,
    Truncation,
)
from vinery_serving.core.request import (
    ALL_THAT_FIT,
    PROMPT_FIELDS,
    Conversation,
    Encoding,
    Endpoint,
    GenerationRequest,
    Message,
    RawPrompts,
    Role,
)
from vinery_serving.gateway.engines.models import LoadedModel
from vinery_serving.prompting.assets import ModelAssets, Prompt
from vinery_serving.prompting.pooling_texts import PairTooLong, PoolingTexts, TokenizedText
from vinery_serving.prompting.render import render_untrusted

# A shortened conversation leaves one part in eight of the context for an answer without a
# limit. Shortened to the last token, the answer would be cut after its first word.
_ANSWER_SHARE: Final = 8
_INSTRUCTING: Final = (Role.SYSTEM, Role.DEVELOPER)


def render(request: GenerationRequest, model: LoadedModel) -> tuple[Prompt, ...]:
    """Return the token ids for each prompt of the request. Raises `InvalidRequest`."""
    assets, prompt = model.assets, request.prompt
    encoding = _encoding(request, model)
    if isinstance(prompt, RawPrompts):
        encode = partial(assets.encode_prompt, encoding=encoding, suffix=prompt.suffix)
        return tuple(map(encode, prompt.prompts))
    try:
        return (_render_fitting(request, prompt, model, encoding),)
    except InvalidRequest as error:
        # Errors of templates name `messages` by number, which is the client's number in chats only.
        if request.endpoint is not Endpoint.CHAT and (error.param or "").startswith("messages"):
            error.param = PROMPT_FIELDS[request.endpoint]
        raise


def count_tokens(request: GenerationRequest, model: LoadedModel) -> int:
    return sum(prompt.num_tokens for prompt in render(request, model))


def least_output(request: GenerationRequest) -> int:
    """Return the number of output tokens that must fit into the context with the prompt."""
    stopping = request.stopping
    return (None if stopping.may_shrink else stopping.max_tokens) or stopping.min_tokens


def _encoding(request: GenerationRequest, model: LoadedModel) -> Encoding:
    """The encoding with a number instead of `ALL_THAT_FIT`, so that the answer fits, too."""
    encoding = request.encoding
    if encoding.max_tokens != ALL_THAT_FIT:
        return encoding
    if model.max_context is None:
        return replace(encoding, max_tokens=None)
    max_tokens = model.max_context - max(1, least_output(request))
    # If the answer alone exceeds the context, the prompt is refused as too long later.
    return replace(encoding, max_tokens=max_tokens if max_tokens > 0 else None)


def _render_fitting(
    request: GenerationRequest, conversation: Conversation, model: LoadedModel, encoding: Encoding
) -> Prompt:
    """The prompt of a conversation, shortened if that is necessary and allowed."""
    render_one = partial(_render_conversation, model=model, encoding=encoding)
    prompt = render_one(conversation)
    if not conversation.drops_oldest or model.max_context is None:
        return prompt
    if prompt.num_tokens + max(1, least_output(request)) <= model.max_context:
        return prompt
    stopping = request.stopping
    share = max(1, stopping.min_tokens, model.max_context // _ANSWER_SHARE)
    num_output = stopping.max_tokens or share
    if stopping.may_shrink:
        num_output = min(num_output, share)
    max_num_tokens = model.max_context - num_output
    return shortened(conversation, render_one, max_num_tokens=max_num_tokens) or prompt


def _render_conversation(
    conversation: Conversation, model: LoadedModel, encoding: Encoding
) -> Prompt:
    if conversation.rendering.template is None or conversation.token_ids is not None:
        return model.assets.render(conversation, encoding)
    if not model.entry.options.trust_request_chat_template:
        raise UnsupportedParameter(
            "This model takes no `chat_template` from requests. Leave it out, or ask the "
            "administrator to set the model's option trust_request_chat_template.",
            param="chat_template",
        )
    if not model.is_isolated:
        raise RuntimeError("a template of a request may run in a worker process only")
    rendered = render_untrusted(conversation, model.assets.folder.named_tokens)
    return model.assets.encode_rendered(rendered, conversation, encoding)


def shortened(
    conversation: Conversation, render: Callable[[Conversation], Prompt], *, max_num_tokens: int
) -> Prompt | None:
    """Return the prompt of the longest shorter conversation of at most `max_num_tokens`, or of the
    shortest if none is that short. None when no message may be left out. Renders about log2(number
    of turns) times, because only a rendered part has a known number of tokens. Raises
    `InvalidRequest` as `render` does."""
    spans = droppable(conversation.messages)
    if not spans:
        return None
    best = render(_without(conversation, spans))
    too_few, enough = 0, len(spans)  # numbers of spans to leave out
    if best.num_tokens > max_num_tokens:
        return best
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        prompt = render(_without(conversation, spans[:middle]))
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
    """Return the indexes of the messages that may be left out, oldest first, in spans of messages
    that are left out together. Instructions, summaries, the last question and the newest turn stay:
    without them there is nothing to answer. Before the last question, a span is a question with all
    messages up to the next, so that the rest begins with a question: many templates demand that.
    After the last question, a span is a turn. A tool call and its output are in one span."""
    questions = [
        at for at, each in enumerate(messages) if each.role is Role.USER and not each.stays
    ]
    last_question = questions[-1] if questions else -1
    answered_at = {
        message.tool_call_id: at for at, message in enumerate(messages) if message.tool_call_id
    }
    spans: list[list[int]] = []
    last_output = -1  # the index of the last output of the calls so far
    for at, message in enumerate(messages):
        begins = message.role is Role.USER if at < last_question else message.role is not Role.TOOL
        if not (message.role in _INSTRUCTING or message.stays or at == last_question):
            if not spans or (begins and at > last_output):
                spans.append([])
            spans[-1].append(at)
        outputs = [answered_at.get(call.id, -1) for call in message.tool_calls]
        last_output = max(last_output, *outputs, -1)
    newest = len(messages) - 1
    if newest > 0 and messages[newest].stays and messages[newest - 1].role is Role.TOOL:
        newest -= 1
    if spans and spans[-1][-1] == newest:
        spans.pop()
    return spans


def tokenize(request: TokenizeRequest, model: LoadedModel) -> Tokenized:
    """Return the tokens that a generation would have as its prompt. Raises `InvalidRequest`."""
    prompt, assets, strings = request.prompt, model.assets, None
    if isinstance(prompt, Conversation):
        chat = GenerationRequest(Endpoint.CHAT, request.model, prompt, encoding=request.encoding)
        ids: list[Sequence[int]] = [each.token_ids for each in render(chat, model)]
    else:
        ids = [assets.ids_of_text(each, request.encoding) for each in prompt]
    if request.padding is not None:
        ids = [_padded(each, request.padding, assets) for each in ids]
    if request.wants_token_strings:
        name = assets.tokenizer.token_name
        strings = tuple(tuple(map(name, each)) for each in ids)
    return Tokenized(tuple(map(tuple, ids)), strings, model.max_context)


def _padded(ids: Sequence[int], padding: Padding, assets: ModelAssets) -> Sequence[int]:
    pad_id = assets.pad_id
    if pad_id is None:
        raise UnsupportedParameter(
            "The tokenizer of this model has no token to pad with.", param="pad_to_max_length"
        )
    missing = [pad_id] * (padding.length - len(ids))
    return [*missing, *ids] if padding.is_left else [*ids, *missing]


# -- The texts of embeddings, rerank and score requests


def draft_pooling(request: PoolingRequest, model: LoadedModel) -> PoolingDraft:
    """Return the tokens of all inputs. Raises `InvalidRequest`, also for a text that is too long
    and may not be cut."""
    texts = PoolingTexts(model.assets, model.max_context)
    before = _prefix(request, model)
    found = [
        _tokenized(texts, each, before, request, index) for index, each in enumerate(request.inputs)
    ]
    return PoolingDraft(
        texts=tuple(each.as_bytes() for each in found),
        second_starts=tuple(each.second_start for each in found),
        num_tokens=sum(len(each.token_ids) for each in found),
        dimensions=request.dimensions,
    )


def _tokenized(
    texts: PoolingTexts, given: PoolingInput, before: str, request: PoolingRequest, index: int
) -> TokenizedText:
    param = request.param if len(request.inputs) == 1 else f"{request.param}[{index}]"
    most, truncation = texts.max_tokens, request.truncation
    limit = _limit(truncation, most, param)
    keeps_start = truncation is None or truncation.keeps_start
    try:
        if isinstance(given, TextPair):
            found = texts.pair(given, limit, request.max_document_tokens, keeps_start=keeps_start)
        elif isinstance(given, str):
            found = texts.text(before + given, limit, keeps_start=keeps_start, param=param)
        else:
            found = texts.ids(given, limit, keeps_start=keeps_start, param=param)
    except PairTooLong as error:
        raise InvalidRequest(str(error), param="query") from None
    if not found.token_ids:
        raise InvalidRequest("The text has no tokens: send at least one character.", param=param)
    if most is not None and len(found.token_ids) > most:
        is_ranked = request.endpoint is Endpoint.RERANK
        raise InvalidRequest(
            f"`{param}` has {len(found.token_ids)} tokens"
            f"{' with those of its query' if isinstance(given, TextPair) else ''}, and this model "
            f"takes {most}. Send a shorter text, divide it, or let it be cut with "
            "`truncate_prompt_tokens: -1`"
            f"{' or a smaller `max_tokens_per_doc`' if is_ranked else ''}.",
            param=param,
            code="context_length_exceeded",
        )
    return found


def _limit(truncation: Truncation | None, most: int | None, param: str) -> int | None:
    if truncation is None:
        return None
    limit = truncation.max_tokens
    if limit is not None and most is not None and limit > most:
        raise InvalidRequest(
            f"`truncate_prompt_tokens` must be at most {most}, which this model takes.",
            param="truncate_prompt_tokens",
        )
    return most if limit is None else limit


def _prefix(request: PoolingRequest, model: LoadedModel) -> str:
    """The text before each input. Raises `InvalidRequest` for a name that the model lacks."""
    folder, options = model.pooling, model.entry.options
    if request.prompt_name is not None:
        if request.prompt_name not in folder.prompts:
            known = f"only {', '.join(sorted(folder.prompts))}" if folder.prompts else "none"
            raise UnsupportedParameter(
                f"`prompt_name` is `{cited(request.prompt_name)}`, but of such texts this model "
                f"has {known}.",
                param="prompt_name",
            )
        return folder.prompts[request.prompt_name]
    match request.role:
        case TextRole.QUERY:
            return options.query_prefix or folder.prompts.get("query", "")
        case TextRole.DOCUMENT:
            named = folder.prompts.get("document") or folder.prompts.get("passage", "")
            return options.document_prefix or named
        case None:
            return folder.default_prompt
