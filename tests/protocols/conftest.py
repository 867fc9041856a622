"""Settings of these tests."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("protocols", settings.get_profile("patient"), max_examples=50)
settings.load_profile("protocols")
