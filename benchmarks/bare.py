"""The bare engine: one process, one pipeline, one loop, and nothing else.

`BareEngine` starts the process and asks for runs through a pipe; the process itself takes the
times. The loop is the shortest that reads tokens as they are made: no server on this pipeline
could be faster.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.measures import Run, Stream
from benchmarks.prompts import Prompt
from vinery_serving.engine.options import EngineOptions

_LOAD_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 10.0


class BareEngine:
    """The loop in its process. Use it as a context manager."""

    def __init__(self, folder: Path, options: EngineOptions) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, folder, options), daemon=True)
        self._process.start()
        far_end.close()

    def __enter__(self) -> Self:
        """Wait until the model is loaded. Raises TimeoutError or EOFError."""
        if not self._pipe.poll(_LOAD_TIMEOUT_S):
            raise TimeoutError(f"the bare engine did not load within {_LOAD_TIMEOUT_S:g} s")
        self._pipe.recv()
        return self

    def __exit__(self, *error: object) -> None:
        self._pipe.close()
        self._process.join(_END_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()

    def run(self, prompts: list[Prompt], max_tokens: int, most: int | None = None) -> Run:
        """Answer all prompts, at most so many at once; None: all. Raises EOFError when the process
        has died."""
        self._pipe.send((prompts, max_tokens, most or len(prompts)))
        run: Run = self._pipe.recv()
        return run


def _serve(pipe: Connection, folder: Path, options: EngineOptions) -> None:
    loop = _BareLoop(folder, options)
    pipe.send("loaded")
    while True:
        try:
            prompts, max_tokens, most = pipe.recv()
        except EOFError:
            return
        pipe.send(loop.run(prompts, max_tokens, most))


class _BareLoop:
    """Runs in the process of its own, and imports the engine only there."""

    def __init__(self, folder: Path, options: EngineOptions) -> None:
        import openvino_genai
        from tokenizers import Tokenizer

        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(folder), _scheduler(options), "CPU", _properties(options)
        )
        self._running = openvino_genai.GenerationFinishReason.NONE
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def run(self, prompts: list[Prompt], max_tokens: int, most: int) -> Run:
        chunks_s: list[list[float]] = [[] for _ in prompts]
        ids: list[list[int]] = [[] for _ in prompts]
        started_s: list[float] = []
        handles: dict[int, Any] = {}

        pipeline, left = self._pipeline, enumerate(prompts)
        while True:
            for number, prompt in islice(left, most - len(handles)):
                started_s.append(time.perf_counter())
                handles[number] = self._add(number, prompt.ids, max_tokens)
            if not handles:
                break
            pipeline.step()
            for number, handle in list(handles.items()):
                if handle.can_read():
                    for output in handle.read().values():
                        ids[number] += output.generated_ids
                        chunks_s[number].append(time.perf_counter())
                        if output.finish_reason != self._running:
                            del handles[number]

        return Run(
            tuple(
                Stream(
                    started_s=started_s[number],
                    chunks_s=tuple(chunks_s[number]),
                    num_prompt_tokens=len(prompt.ids),
                    num_tokens=len(ids[number]),
                    text=self._tokenizer.decode(ids[number], skip_special_tokens=True),
                )
                for number, prompt in enumerate(prompts)
            )
        )

    def _add(self, number: int, ids: list[int], max_tokens: int) -> Any:
        import openvino
        import openvino_genai

        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        prompt = openvino.Tensor(np.array([ids], np.int64))
        return self._pipeline.add_request(number, prompt, config)


def _scheduler(options: EngineOptions) -> Any:
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = options.max_num_batched_tokens
    scheduler.max_num_seqs = options.max_running
    scheduler.enable_prefix_caching = options.enable_prefix_caching
    scheduler.cache_size = options.cache_size_gb
    return scheduler


def _properties(options: EngineOptions) -> dict[str, Any]:
    num_threads = options.num_threads or os.cpu_count() or 1
    return {
        "INFERENCE_NUM_THREADS": num_threads,
        "ENABLE_CPU_PINNING": False,
        "sampler_num_threads": num_threads,
        **options.plugin,
    }
