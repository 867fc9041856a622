"""Every valid request becomes sampling values that the engine accepts."""

from typing import Any

import numpy as np
import openvino_genai as genai
from hypothesis import example, given
from hypothesis import strategies as st

from vinery_serving.core.request import Endpoint, GenerationRequest, RawPrompts, Sampling
from vinery_serving.engine.pipeline import _set_sampling
from vinery_serving.gateway.preparing.prepare import resolve_sampling
from vinery_serving.prompting.folder import GenerationDefaults

NO_DEFAULTS = GenerationDefaults()
PART = st.floats(0, 1)


def resolved(defaults: GenerationDefaults = NO_DEFAULTS, **asked: Any) -> Sampling:
    request = GenerationRequest(Endpoint.COMPLETIONS, None, RawPrompts(("a",)), Sampling(**asked))
    return resolve_sampling(request, defaults)


@given(st.floats(0, 2), PART, PART)
@example(1.0, 5e-324, 1.0)
@example(5e-324, 1.0, 1 - 1e-12)
def test_the_engine_accepts_every_valid_value(temperature, top_p, min_p):
    config = genai.GenerationConfig()
    config.max_new_tokens = 1

    _set_sampling(config, resolved(temperature=temperature, top_p=top_p, min_p=min_p))

    config.validate()


def test_the_models_defaults_have_the_same_limits_and_usual_values_are_not_changed():
    params = resolved(GenerationDefaults(temperature=0.0, top_p=0.0, min_p=1.0))
    assert params.temperature == 0
    assert 0 < params.top_p < 1e-6
    assert 0.999 < params.min_p < 1

    params = resolved(temperature=0.7, top_p=0.9, min_p=0.05)
    assert (params.temperature, params.top_p, params.min_p) == (0.7, 0.9, 0.05)


def test_the_largest_min_p_keeps_only_the_likeliest_tokens_and_a_tiny_temperature_is_greedy():
    in_engine_floats = np.float32(resolved(min_p=1.0).min_p)
    assert in_engine_floats < 1
    assert np.nextafter(in_engine_floats, np.float32(2)) == 1

    for temperature in (0.0, 5e-324, 1e-45, 1e-38, 9e-6):
        assert resolved(temperature=temperature).temperature == 0
