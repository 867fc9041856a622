"""An engine whose compiled grammars take too much memory restarts in an idle moment."""

from typing import Any, cast

import pytest

from tests.engine.in_process import Loop, NoChecks, a_loop
from vinery_serving.engine.generation import Generation
from vinery_serving.engine.kinds.text import PROBE
from vinery_serving.engine.supervision import PipelineBroken

pytestmark = pytest.mark.live


def fill(loop: Loop, fullness: float) -> None:
    cast("NoChecks", loop.kind._grammars).fullness = fullness


def restarts(loop: Loop) -> None:
    with pytest.raises(PipelineBroken, match="too much memory"):
        loop.turn()


def test_it_restarts_when_idle_and_admits_until_it_is_twice_as_full(pipeline, tmp_path):
    with a_loop(pipeline, tmp_path) as loop:
        running = loop.submit("hi", max_new_tokens=5)
        loop.until(lambda: loop.num_generated(running) > 0)
        fill(loop, 3.0)
        (answer,) = loop.finish(running)
        assert len(answer.tokens) == 5
        restarts(loop)

        fill(loop, 0.9)
        loop.turn()  # with a probe
        loop.until(lambda: not loop.kind._batch.has_work)
        fill(loop, 1.1)
        restarts(loop)

        waiting: Any = loop.kind._waiting
        for fullness, is_admitted in ((1.5, True), (2.5, False)):
            fill(loop, fullness)
            waiting.add(Generation.of(None, PROBE))
            loop.kind._admit()
            assert (len(waiting) == 0) == is_admitted
