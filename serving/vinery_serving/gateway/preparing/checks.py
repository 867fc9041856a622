"""Refuses what the parameters of a request cannot be together or beside a model's options, and
applies the administrator's limits: output tokens, minima and maxima.

A value outside of the minima and maxima is refused if the request names it, and otherwise moved
into the range. A limit of output tokens that does not fit the model is clamped instead of refused:
many clients send a number of their own, and a user who has not chosen it would not understand a
refusal.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from vinery_serving.core.errors import InvalidRequest, ServingError, UnsupportedParameter
from vinery_serving.core.request import NEUTRAL, SAMPLERS, GenerationRequest, RawPrompts, Sampling
from vinery_serving.core.tasks import Endpoint
from vinery_serving.engine.options import EngineOptions
from vinery_serving.gateway.engines.models import LoadedModel

# The limits that clients send unless the user sets another, with sources. Clients use a limit of
# one vendor's model as the default for all models.
CLIENT_DEFAULTS: Final = {
    4_096: "Continue, LiteLLM; the largest answer of GPT-4 Turbo",
    8_192: "Roo Code, GPUStack's playground; the largest answer of Claude 3.5",
    16_384: "the largest answer of GPT-4o",
    32_000: "Claude Code, OpenCode",
    32_768: "the largest answer of GPT-4.1",
    64_000: "the largest answer of Claude Sonnet 4",
    65_536: "the largest answer of Gemini 2.5",
    100_000: "the largest answer of o3",
    128_000: "the largest answer of GPT-5",
    2**31 - 1: "the largest 32-bit integer",
    2**32 - 1: "the largest value of OpenVINO Model Server",
}


def checked(request: GenerationRequest, model: LoadedModel) -> GenerationRequest:
    """Return the request with values that the model's options allow. Raises `InvalidRequest`."""
    options = model.entry.options
    request = with_returns(_within_limits(request, options), options)
    _check_limits(request, model)
    _check_sampling(request, model)
    _check_speculation(request, options)
    if request.grammar is not None or request.must_call:
        _check_grammar(request)
    if request.beams is not None:
        _check_beams(request, options)
    _check_num_answers(request, model)
    model.assets.check_ids(request.stopping.stop_token_ids, "stop_token_ids")
    return request


def _refuse(
    kind: type[ServingError], fields: Iterable[tuple[str | None, object]], reason: str
) -> None:
    for param, is_set in fields:
        if is_set:
            raise kind(f"`{param}` {reason}", param=param)


def _within_limits(request: GenerationRequest, options: EngineOptions) -> GenerationRequest:
    """The request with a limit of tokens that the model's options allow. The answer may get fewer
    tokens if the context has no room."""
    stopping, most = request.stopping, options.max_tokens_limit
    clamping = options.clamp_max_tokens
    may_clamp = clamping == "always" or (
        clamping == "defaults" and stopping.max_tokens in CLIENT_DEFAULTS
    )
    if stopping.max_tokens is None or not may_clamp:
        return request
    max_tokens = min(stopping.max_tokens, most) if most else stopping.max_tokens
    return replace(request, stopping=replace(stopping, max_tokens=max_tokens, may_shrink=True))


def with_returns(request: GenerationRequest, options: EngineOptions) -> GenerationRequest:
    """Return the request with the defaults of an answer's parts. An answer in a given form has no
    reasoning, and a fill-in-the-middle answer no calls."""
    own, prompt = options.defaults, request.prompt
    shows, parses = request.shows_arrival, request.parses_output
    if own is not None:
        shows = own.return_arrival_time if shows is None else shows
        parses = own.parse_output if parses is None else parses
    if not (shows or parses):
        return request
    may_parse = isinstance(prompt, RawPrompts) and prompt.suffix is None and not request.grammar
    has_member = request.endpoint in (Endpoint.CHAT, Endpoint.COMPLETIONS)
    return replace(
        request, shows_arrival=bool(shows) and has_member, parses_output=bool(parses) and may_parse
    )


def _check_limits(request: GenerationRequest, model: LoadedModel) -> None:
    options, stopping, beams = model.entry.options, request.stopping, request.beams
    for param, value, limit in (
        (stopping.max_tokens_param, stopping.max_tokens or 0, options.max_tokens_limit),
        ("min_tokens", stopping.min_tokens, options.max_tokens_limit),
        ("n", request.n, options.best_of_limit),
        ("best_of", request.num_candidates or 0, options.best_of_limit),
        ("best_of", 0 if beams is None else beams.width, options.best_of_limit),
    ):
        if limit and value > limit:
            raise InvalidRequest(
                f"`{param}` must be at most {limit}, the limit of the model {model.entry.name}.",
                param=param,
            )


def _check_sampling(request: GenerationRequest, model: LoadedModel) -> None:
    """A beam search is not checked, because it does not sample."""
    if request.beams is not None:
        return
    for name, least, most in _ranges(model.entry.options):
        value = getattr(request.sampling, name)
        if value is None or least <= _rank(name, value) <= most:
            continue
        word, limit = ("least", least) if _rank(name, value) < least else ("most", most)
        raise InvalidRequest(
            f"`{name}` must be at {word} {limit:g}, the limit of the model {model.entry.name}.",
            param=name,
        )


def limited(sampling: Sampling, options: EngineOptions) -> Sampling:
    moved: dict[str, Any] = {}
    for name, least, most in _ranges(options):
        value = getattr(sampling, name)
        within = min(max(_rank(name, value), least), most)
        if within != _rank(name, value):
            moved[name] = int(within) if name == "top_k" else within
    return replace(sampling, **moved) if moved else sampling


def _ranges(options: EngineOptions) -> Iterator[tuple[str, float, float]]:
    least = {} if options.minima is None else options.minima.named
    most = {} if options.maxima is None else options.maxima.named
    for name in least.keys() | most.keys():
        yield name, least.get(name, -math.inf), _rank(name, most.get(name, math.inf))


def _rank(name: str, value: float) -> float:
    """A number by which values compare: 0 and -1 of `top_k` mean all tokens, the most."""
    return math.inf if name == "top_k" and value <= 0 else value


def proposes_tokens(options: EngineOptions) -> bool:
    return bool(options.draft_model or options.eagle3_head or options.prompt_lookup)


def _check_speculation(request: GenerationRequest, options: EngineOptions) -> None:
    asked, any_of_them = request.assistance, "draft_model, eagle3_head or prompt_lookup"
    threshold = asked.confidence_threshold
    for param, value, is_possible, names in (
        ("num_assistant_tokens", asked.num_tokens, proposes_tokens(options), any_of_them),
        ("assistant_confidence_threshold", threshold, options.draft_model, "draft_model"),
        ("max_ngram_size", asked.max_ngram_size, options.prompt_lookup, "prompt_lookup"),
    ):
        _refuse(
            UnsupportedParameter,
            [(param, value is not None and not is_possible)],
            f"is for models that are served with the option {names}, which this one is not. Leave "
            "it out.",
        )


def _check_grammar(request: GenerationRequest) -> None:
    """Refuse parameters that make an answer continue after its grammar is complete: the engine
    would then generate text outside the grammar."""
    stopping = request.stopping
    _refuse(
        InvalidRequest,
        (("min_tokens", stopping.min_tokens), ("ignore_eos", stopping.ignore_eos)),
        "cannot go with structured output or a forced tool call: these end when they are complete. "
        "Leave one of them out.",
    )


def _check_beams(request: GenerationRequest, options: EngineOptions) -> None:
    """Refuse what the engine cannot combine with beam search, and parameters that beam search
    ignores: sampling parameters, grammars and changed logits do not affect candidates."""
    beams, grammar, steering = request.beams, request.grammar, request.steering
    assert beams is not None
    for what, is_set in (
        ("the option cache_eviction", options.cache_eviction is not None),
        ("speculative decoding", proposes_tokens(options)),
    ):
        if is_set:
            raise UnsupportedParameter(
                f"This model is served with {what}, which the engine cannot combine with beam "
                f"search. Leave out `{beams.param}`.",
                param=beams.param,
            )
    _refuse(
        InvalidRequest,
        (
            *((name, _is_set(name, getattr(request.sampling, name))) for name in SAMPLERS),
            (None if grammar is None else grammar.param, grammar is not None),
            ("tool_choice", request.must_call),
            ("logprobs", request.logprobs.num_top is not None),
            ("prompt_logprobs", request.logprobs.num_top_of_prompt is not None),
            (steering.first_field, steering.first_field is not None),
            ("thinking_token_budget", request.stopping.max_reasoning_tokens is not None),
        ),
        "cannot go with beam search, which does not sample and does not let the server change its "
        "candidates. Leave it out, or leave out `use_beam_search` and, under /v3, `best_of`.",
    )
    _refuse(
        InvalidRequest,
        [("cache_salt", beams.no_repeat_ngram_size and request.handling.cache_salt is not None)],
        "cannot go with `no_repeat_ngram_size`: the engine finds repetitions by the ids of the "
        "prompt's tokens, which the salt changes. Leave one of them out.",
    )


def _is_set(sampler: str, value: float | None) -> bool:
    """Whether the value of a request would change which tokens are drawn."""
    is_all = sampler == "top_k" and value == -1
    return not is_all and sampler != "seed" and value not in (None, getattr(NEUTRAL, sampler))


def _check_num_answers(request: GenerationRequest, model: LoadedModel) -> None:
    """Even an idle engine takes no more answers of one request."""
    limit = model.entry.options.max_answers_of_request
    num_answers = request.num_prompts * (request.num_candidates or request.n)
    if num_answers <= limit:
        return
    param = "prompt" if request.num_prompts > 1 else "best_of" if request.num_candidates else "n"
    raise InvalidRequest(
        f"This request asks for {num_answers} answers, and the model {model.entry.name} takes at "
        f"most {limit} at once. Send several requests with fewer prompts, or lower `n`.",
        param=param,
    )
