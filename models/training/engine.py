"""Runs an exported model the way a server does: continuous batching, token ids, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openvino_genai as genai

from training.rendering import END_OF_TURN


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; a temperature of zero is greedy.

    `draft_tokens` needs an engine with a draft. `json_schema` is JSON text that a grammar enforces.
    """

    max_new_tokens: int = 1100
    temperature: float = 0.0
    seed: int = 0
    draft_tokens: int = 0
    json_schema: str = ""


@dataclass(frozen=True)
class Reply:
    """A generated text without the end of the turn, and what it took."""

    text: str
    num_tokens: int
    num_steps: int


class Engine:
    """An exported model on the CPU, with a draft model if a folder for one is given."""

    def __init__(self, model: Path, *, draft: Path | None = None, num_threads: int = 1) -> None:
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": num_threads}
        if draft:
            properties["draft_model"] = genai.draft_model(
                str(draft), "CPU", INFERENCE_NUM_THREADS=num_threads
            )
        scheduler = genai.SchedulerConfig()
        self._pipeline = genai.ContinuousBatchingPipeline(str(model), scheduler, "CPU", properties)
        self._tokenizer = self._pipeline.get_tokenizer()

    def replies(self, prompts: Sequence[str], sampling: Sampling) -> list[Reply]:
        """The continuations of `prompts`, generated together and returned in their order.

        With sampling, the seed of each prompt is `sampling.seed` plus its position.
        """
        handles = [
            self._pipeline.add_request(index, self._ids(prompt), _config(sampling, index))
            for index, prompt in enumerate(prompts)
        ]
        tokens: list[list[int]] = [[] for _ in prompts]
        num_steps = [0] * len(prompts)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for index, handle in enumerate(handles):
                if handle.can_read():
                    tokens[index] += handle.read()[0].generated_ids
                    num_steps[index] += 1
        return [
            Reply(self._text(ids), len(ids), count)
            for ids, count in zip(tokens, num_steps, strict=True)
        ]

    def _ids(self, prompt: str) -> Any:
        return self._tokenizer.encode(prompt, add_special_tokens=False).input_ids

    def _text(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text.removesuffix(END_OF_TURN)


def _config(sampling: Sampling, index: int) -> Any:
    config = genai.GenerationConfig()
    config.max_new_tokens = sampling.max_new_tokens
    if sampling.temperature > 0:
        config.do_sample = True
        config.temperature = sampling.temperature
        config.rng_seed = sampling.seed + index
    if sampling.json_schema:
        grammar = genai.StructuredOutputConfig(json_schema=sampling.json_schema)
        config.structured_output_config = grammar
    if sampling.draft_tokens:
        config.num_assistant_tokens = sampling.draft_tokens
    return config
