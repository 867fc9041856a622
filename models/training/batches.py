"""Lessons as tensors: tokenised, sorted by length and padded into batches of one step.

Every lesson starts at position zero and sees nothing of its neighbours, as in a server.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer

from training.lessons import Segment, lesson

PADDING_ID = 0


@dataclass(frozen=True)
class EncodedLesson:
    """Token ids of a lesson and the weight of the loss of predicting each of them."""

    ids: list[int]
    weights: list[float]


@dataclass(frozen=True)
class MicroBatch:
    """Lessons of similar length, padded to the longest of them."""

    ids: torch.Tensor  # int64, (num_lessons, num_tokens)
    weights: torch.Tensor  # float32, (num_lessons, num_tokens)


def encode_lesson(tokenizer: Tokenizer, rng: Random, max_tokens: int) -> EncodedLesson:
    """The next lesson of at most `max_tokens` tokens; longer ones are drawn again."""
    while True:
        ids: list[int] = []
        weights: list[float] = []
        for passage in passages(lesson(rng)):
            piece = tokenizer.encode("".join(s.text for s in passage), add_special_tokens=False)
            per_character = [s.weight for s in passage for _ in s.text]
            ids += piece.ids
            weights += [per_character[end - 1] for _, end in piece.offsets]
        if len(ids) <= max_tokens:
            return EncodedLesson(ids, weights)


def passages(segments: Iterable[Segment]) -> list[list[Segment]]:
    """The segments grouped into what is tokenised as a whole."""
    groups: list[list[Segment]] = []
    for segment in segments:
        if segment.is_glued:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def steps(
    tokenizer: Tokenizer,
    rng: Random,
    *,
    lessons_per_step: int,
    tokens_per_batch: int,
    max_tokens: int,
) -> Iterator[list[MicroBatch]]:
    """Endless optimiser steps, each a list of micro-batches that together hold its lessons."""
    while True:
        drawn = [encode_lesson(tokenizer, rng, max_tokens) for _ in range(lessons_per_step)]
        drawn.sort(key=lambda encoded: len(encoded.ids))
        yield [_padded(group) for group in _groups(drawn, tokens_per_batch)]


def _groups(lessons: list[EncodedLesson], tokens_per_batch: int) -> Iterator[list[EncodedLesson]]:
    """Neighbours whose padded size stays within `tokens_per_batch`."""
    group: list[EncodedLesson] = []
    for encoded in lessons:
        if group and (len(group) + 1) * len(encoded.ids) > tokens_per_batch:
            yield group
            group = []
        group.append(encoded)
    if group:
        yield group


def _padded(group: list[EncodedLesson]) -> MicroBatch:
    width = max(len(encoded.ids) for encoded in group)
    ids = torch.full((len(group), width), PADDING_ID)
    weights = torch.zeros(len(group), width)
    for row, encoded in enumerate(group):
        ids[row, : len(encoded.ids)] = torch.tensor(encoded.ids)
        weights[row, : len(encoded.weights)] = torch.tensor(encoded.weights)
    return MicroBatch(ids, weights)
