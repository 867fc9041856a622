"""Measures an exported model by exact answers about unseen pictures.

Every turn of a talk is asked with the right answers before it. The model runs as in a server:
continuous batching, pictures beside the text.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from numpy.typing import NDArray

from training.vision.drawing import draw_frames
from training.vision.layout import GRIDS, Grid
from training.vision.rendering import END_OF_TURN, render
from training.vision.scenes import Scene
from training.vision.talks import PICTURE, VIDEO, Message, Talk, talk

MAX_NEW_TOKENS = 100
# The prompt comes rendered, so the engine's own template gives it back as it is.
SAME_TEXT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt with the pictures and the videos that it names, in order.

    Pictures are (height, width, 3), videos (num_frames, height, width, 3).
    """

    text: str
    pictures: Sequence[NDArray[np.uint8]] = ()
    videos: Sequence[NDArray[np.uint8]] = ()


class Engine:
    """An exported model on the CPU."""

    def __init__(self, model: Path, *, num_threads: int = 1) -> None:
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": num_threads}
        scheduler = genai.SchedulerConfig()
        self._pipeline = genai.ContinuousBatchingPipeline(str(model), scheduler, "CPU", properties)
        self._tokenizer = self._pipeline.get_tokenizer()
        self._tokenizer.set_chat_template(SAME_TEXT)

    def replies(self, prompts: Sequence[Prompt]) -> list[str]:
        """The greedy answers to `prompts`, without the end of the turn, in their order."""
        config = genai.GenerationConfig()
        config.max_new_tokens = MAX_NEW_TOKENS
        handles = [
            self._pipeline.add_request(
                index, prompt.text, _tensors(prompt.pictures), _tensors(prompt.videos), config
            )
            for index, prompt in enumerate(prompts)
        ]
        tokens: list[list[int]] = [[] for _ in prompts]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for index, handle in enumerate(handles):
                if handle.can_read():
                    tokens[index] += handle.read()[0].generated_ids
        return [self._text(ids) for ids in tokens]

    def _text(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text.removesuffix(END_OF_TURN)


def _tensors(arrays: Sequence[NDArray[np.uint8]]) -> list[Any]:
    return [ov.Tensor(np.ascontiguousarray(array)) for array in arrays]


# -- Evaluation

NUM_PROMPTS_PER_BATCH = 32
MEDIA: tuple[int | None, ...] = (0, 1, 1, 1, 1, 1, 2, 2, 2, None)


@dataclass(frozen=True)
class Question:
    """A prompt with its expected answer, under the heading its score is counted."""

    kind: str
    question: str
    prompt: Prompt
    expected: str


@dataclass(frozen=True)
class Miss:
    """A question that was answered otherwise."""

    kind: str
    question: str
    expected: str
    text: str


@dataclass
class Score:
    """Right answers out of all, by kind, and the wrong ones."""

    num_right: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    num_asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    misses: list[Miss] = field(default_factory=list)

    def count(self, asked: Question, text: str) -> None:
        """Add one answer."""
        self.num_asked[asked.kind] += 1
        if text == asked.expected:
            self.num_right[asked.kind] += 1
        else:
            self.misses.append(Miss(asked.kind, asked.question, asked.expected, text))

    def table(self) -> str:
        """One line per kind and one for the sum."""
        rows = sorted((kind, self.num_right[kind], asked) for kind, asked in self.num_asked.items())
        rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
        return "\n".join(f"  {kind:<16} {right:>5} of {asked}" for kind, right, asked in rows)


def evaluate(model: Path, num_talks: int, seed: int) -> Score:
    """The score of the model in a folder on `num_talks` talks that training does not draw."""
    engine = Engine(model)
    score = Score()
    questions = list(unseen_questions(num_talks, seed))
    for start in range(0, len(questions), NUM_PROMPTS_PER_BATCH):
        batch = questions[start : start + NUM_PROMPTS_PER_BATCH]
        replies = engine.replies([asked.prompt for asked in batch])
        for asked, text in zip(batch, replies, strict=True):
            score.count(asked, text)
    return score


def unseen_questions(num_talks: int, seed: int) -> Iterator[Question]:
    """Every turn of `num_talks` talks."""
    rng = Random(seed)
    for index in range(num_talks):
        media = MEDIA[index % len(MEDIA)]
        (grid,) = rng.choices(list(GRIDS), weights=list(GRIDS.values()))
        aspect = grid.columns / grid.rows
        yield from _questions(rng, talk(rng, media or 0, aspect, is_video=media is None), grid)


def _questions(rng: Random, one: Talk, grid: Grid) -> Iterator[Question]:
    groups = [list(one.scenes)] if one.is_video else [[scene] for scene in one.scenes]
    drawn = [_drawn(rng, group, grid) for group in groups]
    for index, turn in enumerate(one.turns):
        messages = one.messages(index + 1)[:-1]
        pictures = [array[0] for array in drawn[: _num_parts(messages, PICTURE["type"])]]
        videos = drawn[: _num_parts(messages, VIDEO["type"])]
        text = render(messages, add_generation_prompt=True)
        prompt = Prompt(text, () if videos else pictures, videos)
        yield Question(turn.kind, render(messages[-1:]), prompt, turn.answer)


def _drawn(rng: Random, scenes: list[Scene], grid: Grid) -> NDArray[np.uint8]:
    return np.array(draw_frames(rng, scenes, *grid.pixels))


def _num_parts(messages: list[Message], kind: str) -> int:
    """How many parts of a kind the messages have."""
    contents = [m["content"] for m in messages if isinstance(m["content"], list)]
    return sum(part["type"] == kind for content in contents for part in content)
