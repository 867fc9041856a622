"""Runs an exported model the way a server does: continuous batching, pictures beside the text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from numpy.typing import NDArray

from training.vision.rendering import END_OF_TURN

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
