"""Prepares a request: what can be refused or decided before the engine receives it."""

from __future__ import annotations

from array import array
from hashlib import sha256
from typing import Final

from msgspec import structs

from serving.core.errors import ContextTooLong, InvalidRequest
from serving.core.ids import derive_seed
from serving.core.request import GenerationRequest
from serving.flow.assistance import assist_spec
from serving.flow.attempt import PreparedRequest
from serving.flow.best import beam_spec, check_search, with_candidates
from serving.flow.directory import Engine
from serving.flow.form import check_form, form_grammar
from serving.flow.meter import Meter
from serving.flow.rendering import PROMPT_FIELDS, least_output, render
from serving.flow.sampling import resolve_sampling
from serving.flow.steering import logits_spec, num_top_of_prompt
from serving.prompting.assets import Prompt
from serving.transport.messages import GrammarSpec, Submit

# What a model without a known context may make when the client sets no limit.
_UNLIMITED_TOKENS: Final = 1 << 20


async def prepare(
    request: GenerationRequest,
    engine: Engine,
    meter: Meter,
    *,
    token: str,
    deadline_s: float,
    request_id: str = "",
) -> PreparedRequest:
    """Render and check. Raises `InvalidRequest`."""
    _check_limits(request, engine)
    check_form(request)
    check_search(request)
    num_returned = request.n
    request = with_candidates(request)
    engine.assets.check_ids(request.stopping.stop_token_ids, "stop_token_ids")
    prompts = await render(request, engine)
    meter.num_prompt_tokens = sum(len(prompt.token_ids) for prompt in prompts)
    sampling = resolve_sampling(request, engine.assets.defaults)
    stopping = request.stopping
    grammar = await form_grammar(request, engine, prompts[0])
    submits: list[Submit] = []
    for prompt in prompts:
        max_new_tokens = _max_new_tokens(request, engine, prompt)
        if max_new_tokens == 0 and num_top_of_prompt(request) is None:
            continue
        submit = Submit(
            id=0,
            prompt_ids=array("i", prompt.token_ids).tobytes(),
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            deadline_s=deadline_s,
            stop_token_ids=(*stopping.stop_token_ids, *prompt.end_ids),
            grammar=None if grammar is None else GrammarSpec(grammar.kind, grammar.source),
            min_new_tokens=min(stopping.min_tokens, max_new_tokens),
            ignore_eos=stopping.ignore_eos,
            logits=logits_spec(request, engine, prompt, sampling),
            beams=beam_spec(request),
            assist=assist_spec(request, engine),
            priority=request.handling.priority,
            cache_key=_cache_key(request.handling.cache_salt),
            request_id=request_id,
        )
        is_search = submit.beams is not None
        submits += [submit] if is_search else [_sample(submit, at) for at in range(request.n)]
    return PreparedRequest(request, engine, meter, token, prompts, tuple(submits), num_returned)


def _check_limits(request: GenerationRequest, engine: Engine) -> None:
    """Raises `InvalidRequest` for more than the model's administrator allows."""
    options, stopping = engine.entry.options, request.stopping
    for param, asked, limit in (
        (stopping.max_tokens_param, stopping.max_tokens or 0, options.max_tokens_limit),
        ("min_tokens", stopping.min_tokens, options.max_tokens_limit),
        ("n", request.n, options.best_of_limit),
        ("best_of", request.num_candidates or 0, options.best_of_limit),
        ("best_of", 0 if request.beams is None else request.beams.width, options.best_of_limit),
    ):
        if limit and asked > limit:
            raise InvalidRequest(
                f"`{param}` must be at most {limit}, the limit of the model {engine.entry.name}.",
                param=param,
            )


def _max_new_tokens(request: GenerationRequest, engine: Engine, prompt: Prompt) -> int:
    """0 when nothing is to be made. Raises `ContextTooLong` when prompt and answer cannot
    fit."""
    asked = request.stopping.max_tokens
    if asked is None:
        asked = _usual_max_tokens(request, engine)
    max_context, num_prompt_tokens = engine.max_context, len(prompt.token_ids)
    if max_context is None:
        return _UNLIMITED_TOKENS if asked is None else asked
    room = max_context - num_prompt_tokens
    explicit = least_output(request)
    least = 0 if asked == 0 else max(1, explicit)
    if room < least:
        raise ContextTooLong(
            max_context=max_context,
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=explicit,
            param=PROMPT_FIELDS[request.endpoint],
        )
    return room if asked is None else min(asked, room)


def _usual_max_tokens(request: GenerationRequest, engine: Engine) -> int | None:
    """What a client gets that sets no limit: what the endpoint or the model's authors say,
    within the model's limit. None: as much as fits."""
    stopping, limit = request.stopping, engine.entry.options.max_tokens_limit
    usual = stopping.default_max_tokens or engine.assets.defaults.max_new_tokens
    if usual is None:
        return limit or None
    usual = max(usual, stopping.min_tokens)
    return min(usual, limit) if limit else usual


def _cache_key(salt: str | None) -> bytes | None:
    """Spread evenly over all keys, and no longer the client's secret."""
    return None if salt is None else sha256(salt.encode()).digest()


def _sample(submit: Submit, index: int) -> Submit:
    """Sample `index` of a prompt: the same, but drawn with a seed of its own."""
    sampling = submit.sampling
    own = structs.replace(sampling, seed=derive_seed(sampling.seed, index))
    return structs.replace(submit, sampling=own)
