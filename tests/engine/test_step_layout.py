"""Which tokens and rows of a step belong to which generation, against a scheduler like GenAI's."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.engine.step_layout import Span, UnknownStepLayout, locate_spans


@dataclass
class Sequence:
    tokens: list[int]
    is_decoding: bool = False
    is_echoed: bool = False
    num_beams: int = 1
    max_draft_tokens: int = 0

    @property
    def num_pipeline_tokens(self) -> int:
        return len(self.tokens)

    def token_at(self, index: int) -> int:
        return self.tokens[index]

    def position_at(self, index: int) -> int:
        return index

    def index_of(self, position: int) -> int:
        return position


def numbered(first: int, num: int, **values: Any) -> Sequence:
    """Has tokens of its own, as real generations nearly always have."""
    return Sequence([*range(first, first + num)], **values)


@table(
    "positions, token_ids, num_rows, running, expected",
    [
        # All tokens of an echoed prompt have a row.
        ([0, 1], [5, 6], 2, [Sequence([5, 6, 7], is_echoed=True)], [Span(0, 0, 2, range(2))]),
        # A preempted generation is prefilled again from the start.
        (
            *([1, 0, 1, 2], [8, 1, 2, 3], 2),
            [Sequence([1, 2, 3], is_decoding=True), Sequence([7, 8], is_decoding=True)],
            [Span(1, 0, 3, range(1, 2)), Span(0, 1, 1, range(1))],
        ),
    ],
)
def test_echoed_and_preempted_prompts_have_rows(positions, token_ids, num_rows, running, expected):
    assert locate_spans(positions, token_ids, num_rows, running) == expected


@table(
    "positions, token_ids, num_rows",
    [([3, 9], [1, 1], 1), ([0, 1], [5, 7], 1), ([0, 1], [5, 6], 2), ([0, 1, 0], [5, 6, 5], 1)],
)
def test_an_unknown_layout_is_refused(positions, token_ids, num_rows):
    with pytest.raises(UnknownStepLayout):
        locate_spans(positions, token_ids, num_rows, [Sequence([5, 6])])


@dataclass
class Scheduled:
    """A step of a scheduler."""

    positions: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    num_rows: int = 0
    spans: list[Span | None] = field(default_factory=list)

    def take(self, sequence: Sequence, start: int, num_tokens: int) -> Span:
        end, index = start + num_tokens, len(self.positions)
        num_rows = num_tokens if sequence.is_echoed else int(end == sequence.num_pipeline_tokens)
        rows = range(self.num_rows, self.num_rows + num_rows)
        self.num_rows += num_rows
        self.positions += range(start, end)
        self.token_ids += sequence.tokens[start:end]
        return Span(index, start, num_tokens, rows)

    def take_with_drafts(self, sequence: Sequence, drafts: list[int]) -> Span:
        span = self.take(sequence, sequence.num_pipeline_tokens - 1, 1)
        last = span.start + 1
        self.positions += range(last, last + len(drafts))
        self.token_ids += drafts
        self.num_rows += len(drafts)
        rows = range(span.rows.start, self.num_rows)
        return Span(span.index, span.start, 1 + len(drafts), rows)


def schedule(running: list[Sequence], num_cached: list[int], budget: int) -> Scheduled:
    step = Scheduled(spans=[None] * len(running))
    for index, sequence in enumerate(running):
        if sequence.is_decoding and budget:
            step.spans[index] = step.take(sequence, sequence.num_pipeline_tokens - 1, 1)
            budget -= 1
    for index, sequence in enumerate(running):
        if not sequence.is_decoding and budget:
            start = min(num_cached[index], sequence.num_pipeline_tokens - 1)
            num_tokens = min(budget, sequence.num_pipeline_tokens - start)
            step.spans[index] = step.take(sequence, start, num_tokens)
            budget -= num_tokens
    return step


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.booleans(), st.integers(0, 12)), min_size=1, max_size=6
    ),
    st.integers(1, 40),
)
def test_every_span_is_the_one_that_the_scheduler_took(plans, budget):
    running = [
        numbered(100 * index, length, is_decoding=is_decoding)
        for index, (length, is_decoding, _) in enumerate(plans)
    ]
    step = schedule(running, [cached for _, _, cached in plans], budget)
    assert locate_spans(step.positions, step.token_ids, step.num_rows, running) == step.spans


def test_an_ambiguous_border_is_decided_by_the_following_generations() -> None:
    """The first generation's draft token looks like the second generation's last token."""
    first = Sequence([1, 2], is_decoding=True, max_draft_tokens=3)
    second = Sequence([4, 5, 6], is_decoding=True, max_draft_tokens=3)
    third = Sequence([7, 8, 9, 3], is_decoding=True, max_draft_tokens=0)
    found = locate_spans([1, 2, 3], [2, 6, 3], 3, [first, second, third])
    assert found == [Span(at, at + 1, 1, range(at, at + 1)) for at in range(3)]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 4)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), max_size=3),
)
def test_draft_tokens_belong_to_the_generation_that_they_follow(outputs, prompts):
    decoding = [
        numbered(100 * index, length, is_decoding=True, max_draft_tokens=4)
        for index, (length, _) in enumerate(outputs)
    ]
    prefilling = [numbered(5000 + 100 * at, length) for at, (length, _) in enumerate(prompts)]
    step = Scheduled()
    for sequence, (_, num_drafts) in zip(decoding, outputs, strict=True):
        step.spans.append(step.take_with_drafts(sequence, [9000 + n for n in range(num_drafts)]))
    for sequence, (_, num_cached) in zip(prefilling, prompts, strict=True):
        start = min(num_cached, sequence.num_pipeline_tokens - 1)
        step.spans.append(step.take(sequence, start, sequence.num_pipeline_tokens - start))

    found = locate_spans(step.positions, step.token_ids, step.num_rows, [*decoding, *prefilling])

    assert found == step.spans
