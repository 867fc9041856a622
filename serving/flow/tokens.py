"""Asks a model's tokenizer; the engine itself is not needed, and need not be running."""

from __future__ import annotations

from collections.abc import Sequence

from serving.core.errors import UnsupportedParameter
from serving.core.request import Conversation, Endpoint, GenerationRequest
from serving.core.tokens import Padding, Tokenized, TokenizeRequest
from serving.flow.directory import Engine
from serving.flow.rendering import off_loop, render
from serving.prompting.assets import ModelAssets


async def tokenize(request: TokenizeRequest, engine: Engine) -> Tokenized:
    """The tokens that a generation would be given. Raises `InvalidRequest`."""
    ids = await _token_ids(request, engine)
    return await off_loop(lambda: _tokenized(ids, request, engine), sum(map(len, ids)))


async def detokenize(token_ids: Sequence[int], engine: Engine) -> str:
    """The text of these tokens. Raises `InvalidRequest` for ids that the model lacks."""
    return await off_loop(lambda: engine.assets.text_of_ids(token_ids), len(token_ids))


async def count(request: GenerationRequest, engine: Engine) -> int:
    """How many tokens the engine would be given. Raises `InvalidRequest`."""
    return sum(prompt.num_tokens for prompt in await render(request, engine))


async def _token_ids(request: TokenizeRequest, engine: Engine) -> list[Sequence[int]]:
    prompt = request.prompt
    if isinstance(prompt, Conversation):
        chat = GenerationRequest(Endpoint.CHAT, request.model, prompt, encoding=request.encoding)
        return [each.token_ids for each in await render(chat, engine)]

    def tokenize_all() -> list[Sequence[int]]:
        return [engine.assets.ids_of_text(text, request.encoding) for text in prompt]

    return await off_loop(tokenize_all, sum(map(len, prompt)))


def _tokenized(ids: list[Sequence[int]], request: TokenizeRequest, engine: Engine) -> Tokenized:
    padding, names = request.padding, None
    if padding is not None:
        ids = [_padded(each, padding, engine.assets) for each in ids]
    if request.wants_token_strings:
        name = engine.assets.tokenizer.token_name
        names = tuple(tuple(map(name, each)) for each in ids)
    return Tokenized(tuple(map(tuple, ids)), names, engine.max_context)


def _padded(ids: Sequence[int], padding: Padding, assets: ModelAssets) -> Sequence[int]:
    pad_id = assets.pad_id
    if pad_id is None:
        raise UnsupportedParameter(
            "The tokenizer of this model has no token to pad with.", param="pad_to_max_length"
        )
    missing = [pad_id] * (padding.length - len(ids))
    return [*missing, *ids] if padding.is_left else [*ids, *missing]
