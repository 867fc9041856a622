"""How many examples Hypothesis draws: as many as a test asks for, and ten times that each night."""

from __future__ import annotations

import os
from typing import Final

FACTOR: Final = int(os.environ.get("VINERY_TEST_EXAMPLES", "1"))


def examples(number: int) -> int:
    """For `max_examples` in a test's settings."""
    return number * FACTOR
