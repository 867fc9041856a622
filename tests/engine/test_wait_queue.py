"""The order of admission, by any sequence of arrivals, admissions and cancellations."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from serving.engine.generation import Generation, WaitQueue
from serving.transport.messages import SamplingParams, Submit

SUBMIT = Submit(id=0, prompt_ids=b"", sampling=SamplingParams(), max_new_tokens=1, deadline_s=1.0)


def waiting(priority: int) -> Generation:
    return Generation.of(None, structs.replace(SUBMIT, priority=priority))


@given(
    st.lists(
        st.integers(0, 3)
        | st.just("pop")
        | st.tuples(st.just("cancel"), st.integers(0))
        | st.tuples(st.just("back"), st.integers(0, 3))
    )
)
def test_the_lowest_priority_number_is_first_and_among_equals_the_first_to_arrive(
    steps: list[Any],
) -> None:
    queue = WaitQueue()
    expected: list[Generation] = []  # the latter in order of admission among equals
    for step in steps:
        match step:
            case "pop" if expected:
                first = min(expected, key=lambda each: each.submit.priority)
                assert queue.pop() is first
                expected.remove(first)
            case "cancel", index if expected:
                cancelled = expected.pop(index % len(expected))
                queue.discard(cancelled)
                queue.discard(cancelled)  # does nothing
            case "back", priority:
                expected.insert(0, waiting(priority))
                queue.put_back(expected[0])
            case int():
                expected.append(waiting(step))
                queue.add(expected[-1])
        assert (len(queue), bool(queue)) == (len(expected), bool(expected))
