"""Two hundred requests over ten models with memory for three."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_platform, until
from tests.system.test_models_on_little_memory import (
    SETTINGS,
    add_models,
    check_requests_at_random,
    states,
)

pytestmark = pytest.mark.system

NAMES = [f"chat-{number}" for number in range(10)]


def test_none_of_200_requests_over_ten_models_fails(tmp_path: Path) -> None:
    settings = {**SETTINGS, "VINERY_MODEL_MEMORY_MB": "3700"}
    with run_platform(tmp_path / "home", settings) as platform:
        add_models(platform, NAMES)
        until(lambda: set(states(platform).values()) == {"ready", "asleep"}, timeout_s=60)

        check_requests_at_random(platform, NAMES, num_requests=200, num_fit=3)
