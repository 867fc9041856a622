"""How the bodies of endpoints are read, in the web process and in workers by the same functions.

A worker knows no Django, engine or event loop. A job gets a session, which has the body, and
arguments. Results are small: prompts leave a worker as token ids only, and the web process has no
other part of a large request. A file that crashes its decoder, or takes too long or too much
memory, ends the worker, and its part of the request is refused.
"""

import logging
import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct

from vinery_serving.core import dialects, field_limits, picture_sizes
from vinery_serving.core import media as core_media
from vinery_serving.core import memory as core_memory
from vinery_serving.core import pooling as core_pooling
from vinery_serving.core import request as core_request
from vinery_serving.core.dialects import DIALECTS
from vinery_serving.core.errors import InvalidRequest, ModelNotReady
from vinery_serving.core.events import TokenCounts
from vinery_serving.core.media import (
    NO_MEDIA,
    SEEN_PIXELS,
    Clip,
    InlineSource,
    MediaKind,
    MediaPart,
    MediaUsage,
    Page,
    Picture,
)
from vinery_serving.core.memory import Memory, Needs, ToKeep
from vinery_serving.core.pooling import PoolingDraft, PoolingRequest
from vinery_serving.core.request import (
    NOTHING_UNUSED,
    PROMPT_FIELDS,
    ContentPart,
    Conversation,
    GenerationRequest,
    PartsOf,
    RawPrompts,
    Role,
    TextPart,
    Unused,
)
from vinery_serving.core.tasks import POOLING_ENDPOINTS, Endpoint, Task
from vinery_serving.gateway.engines.models import LoadedModel, ModelEntry
from vinery_serving.gateway.preparing.prepare import prepare_within
from vinery_serving.gateway.preparing.prepared import Draft, Origin
from vinery_serving.gateway.preparing.rendering import count_tokens, draft_pooling, tokenize
from vinery_serving.gateway.preparing.steering import may_have_grammar, num_top_of_prompt
from vinery_serving.gateway.workers.worker import Codec, Session
from vinery_serving.media import decoding
from vinery_serving.media.decoding import DecodeLimits
from vinery_serving.prompting import folder as prompting_folder
from vinery_serving.prompting.assets import ModelAssets, ModelFacts, Prompt, TemplateFacts
from vinery_serving.prompting.folder import FAST_TOKENIZER, UnusableFolder
from vinery_serving.prompting.pooling_folder import PoolingFolder
from vinery_serving.prompting.template import TemplateWords
from vinery_serving.prompting.tokenizer import TokenizerFacts, TokenList
from vinery_serving.prompting.vision import Markup, QwenProcessor, SizedProcessor, VisionProcessor
from vinery_serving.protocols import PARSERS, Exchange, tokens
from vinery_serving.protocols import parse as parse_generation
from vinery_serving.protocols.chat import ChatExchange
from vinery_serving.protocols.common.reading import refuse_long
from vinery_serving.protocols.completions import CompletionsExchange
from vinery_serving.protocols.messages import exchange as messages
from vinery_serving.protocols.messages.exchange import MessagesExchange
from vinery_serving.protocols.pooling import Document, PoolingExchange, parse_pooling
from vinery_serving.protocols.responses import exchange as responses
from vinery_serving.protocols.responses.exchange import ResponsesExchange, Unrecalled
from vinery_serving.protocols.stored import READERS
from vinery_serving.transport import messages as engine_messages

log = logging.getLogger(__name__)

PreparedT = TypeVar("PreparedT")
Loaded = tuple[ModelEntry, ModelFacts]
# An answer of `/tokenize` may be longer than its body. So many pad tokens take no time.
_SHORT_PADDING: Final = 4096

# -- What is read


@dataclass(frozen=True, slots=True)
class Head:
    """The fields that the web process checks before a request is prepared."""

    model: str | None
    is_streamed: bool = False
    has_template: bool = False  # whether the request has a chat template of its own
    may_take_long: bool = False  # whether preparing may take long although the body is small
    unused: Unused = NOTHING_UNUSED
    media: tuple[MediaPart, ...] = ()  # all media of the request
    end_user: str = ""
    sent: str = ""  # the parameters, for the usage record
    # What must be recalled; then the body is read again, and only model and streaming are known.
    needs: Needs | None = None
    is_background: bool = False
    is_low_tier: bool = False
    may_compact: bool = False  # then the body may be read again


def _generation_head(request: GenerationRequest | Unrecalled) -> Head:
    if isinstance(request, Unrecalled):
        return Head(request.model, request.is_streamed, needs=request.needs)
    prompt, has_template = request.prompt, _has_template(request.prompt)
    # A prompt that is shortened may be rendered several times.
    is_shortened = isinstance(prompt, Conversation) and prompt.drops_oldest
    return Head(
        request.model,
        request.is_streamed,
        has_template,
        may_take_long=has_template or is_shortened or may_have_grammar(request),
        unused=request.unused,
        media=request.media,
        end_user=request.handling.end_user,
        sent=request.sent,
        is_background=request.handling.is_background,
        is_low_tier=request.handling.is_low_tier,
        may_compact=bool(request.compact_above),
    )


def _pooling_head(request: PoolingRequest) -> Head:
    return Head(request.model, unused=request.unused, end_user=request.end_user, sent=request.sent)


def _tokenize_head(exchange: tokens.TokenizeExchange) -> Head:
    request, padding = exchange.request, exchange.request.padding
    has_template = _has_template(request.prompt)
    is_long = padding is not None and padding.length > _SHORT_PADDING
    return Head(
        request.model,
        has_template=has_template,
        may_take_long=has_template or is_long,
        unused=exchange.unused,
        media=request.media,
    )


def _has_template(prompt: object) -> bool:
    return isinstance(prompt, Conversation) and prompt.rendering.template is not None


def _without_files(head: Head) -> Head:
    """The head without the files that came with the request: they stay in the worker."""
    empty = InlineSource(b"")
    media = tuple(
        replace(part, source=empty) if isinstance(part.source, InlineSource) else part
        for part in head.media
    )
    return replace(head, media=media)


# -- The models of this process


_models: dict[int, LoadedModel] = {}  # by id
_facts: dict[int, Loaded] = {}
_of_files = [DecodeLimits()]  # the limits of this process


def load(wanted: tuple[Iterable[Loaded], Mapping[str, int], DecodeLimits]) -> None:
    """Load these models before the fork, forget others, and set the limits of fields and files. A
    process that may be killed has read their files. OpenVINO's tokenizers start threads, which no
    fork survives, so `before_call` loads these in a worker."""
    loaded, limits, of_files = wanted
    field_limits.configure(limits)
    _of_files[:] = [of_files]
    _facts.clear()
    _facts.update((entry.id, (entry, facts)) for entry, facts in loaded)
    for id_ in _models.keys() - _facts.keys():
        del _models[id_]
    for entry, _ in loaded:
        if (entry.folder / FAST_TOKENIZER).is_file():
            try:
                if _model_of(entry).assets.vision is not None:
                    decoding.load_libraries()
            except Exception as error:  # the web process reports it
                log.warning("model not loaded name=%s: %s", entry.name, type(error).__name__)


def before_call(arguments: Iterable[object]) -> None:
    for each in arguments:
        if isinstance(each, ModelEntry):
            _model_of(each)


def _model_of(entry: ModelEntry) -> LoadedModel:
    model = _models.get(entry.id)
    if model is None or model.entry != entry:
        known, facts = _facts.get(entry.id, (None, None))
        try:
            if facts is not None and known == entry:
                assets = ModelAssets.of(facts, is_frugal=False)
            else:  # this process started before the model was read
                assets = _assets_of(entry.folder, entry.options.chat_template, entry.task)
        except UnusableFolder:
            raise ModelNotReady(f"The model {entry.name} cannot be loaded.") from None
        model = _models[entry.id] = LoadedModel(entry, assets)
        model.is_isolated = True
    return model


def _assets_of(folder: Path | str, chat_template: str, task: Task) -> ModelAssets:
    return ModelAssets.load(folder, chat_template, generates=task.is_generation)


# -- Media, which stay in the worker until the prompt is rendered


def decoded(
    part: MediaPart, source: InlineSource | None, vision: VisionProcessor
) -> tuple[tuple[ContentPart, ...], MediaUsage]:
    """Decode a part. `source` is the fetched file, if any. Raises `InvalidRequest`."""
    if source is None:
        assert isinstance(part.source, InlineSource), "the file of this part was not fetched"
        source = part.source
    if part.sha256 not in (None, sha256(source.data).hexdigest()):
        raise InvalidRequest(
            f"The SHA-256 of the file of `{part.param}` is not the one in `mm_hashes`. Send the "
            "hash of the file itself, or leave out `mm_hashes`.",
            param=part.param,
        )
    limits = _decode_limits(source)
    decoding.load_libraries()  # has an effect in a new process only, and takes a part of a second
    begun_at_s = _processor_time_s()
    with _cpu_limit(limits.cpu_s):
        parts = _decoded_parts(part, source.data, vision, limits)
    decode_s = _processor_time_s() - begun_at_s
    media = (each.source for each in parts if isinstance(each, MediaPart))
    num_pixels = sum(len(each.pixels) // 3 for each in media if isinstance(each, Picture | Clip))
    return parts, MediaUsage(1, len(source.data), num_pixels, decode_s=decode_s)


def _processor_time_s() -> float:
    """Of this process. `time.process_time` stands still between ticks while a timer is set."""
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def _decode_limits(source: InlineSource) -> DecodeLimits:
    """A fetched file has the limits of the rule that allowed it."""
    return replace(
        _of_files[0],
        max_bytes=max(len(source.data), field_limits.MEDIA_BYTES.value),
        max_pixels=source.max_pixels or field_limits.MEDIA_PIXELS.value,
        max_pages=field_limits.MEDIA_PAGES.value,
    )


@contextmanager
def _cpu_limit(cpu_s: float) -> Iterator[None]:
    """End this process if the block takes longer."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _decoded_parts(
    part: MediaPart, data: bytes, vision: VisionProcessor, limits: DecodeLimits
) -> tuple[ContentPart, ...]:
    """A document's bytes may be a picture or a video."""
    kind = part.kind
    if kind is MediaKind.DOCUMENT:
        kind = decoding.kind_of(data) or kind
    fit = partial(vision.fit, detail=part.detail, max_pixels=SEEN_PIXELS[kind])
    match kind:
        case MediaKind.IMAGE:
            picture = decoding.decode_image(data, limits, fit, part.param)
            return (replace(part, kind=kind, source=picture),)
        case MediaKind.VIDEO:
            if not vision.takes_video:
                raise InvalidRequest(
                    f"`{part.param}` is a video, but this model takes pictures only. Send single "
                    "frames as pictures.",
                    param=part.param,
                )
            clip = decoding.decode_video(data, limits, fit, part.param)
            return (replace(part, kind=kind, source=clip),)
        case MediaKind.DOCUMENT:
            return _page_parts(part, decoding.decode_document(data, limits, fit, part.param))
    raise AssertionError(f"{kind} is not decoded")


def _page_parts(part: MediaPart, pages: Sequence[Page]) -> tuple[ContentPart, ...]:
    """Each page becomes a text, headed by the file's name and the page number, and a picture."""
    name = part.filename or "File"
    parts: list[ContentPart] = []
    for number, page in enumerate(pages, 1):
        head = f"{name}, page {number} of {len(pages)}:"
        parts.append(TextPart(f"{head}\n{page.text}" if page.text else head))
        parts.append(replace(part, kind=MediaKind.IMAGE, source=page.picture, filename=None))
    return tuple(parts)


# -- Jobs


def read_model(session: Session, folder: str, chat_template: str, task: Task) -> ModelFacts:
    """Raises `ModelNotReady` with the reason for files that cannot be used."""
    try:
        return _assets_of(folder, chat_template, task).facts
    except UnusableFolder as error:
        raise ModelNotReady(str(error)) from None


def parse(session: Session, name: str, tree: str, fingerprint: str | None, memory: Memory) -> Head:
    parsed = READINGS[name].parse(session.body, tree, fingerprint, memory)
    head = READINGS[name].head(parsed)
    session.state.update(name=name, parsed=parsed, media=head.media, decoded={}, usage=NO_MEDIA)
    return _without_files(head)


def read_stored(session: Session, name: str) -> tuple[ToKeep, Unused]:
    return READERS[name](session.body)


def decode_media(
    session: Session, entry: ModelEntry, index: int, source: InlineSource | None
) -> None:
    """Decode a part of the request; `source` is the fetched file, if any."""
    state, vision = session.state, _model_of(entry).assets.vision
    assert vision is not None, "a text model takes no media"
    part: MediaPart = state["media"][index]
    parts, usage = decoded(part, source, vision.within(entry.options.max_image_pixels))
    state["decoded"][part.param] = parts
    state["usage"] += usage


def prepare_parsed(session: Session, entry: ModelEntry, origin: Origin) -> Any:
    """Return the value of `Reading.prepare`, without parts that the web process does not need."""
    state: dict[str, Any] = session.state
    reading, parsed, parts = READINGS[state["name"]], state["parsed"], state["decoded"]
    if parts:
        parsed = reading.with_media(parsed, lambda part: parts[part.param])
    return reading.slim(reading.prepare(parsed, _model_of(entry), origin), state["usage"])


def _exchange_with_media(exchange: Any, parts_of: PartsOf) -> Any:
    """Raises `InvalidRequest`: documents may have more text than a prompt."""
    request = exchange.request.with_media(parts_of)
    refuse_long(PROMPT_FIELDS[request.endpoint], request.prompt.num_chars)
    return replace(exchange, request=request)


def _prepare(exchange: Any, model: LoadedModel, origin: Origin) -> tuple[Exchange, Draft]:
    draft = prepare_within(exchange.request, model, origin)
    if draft.summarizes:
        exchange = exchange.keeping(draft.submits[0].max_new_tokens)
    return exchange, draft


def _slim_generation(prepared: tuple[Any, Draft], usage: MediaUsage) -> tuple[Exchange, Draft]:
    exchange, draft = prepared
    request = draft.request
    wants_text = request.wants_prompt_text or request.wants_token_ids or request.counts_prompt_chars
    # The answer may contain the prompt's text or length.
    keeps_text = request.prompt.echo or wants_text or num_top_of_prompt(request) is not None
    # The pixels are in the submissions.
    prompts = tuple(
        replace(each, text=each.text if keeps_text else None, media=()) for each in draft.prompts
    )
    slim = replace(draft, request=_without_prompt(request), prompts=prompts, media=usage)
    return replace(exchange, request=_without_prompt(exchange.request)), slim


def _without_prompt(request: GenerationRequest) -> GenerationRequest:
    """The request without what only rendering needs, with the same number of prompts."""
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


# -- A row for each endpoint


@dataclass(frozen=True, slots=True)
class Reading(Generic[PreparedT]):
    """How the body of an endpoint becomes a prepared request, or the answer itself."""

    name: str  # of the endpoint
    # From a body, the URL's tree, the fingerprint and what is known. Raises `InvalidRequest`.
    parse: Callable[[bytes, str, str | None, Memory], Any]
    head: Callable[[Any], Head]  # from the value of `parse`
    # From the value of `parse`, in the web process. Raises `InvalidRequest`.
    prepare: Callable[[Any, LoadedModel, Origin], PreparedT]
    # From the value of `prepare` in a worker process to the parts for the web process.
    slim: Callable[[PreparedT, MediaUsage], PreparedT] = lambda prepared, _: prepared
    # From the value of `parse` to one with pictures instead of files. Raises `InvalidRequest`.
    with_media: Callable[[Any, PartsOf], Any] = lambda parsed, parts_of: parsed.with_media(parts_of)
    # The kind of a worker's work, for metrics: with a large body, and with a small body.
    large_work: str = "tokens"
    long_work: str = "tokens"


def _generation(endpoint: str) -> Reading[tuple[Exchange, Draft]]:
    return Reading(
        endpoint,
        lambda body, tree, fingerprint, memory: parse_generation(
            endpoint, body, DIALECTS[tree], fingerprint=fingerprint, memory=memory
        ),
        lambda read: _generation_head(read if isinstance(read, Unrecalled) else read.request),
        _prepare,
        _slim_generation,
        _exchange_with_media,
        large_work="body",
        long_work="grammar",
    )


def _without_inputs(exchange: Any) -> PoolingExchange:
    slim: PoolingExchange = replace(exchange, request=replace(exchange.request, inputs=()))
    return slim


def _pooling(endpoint: Endpoint) -> Reading[tuple[PoolingExchange, PoolingDraft]]:
    return Reading(
        endpoint,
        lambda body, tree, *_: parse_pooling(endpoint, body, is_v2=tree == "v2"),
        lambda exchange: _pooling_head(exchange.request),
        lambda exchange, model, _: (exchange, draft_pooling(exchange.request, model)),
        lambda prepared, _: (_without_inputs(prepared[0]), prepared[1]),
        large_work="pooling",
    )


def _counting(
    name: str,
    parse_count: Callable[[bytes, dialects.Dialect, Memory], GenerationRequest | Unrecalled],
    count_body: Callable[[int], bytes],
) -> Reading[bytes]:
    return Reading(
        name,
        lambda body, tree, _, memory: parse_count(body, DIALECTS[tree], memory),
        _generation_head,
        lambda request, model, _: count_body(count_tokens(request, model)),
    )


GENERATION: Final[Mapping[str, Reading[tuple[Exchange, Draft]]]] = {
    each: _generation(each) for each in PARSERS
}
POOLING: Final[Mapping[str, Reading[tuple[PoolingExchange, PoolingDraft]]]] = {
    each: _pooling(each) for each in POOLING_ENDPOINTS
}
TOKENS: Final[Mapping[str, Reading[bytes]]] = {
    each.name: each
    for each in (
        Reading(
            "tokenize",
            lambda body, tree, *_: tokens.parse_tokenize(body, DIALECTS[tree]),
            _tokenize_head,
            lambda exchange, model, _: exchange.body(tokenize(exchange.request, model)),
        ),
        Reading(
            "detokenize",
            lambda body, *_: tokens.parse_detokenize(body),
            lambda read: Head(read.wire.model, unused=read.unused),
            lambda read, model, _: tokens.text_body(model.assets.text_of_ids(read.wire.tokens)),
        ),
        _counting("responses/input_tokens", responses.parse_count, responses.count_body),
        _counting(
            "messages/count_tokens",
            lambda body, dialect, _: messages.parse_count(body, dialect),
            messages.count_body,
        ),
    )
}
READINGS: Final[Mapping[str, Reading[Any]]] = {**GENERATION, **POOLING, **TOKENS}


def _types_in(module: ModuleType) -> list[type]:
    """The dataclasses, enums and structs that a module defines, in their order."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and each.__module__ == module.__name__
        and (hasattr(each, "__dataclass_fields__") or issubclass(each, Enum | Struct))
    ]


CODEC: Final = Codec(
    (
        *_types_in(core_request),
        *_types_in(dialects),
        *_types_in(core_media),
        *_types_in(core_memory),
        *_types_in(engine_messages),
        *_types_in(core_pooling),
        *cast(Any, (Endpoint, Head, Draft, Prompt, TokenCounts)),
        *cast(Any, (PoolingExchange, Document)),
        *cast(Any, (ChatExchange, CompletionsExchange, ResponsesExchange, MessagesExchange)),
        *_types_in(picture_sizes),
        *_types_in(prompting_folder),
        *cast(Any, (type(Path()), ModelFacts, TemplateFacts, TemplateWords, PoolingFolder)),
        *cast(Any, (TokenizerFacts, TokenList, QwenProcessor, SizedProcessor, Markup)),
    )
)
