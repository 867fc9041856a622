"""Decides every sampling value: the request's word first, then the model's
generation_config.json, then the URL tree's, then the neutral value."""

from __future__ import annotations

import secrets
from typing import Final

from serving.core.request import GenerationRequest
from serving.prompting.folder import GenerationDefaults
from serving.transport.messages import SamplingParams

_DEFAULT_TEMPERATURE: Final = 1.0
# Colder than this is greedy, as with vLLM: the engine divides logits by it in short floats,
# and far below makes noise of them.
_LEAST_TEMPERATURE: Final = 1e-5
# The engine's limits are open where those of other systems are not. A nucleus of this size
# has room for one token in any vocabulary; and beside this part of the likeliest token's
# probability, the largest short float below 1, there is room for its equals only.
_LEAST_TOP_P: Final = 1e-9
_MOST_MIN_P: Final = 1 - 2**-24


def resolve_sampling(request: GenerationRequest, defaults: GenerationDefaults) -> SamplingParams:
    """Sampling with nothing left open. Without a seed one is drawn, because the engine's
    own default is always the same."""
    asked = request.sampling
    seed = secrets.randbits(63) if asked.seed is None else asked.seed
    temperature = _temperature(asked.temperature, defaults)
    top_k = _first(asked.top_k, defaults.top_k, request.dialect.default_top_k, 0)
    return SamplingParams(
        temperature=0.0 if temperature < _LEAST_TEMPERATURE else temperature,
        top_p=max(_LEAST_TOP_P, _first(asked.top_p, defaults.top_p, 1.0)),
        top_k=max(0, int(top_k)),
        min_p=min(_MOST_MIN_P, _first(asked.min_p, defaults.min_p, 0.0)),
        seed=seed,
        frequency_penalty=_first(asked.frequency_penalty, defaults.frequency_penalty, 0.0),
        presence_penalty=_first(asked.presence_penalty, defaults.presence_penalty, 0.0),
        repetition_penalty=_first(asked.repetition_penalty, defaults.repetition_penalty, 1.0),
    )


def _temperature(asked: float | None, defaults: GenerationDefaults) -> float:
    if asked is not None:
        return asked
    if defaults.do_sample is False:
        return 0.0
    return _first(defaults.temperature, _DEFAULT_TEMPERATURE)


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
