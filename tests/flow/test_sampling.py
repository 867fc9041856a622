"""Whatever is asked for becomes something that the engine takes and does as it was meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino_genai as genai
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.core.request import Endpoint, GenerationRequest, RawPrompts, Sampling
from serving.engine.pipeline import _set_sampling
from serving.flow.preparing import resolve_sampling
from serving.prompting.folder import GenerationDefaults
from serving.transport.messages import SamplingParams

NO_DEFAULTS = GenerationDefaults()
PART = st.floats(0, 1)


def resolved(defaults: GenerationDefaults = NO_DEFAULTS, **asked: Any) -> SamplingParams:
    request = GenerationRequest(Endpoint.COMPLETIONS, None, RawPrompts(("a",)), Sampling(**asked))
    return resolve_sampling(request, defaults)


@given(st.floats(0, 2), PART, PART)
@example(1.0, 5e-324, 1.0)
@example(5e-324, 1.0, 1 - 1e-12)
def test_every_value_that_is_allowed_is_one_that_the_engine_takes(
    temperature: float, top_p: float, min_p: float
) -> None:
    config = genai.GenerationConfig()
    config.max_new_tokens = 1

    _set_sampling(config, resolved(temperature=temperature, top_p=top_p, min_p=min_p))

    config.validate()


def test_what_a_model_says_of_itself_is_held_to_the_same_borders() -> None:
    params = resolved(GenerationDefaults(temperature=0.0, top_p=0.0, min_p=1.0))

    assert params.temperature == 0
    assert 0 < params.top_p < 1e-6
    assert 0.999 < params.min_p < 1


def test_usual_values_are_left_alone() -> None:
    params = resolved(temperature=0.7, top_p=0.9, min_p=0.05)

    assert (params.temperature, params.top_p, params.min_p) == (0.7, 0.9, 0.05)


def test_the_greatest_part_leaves_room_for_equals_only() -> None:
    as_the_engine_has_it = np.float32(resolved(min_p=1.0).min_p)

    assert as_the_engine_has_it < 1
    assert np.nextafter(as_the_engine_has_it, np.float32(2)) == 1


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-45, 1e-38, 9e-6])
def test_next_to_no_temperature_is_none(temperature: float) -> None:
    assert resolved(temperature=temperature).temperature == 0
