"""Finds which token ids and logits rows of a step belong to which generation.

GenAI's order (measured, 2026.4.1): one token, and its draft tokens, for every decoding generation,
in the order of addition, then a chunk of each prompt that is not completely prefilled. The sampler
gets a row of logits for every decoding generation and draft token, for every prompt whose end was
reached, and for every token of an echoed prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vinery_serving.engine.generation import Generation

    _Sequences = Sequence[Generation]


class UnknownStepLayout(Exception):
    """The step's tokens and rows do not fit the known order."""


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a step that belongs to one generation."""

    index: int  # of the first token among the tokens of the step
    start: int  # index of the first token in its sequence; with several beams, of all tokens
    num_tokens: int
    rows: range  # of the logits; empty until the prompt's last token is computed


def locate_spans(
    positions: Sequence[int], token_ids: Sequence[int], num_rows: int, running: _Sequences
) -> list[Span | None]:
    """Return the span of each generation of `running`; None if the step left a generation out.
    `positions` and `token_ids` are of all tokens of the step; without ids, positions alone count.
    Raises UnknownStepLayout if a token or a row is left over."""
    step = _Step(positions, token_ids, num_rows)
    decoding = [each for each in running if each.is_decoding]
    if any(each.max_draft_tokens for each in decoding):
        lengths = step.lengths_with_drafts(decoding, running)
    else:
        lengths = step.lengths(decoding)
    spans = step.spans(running, dict(zip(map(id, decoding), lengths, strict=True)))
    if spans is None:
        raise UnknownStepLayout(f"{len(positions)} tokens and {num_rows} rows do not fit")
    return spans


class _Step:
    def __init__(self, positions: Sequence[int], token_ids: Sequence[int], num_rows: int) -> None:
        self._positions = positions
        self._token_ids = token_ids
        self._num_rows = num_rows

    def lengths(self, decoding: _Sequences) -> list[int]:
        """Return the number of tokens of each, without draft tokens. 0: the step left it out."""
        index = 0
        lengths: list[int] = []
        for each in decoding:
            lengths.append(each.num_beams if self._are_last_tokens(index, each) else 0)
            index += lengths[-1]
        return lengths

    def lengths_with_drafts(self, decoding: _Sequences, running: _Sequences) -> list[int]:
        """The same, with draft tokens. The border between two generations may be ambiguous. Then
        the explanation that leaves out the fewest generations wins."""
        for may_miss in ("none", "prefilling", "all"):
            lengths = self._explanation(decoding, running, may_miss)
            if lengths is not None:
                return lengths
        return [0] * len(decoding)

    def _explanation(
        self, decoding: _Sequences, running: _Sequences, may_miss: str
    ) -> list[int] | None:
        dead_ends: set[tuple[int, int]] = set()
        missing = (0,) if may_miss == "all" else ()

        def explain(index: int, so_far: list[int]) -> list[int] | None:
            number = len(so_far)
            if number == len(decoding):
                ids = map(id, decoding)
                spans = self.spans(running, dict(zip(ids, so_far, strict=True)))
                is_good = spans is not None and (may_miss != "none" or None not in spans)
                return so_far if is_good else None
            if (number, index) in dead_ends:
                return None
            for length in (*self._possible_lengths(index, decoding[number]), *missing):
                lengths = explain(index + length, [*so_far, length])
                if lengths is not None:
                    return lengths
            dead_ends.add((number, index))
            return None

        return explain(0, [])

    def spans(self, running: _Sequences, lengths: Mapping[int, int]) -> list[Span | None] | None:
        """Return all spans; None if they do not fit. `lengths` of decoding ones are by `id()`."""
        spans: list[Span | None] = [None] * len(running)
        index = first_row = 0
        for slot, each in enumerate(running):
            length = lengths.get(id(each), 0)
            if length:
                rows = range(first_row, first_row + length)
                start = each.index_of(self._positions[index])
                spans[slot] = Span(index, start, length, rows)
                index, first_row = index + length, rows.stop
        for slot, each in enumerate(running):
            length = self._chunk_length(index, each) if spans[slot] is None else 0
            if length:
                start = each.index_of(self._positions[index])
                is_end = start + length == each.num_pipeline_tokens
                num_rows = length if each.is_echoed else int(is_end)
                rows = range(first_row, first_row + num_rows)
                spans[slot] = Span(index, start, length, rows)
                index, first_row = index + length, rows.stop
        is_complete = index == len(self._positions) and first_row == self._num_rows
        return spans if is_complete else None

    def _possible_lengths(self, index: int, sequence: Generation) -> Iterator[int]:
        if self._are_last_tokens(index, sequence):
            last = sequence.num_pipeline_tokens - 1
            length = 1
            for position in self._positions[index + 1 : index + 1 + sequence.max_draft_tokens]:
                if position != sequence.position_at(last + length):
                    break
                length += 1
            yield from range(length, 0, -1)

    def _are_last_tokens(self, index: int, sequence: Generation) -> bool:
        """Whether the generation's last token is here, once for each beam."""
        indexes = range(index, index + sequence.num_beams)
        return indexes.stop <= len(self._positions) and all(
            self._matches(each, sequence, sequence.num_pipeline_tokens - 1) for each in indexes
        )

    def _chunk_length(self, index: int, sequence: Generation) -> int:
        """Return how many tokens are prefilled here, up to the prompt's or the step's end."""
        if index == len(self._positions):
            return 0
        start = sequence.index_of(self._positions[index])
        length = min(sequence.num_pipeline_tokens - start, len(self._positions) - index)
        if start < 0 or length < 1 or not self._matches(index, sequence, start):
            return 0
        is_match = self._matches(index + length - 1, sequence, start + length - 1)
        return length if is_match else 0

    def _matches(self, index: int, sequence: Generation, at: int) -> bool:
        if self._positions[index] != sequence.position_at(at):
            return False
        token_id = sequence.token_at(at) if self._token_ids else None
        return token_id is None or self._token_ids[index] == token_id
