"""All tests of the edge with Daphne, which is for development."""

import pytest

from tests.platform_.test_edge_connections import *  # noqa: F403
from tests.platform_.test_edge_headers import *  # noqa: F403


@pytest.fixture(scope="module")
def kind() -> str:
    return "daphne"
