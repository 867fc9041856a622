"""The reference model in the real engine, for the tests of this room."""

import pytest

from .tiny_chat import Model, reference_model


@pytest.fixture
def model() -> Model:
    """The one engine of all live tests, with the family of its own template."""
    return reference_model()
