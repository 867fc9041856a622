"""Clamps a limit of output tokens that does not fit the model, instead of refusing the request.

Many clients send a number of their own, whatever the model is. It asks for an answer as long as
possible, and not for this number: a user who has not chosen it cannot know why it is refused.
"""

from dataclasses import replace
from typing import Final

from vinery_serving.core.request import GenerationRequest
from vinery_serving.engine.options import Clamping, EngineOptions

# The limits that clients send unless their user sets another, and where they come from. A limit of
# one vendor's model is the default of clients for all models.
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
    """Return the request with a limit of tokens that the options of its model allow. It may get
    fewer tokens if its context has no room for them."""
    stopping, most = request.stopping, options.max_tokens_limit
    if stopping.max_tokens is None or not _may_clamp(stopping.max_tokens, options.clamp_max_tokens):
        return request
    max_tokens = min(stopping.max_tokens, most) if most else stopping.max_tokens
    return replace(request, stopping=replace(stopping, max_tokens=max_tokens, may_shrink=True))


def clamped_to(asked: GenerationRequest, allowed: tuple[int, ...]) -> int | None:
    """Return the limit in force if it is less than the client asked for; `allowed` has those of
    the prompts."""
    wanted, least = asked.stopping.max_tokens, min(allowed, default=None)
    return least if wanted is not None and least is not None and least < wanted else None


def _may_clamp(max_tokens: int, clamping: Clamping) -> bool:
    return clamping == "always" or (clamping == "defaults" and max_tokens in CLIENT_DEFAULTS)
