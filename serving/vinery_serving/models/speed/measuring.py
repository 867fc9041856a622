"""Sends requests to an engine, several at once, and measures the answers.

The gateway uses the same socket: a client of the HTTP API sees the same speed, plus well under a
millisecond for each request. A measurement needs no key and is no usage. Prompts are words of a
list, each prompt different, the same in each run.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Final

import numpy as np
import psutil

from vinery_serving.core.request import Sampling
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import Accepted, Rejected, Submit, TokenOutput

_DEADLINE_S: Final = 600.0


class MeasurementFailed(Exception):
    """The message is a sentence for administrators."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer. Times are of the monotonic clock, in seconds."""

    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    began_s: float
    chunks: tuple[tuple[float, int], ...]  # when tokens arrived, and how many

    @property
    def first_s(self) -> float:
        return self.chunks[0][0]

    @property
    def end_s(self) -> float:
        return self.chunks[-1][0]


@dataclass(frozen=True, slots=True)
class Run:
    answers: tuple[Answer, ...]

    @property
    def duration_s(self) -> float:
        return max(each.end_s for each in self.answers) - min(each.began_s for each in self.answers)

    @property
    def first_token_s(self) -> float:
        return median(each.first_s - each.began_s for each in self.answers)

    @property
    def prompt_tokens_per_s(self) -> float:
        """Of all streams together, until the last stream has a first token."""
        last_first_s = max(each.first_s for each in self.answers)
        began_s = min(each.began_s for each in self.answers)
        num_tokens = sum(each.num_prompt_tokens for each in self.answers)
        return num_tokens / max(last_first_s - began_s, 1e-9)

    @property
    def output_tokens_per_s(self) -> float:
        """Of all streams together, while all of them generate."""
        begin_s = max(each.first_s for each in self.answers)
        end_s = max(each.end_s for each in self.answers)
        num_tokens = sum(
            num for each in self.answers for at_s, num in each.chunks if begin_s < at_s <= end_s
        )
        return num_tokens / max(end_s - begin_s, 1e-9)


@dataclass
class Engine:
    """An engine that is measured. `num_own_tokens` counts the tokens that this client received."""

    client: EngineClient
    num_own_tokens: int = field(default=0)

    async def run(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> Run:
        """Answer all prompts at once. Raises `MeasurementFailed` and EngineDisconnected."""
        answers = await asyncio.gather(*(self._answer(each, num_tokens) for each in prompts))
        return Run(tuple(answers))

    async def _answer(self, prompt: Sequence[int], num_tokens: int) -> Answer:
        began_s = time.monotonic()
        stream = self.client.submit([self._submit(prompt, num_tokens)])
        ids: list[int] = []
        chunks: list[tuple[float, int]] = []
        while True:
            updates = await stream.next(_DEADLINE_S)
            if not updates:
                raise MeasurementFailed(f"The engine sent nothing for {_DEADLINE_S:g} s.")
            for update in updates:
                match update:
                    case Rejected(message=message):
                        raise MeasurementFailed(f"The engine refused a request: {message}")
                    case TokenOutput(token_ids=new, finish=finish):
                        ids += new
                        if new:
                            chunks.append((time.monotonic(), len(new)))
                            self.num_own_tokens += len(new)
                        if finish is not None:
                            return Answer(len(prompt), tuple(ids), began_s, tuple(chunks))
                    case Accepted():
                        pass

    def _submit(self, prompt: Sequence[int], num_tokens: int) -> Submit:
        return Submit(
            id=self.client.new_id(),
            prompt_ids=np.array(prompt, dtype="<i4").tobytes(),
            sampling=Sampling(),
            max_new_tokens=num_tokens,
            deadline_s=_DEADLINE_S,
            ignore_eos=True,
        )


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it cannot be read."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


_WORDS: Final = (
    "the harbour library train neighbour bridge market weather garden waits for depends on looks "
    "like gives way to opens before snow river mill plan letter road mountains sound of bells and"
)
_QUESTION: Final = "\nRepeat the last sentence, and then write how the story goes on.\n"

Encode = Callable[[str], list[int]]


def prompt_ids(encode: Encode, number: int, num_tokens: int) -> list[int]:
    """Return a prompt of so many tokens, which begins like no other."""
    random = Random(number)
    ids = encode(f"Story {number}. ")
    while len(ids) < num_tokens:
        ids += encode(f"{' '.join(random.choices(_WORDS.split(), k=10))}. ")
    return ids[:num_tokens]


def next_turn(encode: Encode, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
    return [*prompt, *answer, *encode(_QUESTION)]
