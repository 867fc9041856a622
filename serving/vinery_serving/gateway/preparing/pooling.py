"""Tokenizes the texts of embeddings, rerank and score requests."""

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter, cited
from vinery_serving.core.pooling import (
    PoolingDraft,
    PoolingInput,
    PoolingRequest,
    TextPair,
    TextRole,
    Truncation,
)
from vinery_serving.core.tasks import Endpoint
from vinery_serving.gateway.engines.models import LoadedModel
from vinery_serving.prompting.pooling_texts import PairTooLong, PoolingTexts, TokenizedText


def draft(request: PoolingRequest, model: LoadedModel) -> PoolingDraft:
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
    """To how many tokens a text is cut; None: no cut."""
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
