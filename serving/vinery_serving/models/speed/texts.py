"""The prompts of measurements: plain sentences, a different text for each, the same in each run."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

_SUBJECTS: Final = (
    *("The harbour", "A small library", "The night train", "Our neighbour", "The old bridge"),
    *("A team of engineers", "The morning market", "The weather station", "A quiet garden"),
)
_VERBS: Final = (
    *("waits for", "depends on", "was built beside", "gives way to", "looks like"),
    *("has changed since", "is older than", "opens before", "closes after"),
)
_OBJECTS: Final = (
    *("the first snow of the year", "a long and careful plan", "the river behind the mill"),
    *("everything that people remember", "seven boxes of paper", "the road to the mountains"),
    *("what the town had expected", "a letter from the capital", "the sound of the bells"),
)
_QUESTION: Final = "\nRepeat the last sentence, and then write how the story goes on.\n"

Encode = Callable[[str], list[int]]


def prompt_ids(encode: Encode, number: int, num_tokens: int) -> list[int]:
    """Return a prompt of so many tokens, which begins like no other."""
    random = Random(number)
    ids = encode(f"Story {number}. ")
    while len(ids) < num_tokens:
        words = (random.choice(_SUBJECTS), random.choice(_VERBS), random.choice(_OBJECTS))
        ids += encode(f"{' '.join(words)}. ")
    return ids[:num_tokens]


def next_turn(encode: Encode, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
    """Return the prompt of a conversation's next turn: all turns before, and a question."""
    return [*prompt, *answer, *encode(_QUESTION)]
