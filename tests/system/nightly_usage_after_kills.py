"""The ledger after kills in every order, of clients that are drawn anew."""

from __future__ import annotations

import random

import pytest

from tests.conftest import Running
from tests.system.test_usage_after_kills import check_phase

pytestmark = pytest.mark.system

KILLS = (("engine",), ("web",), ("engine", "web"), ("web", "engine"))


@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("kills", KILLS, ids=" and ".join)
def test_the_ledger_has_all_generated_and_read_tokens_after_kills(
    running: Running, kills: tuple[str, ...], seed: int
) -> None:
    check_phase(running, random.Random(seed), kills)
