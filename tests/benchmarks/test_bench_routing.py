"""The aim of routing, by a clock that jumps: no processor's speed counts."""

import pytest

from benchmarks import routing


def test_reported_caches_give_half_as_much_again_as_round_robin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(routing, "_RUN_S", 25.0)
    first, reported = routing.run("round robin", 1), routing.run("as reported", 1)
    assert reported.tokens_per_s >= 1.5 * first.tokens_per_s
    assert reported.computed < first.computed / 3
