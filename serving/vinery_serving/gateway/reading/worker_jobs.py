"""What worker processes do with clients' requests. They know no Django, engine or event loop.

A job gets its session, the body, and its arguments. What it returns is small: prompts leave it as
token ids only, and the web process has no other part of a large request.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from types import ModuleType
from typing import Any, cast

from msgspec import Struct

from vinery_serving.core import dialects, field_limits, unused
from vinery_serving.core import media as core_media
from vinery_serving.core import pooling as core_pooling
from vinery_serving.core import request as core_request
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.errors import ModelNotReady
from vinery_serving.core.events import TokenCounts
from vinery_serving.core.media import InlineSource
from vinery_serving.core.pooling import PoolingDraft
from vinery_serving.core.request import (
    PROMPT_FIELDS,
    Conversation,
    Endpoint,
    GenerationRequest,
    RawPrompts,
    Role,
)
from vinery_serving.gateway.engines.directory import LoadedModel, ModelEntry
from vinery_serving.gateway.preparing.logits import num_top_of_prompt
from vinery_serving.gateway.preparing.prepare import prepare
from vinery_serving.gateway.preparing.prepared import Draft
from vinery_serving.gateway.reading import media as intake_media
from vinery_serving.gateway.reading.media import RequestMedia
from vinery_serving.gateway.reading.reading import (
    TOKENS_JOBS,
    Head,
    head_of,
    pooling_head,
    without_files,
)
from vinery_serving.gateway.running.pooling import draft as draft_pooling
from vinery_serving.gateway.workers.worker import Session
from vinery_serving.grammars.families.registry import select_family
from vinery_serving.media import decoding
from vinery_serving.media.decoding import DecodeLimits
from vinery_serving.prompting.assets import ModelAssets, Prompt
from vinery_serving.prompting.folder import FAST_TOKENIZER, UnusableFolder
from vinery_serving.protocols import parse
from vinery_serving.protocols.chat.exchange import ChatExchange
from vinery_serving.protocols.common.calls import FunctionCall, ToolCalls
from vinery_serving.protocols.common.exchange import Exchange
from vinery_serving.protocols.common.limited import refuse_long
from vinery_serving.protocols.completions.exchange import CompletionsExchange
from vinery_serving.protocols.messages.exchange import MessagesExchange
from vinery_serving.protocols.pooling.common import PoolingExchange
from vinery_serving.protocols.pooling.embeddings import EmbeddingsExchange
from vinery_serving.protocols.pooling.parsing import parse_pooling
from vinery_serving.protocols.pooling.rerank import Document, RerankExchange, ScoreExchange
from vinery_serving.protocols.responses.exchange import ResponsesExchange
from vinery_serving.transport import messages

log = logging.getLogger(__name__)


class _IsolatedModel(LoadedModel):
    is_isolated = True


# The models of this process, by id.
_models: dict[int, LoadedModel] = {}


def load(wanted: tuple[Iterable[ModelEntry], Mapping[str, int], DecodeLimits]) -> None:
    """Load these models before the fork, forget others, and set the limits of fields and files.

    OpenVINO's tokenizers start threads, which no fork survives, so a worker loads them when it
    needs them.
    """
    entries, limits, of_files = wanted
    field_limits.configure(limits)
    intake_media.configure(of_files)
    _load({entry.id: entry for entry in entries})


def _load(wanted: Mapping[int, ModelEntry]) -> None:
    for id_ in list(_models):
        if id_ not in wanted:
            del _models[id_]
    for entry in wanted.values():
        if (entry.folder / FAST_TOKENIZER).is_file():
            try:
                if _model_of(entry).assets.vision is not None:
                    decoding.load_libraries()
            except Exception as error:  # the web process reports it
                log.warning("model not loaded name=%s: %s", entry.name, type(error).__name__)


def before_call(arguments: Iterable[object]) -> None:
    """Load the models among the arguments. Raises `ModelNotReady`."""
    for each in arguments:
        if isinstance(each, ModelEntry):
            _model_of(each)


def _model_of(entry: ModelEntry) -> LoadedModel:
    model = _models.get(entry.id)
    if model is None or model.entry != entry:
        try:
            assets = ModelAssets.load(entry.folder, entry.options.chat_template)
        except UnusableFolder:
            raise ModelNotReady(f"The model {entry.name} cannot be loaded.") from None
        family = select_family(entry.options.output_format, assets.template_text)
        model = _models[entry.id] = _IsolatedModel(entry, assets, family)
    return model


def _parse_request(
    session: Session, body: bytes, endpoint: str, tree: str, fingerprint: str | None
) -> Head:
    exchange = parse(Endpoint(endpoint), body, DIALECTS[tree], fingerprint=fingerprint)
    session.state["exchange"] = exchange
    session.state["media"] = RequestMedia(exchange.request.media)
    return without_files(head_of(exchange.request))


def _decode_media(
    session: Session, body: bytes, entry: ModelEntry, index: int, source: InlineSource | None
) -> None:
    """Decode a part of the request; `source` is its file, if it was fetched."""
    media: RequestMedia = session.state["media"]
    vision = _model_of(entry).assets.vision
    assert vision is not None, "a text model takes no media"
    media.decode(index, source, vision.within(entry.options.max_image_pixels))


def _prepare_parsed(
    session: Session, body: bytes, entry: ModelEntry, options: Mapping[str, Any]
) -> tuple[Exchange, Draft]:
    exchange, media = session.state["exchange"], session.state["media"]
    draft = _prepare(_with_media(exchange.request, media), entry, options)
    draft = replace(draft, media=media.usage)
    return replace(exchange, request=_without_prompt(exchange.request)), draft


def _with_media(request: GenerationRequest, media: RequestMedia) -> GenerationRequest:
    """The request with pictures instead of files. Raises `InvalidRequest`: documents may have more
    text than a prompt."""
    if not request.media:
        return request
    request = request.with_media(media.parts_of)
    refuse_long(PROMPT_FIELDS[request.endpoint], request.prompt.num_chars)
    return request


def _prepare_request(
    session: Session,
    body: bytes,
    request: GenerationRequest,
    entry: ModelEntry,
    options: Mapping[str, Any],
) -> Draft:
    return _prepare(request, entry, options)


def _prepare(request: GenerationRequest, entry: ModelEntry, options: Mapping[str, Any]) -> Draft:
    """Prepare a request; `options` are keyword arguments of `prepare`."""
    draft = prepare(request, _model_of(entry), **options)
    keeps_text = _needs_text(draft.request)
    # The pixels are in the submissions.
    prompts = tuple(
        replace(each, text=each.text if keeps_text else None, media=()) for each in draft.prompts
    )
    return replace(draft, request=_without_prompt(draft.request), prompts=prompts)


def _needs_text(request: GenerationRequest) -> bool:
    """Whether the answer may contain the text of its prompt, or its length."""
    wants_text = request.wants_prompt_text or request.wants_token_ids or request.counts_prompt_chars
    return request.prompt.echo or wants_text or num_top_of_prompt(request) is not None


def _without_prompt(request: GenerationRequest) -> GenerationRequest:
    """The request without what only rendering needs. It has as many prompts as before."""
    prompt, grammar = request.prompt, request.grammar
    slim: Conversation | RawPrompts
    if isinstance(prompt, RawPrompts):
        suffix = None if prompt.suffix is None else ""
        slim = replace(prompt, prompts=("",) * len(prompt.prompts), suffix=suffix)
    else:
        last = prompt.messages[-1:] if prompt.echo else ()
        slim = replace(
            prompt,
            messages=tuple(each for each in last if each.role is Role.ASSISTANT),
            template_kwargs={},
            rendering=replace(prompt.rendering, template=None, documents=()),
            token_ids=None,
        )
    return replace(request, prompt=slim, grammar=grammar and replace(grammar, source=""))


def _parse_tokens(session: Session, body: bytes, name: str, tree: str) -> Head:
    head, session.state["parsed"] = TOKENS_JOBS[name].parse(body, tree)
    session.state["media"] = RequestMedia(head.media)
    return without_files(head)


def _answer_tokens(session: Session, body: bytes, name: str, entry: ModelEntry) -> bytes:
    parsed, media = session.state["parsed"], session.state["media"]
    if media.usage.num_files:
        parsed = parsed.with_media(media.parts_of)
    return TOKENS_JOBS[name].answer(parsed, _model_of(entry))


def _parse_pooling(session: Session, body: bytes, endpoint: str, is_v2: bool) -> Head:  # noqa: FBT001 an argument of a call
    exchange = parse_pooling(Endpoint(endpoint), body, is_v2=is_v2)
    session.state["pooling"] = exchange
    return pooling_head(exchange.request)


def _draft_pooling(
    session: Session, body: bytes, entry: ModelEntry
) -> tuple[PoolingExchange, PoolingDraft]:
    exchange = session.state["pooling"]
    draft = draft_pooling(exchange.request, _model_of(entry))
    slim = replace(exchange.request, inputs=())
    return replace(exchange, request=slim), draft


def _types_in(module: ModuleType) -> list[type]:
    """The dataclasses, enums and structs that a module defines, in their order."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and each.__module__ == module.__name__
        and (hasattr(each, "__dataclass_fields__") or issubclass(each, Enum | Struct))
    ]


JOBS = {
    "parse_request": _parse_request,
    "decode_media": _decode_media,
    "prepare_parsed": _prepare_parsed,
    "prepare_request": _prepare_request,
    "parse_tokens": _parse_tokens,
    "answer_tokens": _answer_tokens,
    "parse_pooling": _parse_pooling,
    "draft_pooling": _draft_pooling,
}
RESULT_TYPES = (
    *_types_in(core_request),
    *_types_in(dialects),
    *_types_in(unused),
    *_types_in(core_media),
    *_types_in(messages),
    *_types_in(core_pooling),
    *cast(Any, (Endpoint, Head, Draft, Prompt, TokenCounts, ToolCalls, FunctionCall)),
    *cast(Any, (Endpoint, EmbeddingsExchange, RerankExchange, ScoreExchange, Document)),
    *cast(Any, (ChatExchange, CompletionsExchange, ResponsesExchange, MessagesExchange)),
)
