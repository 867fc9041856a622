"""A pipeline in the test's process, and generations for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from tokenizers import Tokenizer

from tests.engine.conftest import TINY_CHAT
from vinery_serving.engine.batch import Batch
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.fair_queue import Lane
from vinery_serving.engine.generation import FailedGeneration, Generation
from vinery_serving.engine.logits_handler import LogitsHandler
from vinery_serving.engine.options import EngineOptions
from vinery_serving.engine.pipeline import Pipeline
from vinery_serving.transport.messages import GrammarSpec, LogitsSpec, SamplingParams, Submit

TOKENIZER = Tokenizer.from_file(str(TINY_CHAT / "tokenizer.json"))


def pipeline_of(folder: Path, home: Path, **options: object) -> Pipeline:
    return Pipeline(config_of(folder, home, **options))


def config_of(folder: Path, home: Path, **options: object) -> EngineConfig:
    return EngineConfig(
        name="model",
        folder=folder,
        device="CPU",
        socket_path=home / "engine.sock",
        cache_dir=home / "cache",
        max_context=2048,
        options=EngineOptions(num_threads=1, **options),  # type: ignore[arg-type]
    )


def emptied(pipeline: Pipeline) -> Iterator[Batch]:
    batch = Batch(pipeline, capacity=16)
    yield batch
    for generation in [*batch._running, *batch._suspects]:
        batch.remove(generation)
    while pipeline.has_work:
        pipeline.step()


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


def chat(text: str, *, reasons: bool = False) -> list[int]:
    reasoning = "<think>\n" if reasons else "<think>\n\n</think>\n\n"
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n{reasoning}"
    return ids_of(prompt)


def generation(
    prompt: str | list[int],
    logits: LogitsSpec | None = None,
    *,
    max_new_tokens: int = 40,
    grammar: GrammarSpec | None = None,
    sampling: SamplingParams | None = None,
    cache_key: bytes | None = None,
) -> Generation:
    ids = chat(prompt) if isinstance(prompt, str) else prompt
    submit = Submit(
        id=1,
        prompt_ids=np.array(ids, dtype="<i4").tobytes(),
        sampling=sampling or SamplingParams(),
        max_new_tokens=max_new_tokens,
        deadline_s=60,
        grammar=grammar,
        logits=logits,
        cache_key=cache_key,
    )
    result = Generation.of(None, submit)
    if logits is not None:
        result.logits = LogitsHandler(submit, result.prompt_ids)
    return result


def random_ids(seed: int, num: int) -> list[int]:
    """Return a prompt of ordinary tokens. Prompts of two seeds have no common beginning."""
    ids: list[int] = np.random.default_rng(seed).integers(300, 2900, num).tolist()
    return ids


def generation_of(lane: Lane, ids: list[int], **values: Any) -> Generation:
    """Return a generation of a lane, which has all the tokens that it may have."""
    result = generation(ids, **values)
    result.submit = structs.replace(result.submit, ignore_eos=True, lane=lane)
    return result


def run(batch: Batch, *generations: Generation) -> list[FailedGeneration]:
    for each in generations:
        assert batch.add(each) is None
    failed: list[FailedGeneration] = []
    while len(batch):
        step = batch.step()
        failed += step.failed
        for new in step.generated:
            new.generation.tokens += new.token_ids
            new.generation.logprobs += new.logprobs
    return failed


def tokens_of(batch: Batch, *args: object, **values: object) -> list[int]:
    each = generation(*args, **values)  # type: ignore[arg-type]
    assert run(batch, each) == []
    return each.tokens
