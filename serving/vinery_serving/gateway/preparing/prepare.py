"""Renders a request, or one for a summary of it, and decides all that needs no running engine.

A sampling value is the first of: the request's, the default of the model's options, of
generation_config.json, of the URL tree, the neutral value. The request for a summary has the
conversation and a last message that asks for the summary, because models answer the last message.
Without tools its prompt begins with the cached prompt of the turn before. A conversation that does
not fit into the context with its summary loses its oldest turns.
"""

import random
from array import array
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from msgspec import structs

from vinery_serving.core.errors import ContextTooLong
from vinery_serving.core.events import TokenCounts
from vinery_serving.core.ids import derive_seed
from vinery_serving.core.media import Clip
from vinery_serving.core.request import (
    BOUNDS,
    NEUTRAL,
    PROMPT_FIELDS,
    SAMPLERS,
    Conversation,
    GenerationRequest,
    Message,
    Rendering,
    Role,
    Sampling,
    SpeculativeDecoding,
    Stopping,
    TextPart,
    joined_questions,
)
from vinery_serving.engine.options import NGRAM_SIZE, NUM_ASSISTANT_TOKENS
from vinery_serving.gateway.engines.models import LoadedModel
from vinery_serving.gateway.preparing.checks import checked, limited
from vinery_serving.gateway.preparing.prepared import Draft, Origin
from vinery_serving.gateway.preparing.rendering import least_output, render
from vinery_serving.gateway.preparing.steering import logits_spec, num_top_of_prompt, output_grammar
from vinery_serving.prompting.assets import Prompt
from vinery_serving.prompting.folder import GenerationDefaults
from vinery_serving.transport.messages import MediaInput, Submit

# The limit of an answer if neither the client nor the model has one and the context is unknown.
_UNLIMITED_TOKENS: Final = 1 << 20

# Lower temperatures are greedy, as in vLLM: the engine divides logits by the temperature in
# 32-bit floats, which gives noise for much smaller values.
_LEAST_TEMPERATURE: Final = 1e-5

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


def prepare(request: GenerationRequest, model: LoadedModel, origin: Origin) -> Draft:
    """Return the request with all values decided. May take long. Raises `InvalidRequest`."""
    asked, request = request, checked(request, model)
    num_returned = request.n
    if request.num_candidates is not None:  # log-probabilities rank them
        logprobs = replace(request.logprobs, num_top=request.logprobs.num_top or 0)
        request = replace(request, n=request.num_candidates, logprobs=logprobs)
    prompts = render(request, model)
    common = Submit(
        id=0,
        prompt_ids=b"",
        sampling=limited(resolve_sampling(request, model.defaults), model.entry.options),
        max_new_tokens=0,
        deadline_s=origin.deadline_s,
        grammar=output_grammar(request, model, prompts[0]),
        request_id=origin.request_id,
        lane=origin.lane,
        max_queue_s=0.0 if request.handling.is_low_tier else model.entry.options.max_queue_s,
        is_low_tier=request.handling.is_low_tier,
    )
    limits = tuple(_max_new_tokens(request, model, prompt) for prompt in prompts)
    submits = [
        submit
        for prompt, limit in zip(prompts, limits, strict=True)
        for submit in _submits(common, request, model, prompt, limit)
    ]
    wanted, least = asked.stopping.max_tokens, min(limits, default=0)
    return Draft(
        request,
        prompts,
        tuple(submits),
        num_returned,
        clamped_to=least if wanted is not None and least < wanted else None,
        media_spans=tuple(each.span for prompt in prompts for each in prompt.media),
        tokens=_tokens(prompts),
    )


def _tokens(prompts: Sequence[Prompt]) -> TokenCounts:
    media = [each for prompt in prompts for each in prompt.media]
    num_media = sum(end - start for start, end in (each.span for each in media))
    clips = (each.span for each in media if isinstance(each.source, Clip))
    num_video = sum(end - start for start, end in clips)
    return TokenCounts(
        num_prompt_tokens=sum(len(prompt.token_ids) for prompt in prompts),
        num_image_tokens=num_media - num_video,
        num_video_tokens=num_video,
    )


def _submits(
    common: Submit,
    request: GenerationRequest,
    model: LoadedModel,
    prompt: Prompt,
    max_new_tokens: int,
) -> list[Submit]:
    """Return what the engine does for a prompt; nothing if it neither generates nor scores."""
    if max_new_tokens == 0 and num_top_of_prompt(request) is None:
        return []
    submit = structs.replace(
        common,
        prompt_ids=array("i", prompt.token_ids).tobytes(),
        max_new_tokens=max_new_tokens,
        min_new_tokens=min(request.stopping.min_tokens, max_new_tokens),
        stop_token_ids=(*request.stopping.stop_token_ids, *prompt.end_ids),
        ignore_eos=request.stopping.ignore_eos,
        logits=logits_spec(request, model, prompt, common.sampling),
        beams=request.beams,
        assist=_speculation(request, model),
        priority=request.handling.priority,
        cache_key=_cache_key(request, model, organization=common.lane[0]),
        media=tuple(
            MediaInput(
                *(each.start, each.grid, each.source.height, each.source.width),
                num_frames=each.source.num_frames if isinstance(each.source, Clip) else 0,
                pixels=each.source.pixels,
            )
            for each in prompt.media
        ),
    )
    if submit.beams is not None:
        return [submit]  # a beam search has all answers in one
    seeds = [derive_seed(submit.sampling.seed or 0, index) for index in range(request.n)]
    samplings = [replace(submit.sampling, seed=seed) for seed in seeds]
    return [structs.replace(submit, sampling=sampling) for sampling in samplings]


def resolve_sampling(request: GenerationRequest, defaults: GenerationDefaults) -> Sampling:
    """Return all sampling values. A missing seed is random: the engine's default is constant."""
    if defaults.do_sample is False:
        defaults = replace(defaults, temperature=0.0)
    last = replace(
        NEUTRAL,
        temperature=1.0,
        top_k=request.dialect.default_top_k or 0,
        seed=random.getrandbits(63),
    )
    values: dict[str, Any] = {}
    for name in SAMPLERS:
        found = (getattr(each, name, None) for each in (request.sampling, defaults, last))
        values[name] = next((value for value in found if value is not None), None)
    if values["temperature"] < _LEAST_TEMPERATURE:
        values["temperature"] = 0.0
    for name, (least, most) in BOUNDS.items():
        values[name] = min(most, max(least, values[name]))
    values["top_k"] = int(values["top_k"])
    return Sampling(**values)


def _speculation(request: GenerationRequest, model: LoadedModel) -> SpeculativeDecoding | None:
    """How many tokens are proposed ahead; None for a model without speculative decoding."""
    requested, options, defaults = request.assistance, model.entry.options, model.defaults
    if options.draft_model:
        return _of_draft(requested, defaults)
    num_tokens = requested.num_tokens or defaults.num_assistant_tokens or NUM_ASSISTANT_TOKENS
    is_asked = requested.num_tokens is not None
    if options.eagle3_head:
        return SpeculativeDecoding(num_tokens=num_tokens, is_asked=is_asked)
    if options.prompt_lookup:
        size = requested.max_ngram_size or defaults.max_ngram_size or NGRAM_SIZE
        return SpeculativeDecoding(num_tokens, max_ngram_size=size, is_asked=is_asked)
    return None


def _of_draft(requested: SpeculativeDecoding, defaults: GenerationDefaults) -> SpeculativeDecoding:
    if requested.num_tokens is not None:
        return SpeculativeDecoding(num_tokens=requested.num_tokens, is_asked=True)
    if requested.confidence_threshold is not None:
        return SpeculativeDecoding(None, requested.confidence_threshold, is_asked=True)
    if defaults.num_assistant_tokens is None and defaults.assistant_confidence_threshold:
        return SpeculativeDecoding(confidence_threshold=defaults.assistant_confidence_threshold)
    return SpeculativeDecoding(num_tokens=defaults.num_assistant_tokens or NUM_ASSISTANT_TOKENS)


def _max_new_tokens(request: GenerationRequest, model: LoadedModel, prompt: Prompt) -> int:
    """The limit of output tokens; 0 when none are to be generated. Raises `ContextTooLong` if
    prompt and answer exceed the context."""
    requested = request.stopping.max_tokens
    if requested is None:
        requested = _default_max_tokens(request, model)
    max_context, num_prompt_tokens = model.max_context, len(prompt.token_ids)
    most = model.entry.options.max_prompt_len
    if most and num_prompt_tokens > most:  # an NPU was not compiled for it
        raise ContextTooLong(
            max_context=most,
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=0,
            param=PROMPT_FIELDS[request.endpoint],
        )
    if max_context is None:
        return _UNLIMITED_TOKENS if requested is None else requested
    num_left = max_context - num_prompt_tokens
    explicit = least_output(request)
    least = 0 if requested == 0 else max(1, explicit)
    if num_left < least:
        raise ContextTooLong(
            max_context=max_context,
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=explicit,
            param=PROMPT_FIELDS[request.endpoint],
        )
    return num_left if requested is None else min(requested, num_left)


def _default_max_tokens(request: GenerationRequest, model: LoadedModel) -> int | None:
    """The limit for a client that sets none: the default of the model's options, of the endpoint or
    of generation_config.json, and at most `max_tokens_limit`. None: the rest of the context."""
    stopping, limit = request.stopping, model.entry.options.max_tokens_limit
    if stopping.is_unlimited:
        return limit or None
    own = model.entry.options.defaults
    default = own.max_tokens if own is not None else None
    default = default or stopping.default_max_tokens or model.defaults.max_new_tokens
    if default is None:
        return limit or None
    default = max(default, stopping.min_tokens)
    return min(default, limit) if limit else default


def _cache_key(
    request: GenerationRequest, model: LoadedModel, *, organization: int
) -> bytes | None:
    """Return the key of the organisation and of the request's salt; None: no organisation, and no
    salt. Prompts of different keys share no cached block. A hash, because the salt is the client's
    secret and the engine needs a uniform key. Clients cannot choose the key itself, so the id of
    the organisation need not be secret."""
    salt = request.handling.cache_salt
    own = None if salt is None else sha256(salt.encode()).digest()
    if model.entry.options.share_prefix_cache or not organization:
        return own
    if request.beams is not None and request.beams.no_repeat_ngram_size:
        return None  # the engine finds repetitions by ids that a salt changes
    return sha256(f"organization {organization}\0".encode() + (own or b"")).digest()
