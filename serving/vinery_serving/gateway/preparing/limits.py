"""Applies the administrator's limits of a model: output tokens, minima and maxima.

A default of the model's options comes before a default of generation_config.json. A value outside
of the minima and maxima is refused if the request names it, and otherwise moved into the range. A
limit of output tokens that does not fit the model is clamped instead of refused: many clients send
a number of their own, and a user who has not chosen it would not understand a refusal.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import GenerationRequest, RawPrompts, Sampling
from vinery_serving.core.tasks import Endpoint
from vinery_serving.engine.options import EngineOptions

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


def within_limits(request: GenerationRequest, options: EngineOptions) -> GenerationRequest:
    """Return the request with a limit of tokens that the model's options allow. The answer may get
    fewer tokens if the context has no room."""
    stopping, most = request.stopping, options.max_tokens_limit
    clamping = options.clamp_max_tokens
    may_clamp = clamping == "always" or (
        clamping == "defaults" and stopping.max_tokens in CLIENT_DEFAULTS
    )
    if stopping.max_tokens is None or not may_clamp:
        return request
    max_tokens = min(stopping.max_tokens, most) if most else stopping.max_tokens
    return replace(request, stopping=replace(stopping, max_tokens=max_tokens, may_shrink=True))


def clamped_to(asked: GenerationRequest, allowed: tuple[int, ...]) -> int | None:
    """Return the least of the prompts' limits if it is less than the client asked for."""
    wanted, least = asked.stopping.max_tokens, min(allowed, default=None)
    return least if wanted is not None and least is not None and least < wanted else None


def with_returns(request: GenerationRequest, options: EngineOptions) -> GenerationRequest:
    """Return the request with the defaults of an answer's parts. An answer in a given form has no
    reasoning, and a fill-in-the-middle answer no calls."""
    own, prompt = options.defaults, request.prompt
    defaults = (None, None) if own is None else (own.return_arrival_time, own.parse_output)
    shows = _first(request.shows_arrival, defaults[0])
    parses = _first(request.parses_output, defaults[1])
    may_parse = isinstance(prompt, RawPrompts) and prompt.suffix is None and not request.grammar
    has_member = request.endpoint in (Endpoint.CHAT, Endpoint.COMPLETIONS)
    if not (shows or parses):
        return request
    return replace(request, shows_arrival=shows and has_member, parses_output=parses and may_parse)


def _first(*flags: bool | None) -> bool:
    return next((flag for flag in flags if flag is not None), False)


def check_parameters(request: GenerationRequest, options: EngineOptions, model: str) -> None:
    """Raises `InvalidRequest` for a value that is outside of the limits. A beam search is not
    checked, because it does not sample."""
    if request.beams is not None:
        return
    for name, least, most in _limits(options):
        value = getattr(request.sampling, name)
        if value is None:
            continue
        word = "least" if _rank(name, value) < least else "most"
        limit = least if word == "least" else most
        if word == "least" or _rank(name, value) > most:
            raise InvalidRequest(
                f"`{name}` must be at {word} {limit:g}, the limit of the model {model}.", param=name
            )


def limited(sampling: Sampling, options: EngineOptions) -> Sampling:
    """Return the values, moved into the limits. Named values are within already."""
    moved: dict[str, Any] = {}
    for name, least, most in _limits(options):
        value = getattr(sampling, name)
        within = min(max(_rank(name, value), least), most)
        if within != _rank(name, value):
            moved[name] = int(within) if name == "top_k" else within
    return replace(sampling, **moved) if moved else sampling


def _limits(options: EngineOptions) -> Iterator[tuple[str, float, float]]:
    least = {} if options.minima is None else options.minima.named
    most = {} if options.maxima is None else options.maxima.named
    for name in least.keys() | most.keys():
        yield name, least.get(name, -math.inf), _rank(name, most.get(name, math.inf))


def _rank(name: str, value: float) -> float:
    """Return a number by which values compare: 0 and -1 of `top_k` mean all tokens, the most."""
    return math.inf if name == "top_k" and value <= 0 else value
