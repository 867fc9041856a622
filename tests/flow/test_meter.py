"""What a request is charged with."""

from __future__ import annotations

from vinery_serving.core.events import Usage
from vinery_serving.flow.meter import Meter


def test_a_lost_attempt_costs_nothing() -> None:
    meter = Meter(num_prompt_tokens=9, num_output_tokens=5, num_cached_tokens=3)

    meter.restart()

    assert meter.usage == Usage(num_prompt_tokens=9)
