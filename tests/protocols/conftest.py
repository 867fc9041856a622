"""Settings of this room's tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A shared machine may be slow at any moment: no test is about time.
settings.register_profile(
    "protocols", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("protocols")
