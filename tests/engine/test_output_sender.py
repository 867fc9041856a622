"""How long tokens of quick steps wait for each other."""

from itertools import pairwise
from typing import cast

import numpy as np
import pytest

from tests.tables import table
from vinery_serving.core.request import Sampling
from vinery_serving.engine.generation import GeneratedTokens, Generation
from vinery_serving.engine.output_sender import OutputSender, flush_interval_ms
from vinery_serving.transport.messages import Accepted, Submit
from vinery_serving.transport.server import Connection


class Recording:
    """A connection that remembers when it was sent something."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sent_at_s: list[float] = []
        self.sent: list[object] = []

    def clock(self) -> float:
        return self.now_s

    def send(self, message: object) -> None:
        self.sent.append(message)
        self.sent_at_s.append(self.now_s)


def sending_times_s(step_ms: float, *, num_streams: int, num_steps: int) -> list[float]:
    """When steps of this length are sent, whose first tokens are sent already."""
    connection = Recording()
    sender = OutputSender(0.0, connection.clock)
    prompt = np.zeros(1, dtype="<i4").tobytes()
    submit = Submit(1, prompt, Sampling(), max_new_tokens=1000, deadline_s=60.0)
    generations = [Generation.of(cast(Connection, connection), submit) for _ in range(num_streams)]
    for generation in generations:
        generation.has_sent_output = True
    for _ in range(num_steps):
        connection.now_s += step_ms / 1000
        for generation in generations:
            sender.add(GeneratedTokens(generation, [7], None, []))
        sender.send(num_streams=num_streams)
    return connection.sent_at_s


def test_a_prompt_of_several_steps_is_reported_as_begun_and_others_are_only_accepted() -> None:
    connection = Recording()
    sender = OutputSender(0.0, connection.clock)
    submits = [Submit(id_, b"", Sampling(), max_new_tokens=9, deadline_s=60.0) for id_ in (1, 2)]
    long, short = (Generation.of(cast(Connection, connection), submit) for submit in submits)
    sender.accept(long)
    sender.accept(short)
    sender.send(num_streams=0)
    assert connection.sent == [Accepted(1), Accepted(2)]

    sender.add(GeneratedTokens(short, [7], None, []))
    for begun in (long, short):
        sender.begin(begun)
    sender.send(num_streams=2)
    assert connection.sent[2] == Accepted(1, is_begun=True)
    assert [each.id for each in connection.sent if isinstance(each, Accepted)] == [1, 2, 1]


def test_few_streams_and_first_tokens_do_not_wait_and_with_many_not_every_step_is_sent() -> None:
    assert all(8.0 <= flush_interval_ms(num_streams) < 10.3 for num_streams in range(1, 17))
    assert flush_interval_ms(64) == pytest.approx(51.2)
    intervals = [flush_interval_ms(num_streams) for num_streams in range(1, 65)]
    assert intervals == sorted(intervals)

    assert sending_times_s(1000.0, num_streams=64, num_steps=1) == [1.0]


@table("step_ms, num_steps", [(0.3, 26), (0.6, 13), (3.9, 2), (4.1, 1), (20.0, 1)])
def test_tokens_are_sent_before_a_step_would_make_them_late(step_ms: float, num_steps: int) -> None:
    times_s = sending_times_s(step_ms, num_streams=1, num_steps=40)
    gaps_ms = [(later - earlier) * 1000 for earlier, later in pairwise(times_s)]
    assert gaps_ms == pytest.approx([num_steps * step_ms] * len(gaps_ms))
