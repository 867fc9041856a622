"""Every hostile request of the corpus, and every hostile client by itself."""

import time
from typing import Final

import pytest

from tests.hostile.clients import CLIENTS
from tests.hostile.conftest import MOST_CPU_S, Besieged, cases

pytestmark = pytest.mark.system

KINDS: Final = sorted({case.kind for case in cases()})


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_every_hostile_request_is_bounded(besieged: Besieged, kind: str) -> None:
    besieged.attack([case for case in cases() if case.kind == kind])


@pytest.mark.parametrize("name", CLIENTS)
def test_each_hostile_client_is_bounded(besieged: Besieged, name: str) -> None:
    begun_s, cpu_s = time.monotonic(), besieged.web.cpu_s()

    CLIENTS[name](besieged.target)
    besieged.wait_until_idle()

    assert besieged.web.cpu_s() - cpu_s < 10 * MOST_CPU_S
    assert besieged.failures_of_neighbour(begun_s) == []


def test_nothing_is_left_of_it(besieged: Besieged) -> None:
    besieged.check_that_nothing_is_left()
