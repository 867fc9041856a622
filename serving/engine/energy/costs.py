"""How the time of a step is divided among the generations in it.

Reading a token of a prompt and making one of an answer take very different times, and how
different depends on model and machine. Both are learned while it runs: steps that only make
tokens tell the one, what others take beyond that tells the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from serving.engine.generation import Generation

_NEWEST_WEIGHT: Final = 0.1  # of the newest step in what is learned
_LEAST_SHARE: Final = 0.05  # of a step, that reading takes if there is any


class Work(NamedTuple):
    """What a step did for a generation."""

    generation: Generation
    num_read: int  # tokens of its prompt
    num_made: int  # tokens of its answer, with those that were only proposed


def works_of(running: Iterable[Generation], *, is_seen: bool) -> list[Work]:
    """What the step that is just done did for each of them, before its tokens are collected.
    `is_seen`: it can be seen how much of a prompt a step reads."""
    return [_work_of(generation, is_seen=is_seen) for generation in running]


def _work_of(generation: Generation, *, is_seen: bool) -> Work:
    num_computed, generation.num_computed = generation.num_computed, 0
    if generation.is_answering:
        # A step at which nobody looks makes a token for each answer.
        return Work(generation, 0, num_computed or generation.width)
    return Work(generation, num_computed or (0 if is_seen else 1), 0)


class StepCosts:
    """Knows nothing at first, when all tokens are alike."""

    def __init__(self) -> None:
        self._read_s: float | None = None  # a token
        self._made_s: float | None = None

    def divide(self, step_s: float, works: Sequence[Work]) -> list[float]:
        """The seconds of each; together they are `step_s`."""
        num_read = sum(work.num_read for work in works)
        num_made = sum(work.num_made for work in works)
        if num_read + num_made == 0:
            return [step_s / len(works)] * len(works)
        self._learn(step_s, num_read, num_made)
        read_s = made_s = 1.0
        if self._read_s is not None and self._made_s is not None:
            read_s, made_s = self._read_s, self._made_s
        whole = num_read * read_s + num_made * made_s
        return [
            step_s * (work.num_read * read_s + work.num_made * made_s) / whole for work in works
        ]

    def _learn(self, step_s: float, num_read: int, num_made: int) -> None:
        if num_read == 0:
            self._made_s = _mixed(self._made_s, step_s / num_made)
            return
        if num_made and self._made_s is None:
            return
        making_s = num_made * (self._made_s or 0.0)
        reading_s = max(step_s - making_s, step_s * _LEAST_SHARE)
        self._read_s = _mixed(self._read_s, reading_s / num_read)


def _mixed(known: float | None, newest: float) -> float:
    return newest if known is None else known + _NEWEST_WEIGHT * (newest - known)
