"""The one place that talks to OpenVINO GenAI.

`step`, `add` and reading hold the GIL, and a blocking read would deadlock: all calls come
from the engine's only thread, and outputs are read only when they are there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import openvino as ov
import openvino_genai as genai

from serving.core.request import GrammarKind
from serving.engine.config import EngineConfig, EngineOptions
from serving.engine.graph import MODEL_FILE, Twin, write_twin
from serving.engine.logits_hook import LogitsHook, View
from serving.engine.salt import can_tell_apart, salted
from serving.transport.messages import (
    FINISH_LENGTH,
    FINISH_STOP,
    BeamSpec,
    GrammarSpec,
    SamplingParams,
    SpeculationSpec,
    Submit,
)

DEFAULT_ASSISTANT_TOKENS: Final = 5
DEFAULT_NGRAM_SIZE: Final = 3
# A confident draft model may go on for long; no more than this was ever seen.
_MAX_CONFIDENT_TOKENS: Final = 256

TokenArray = npt.NDArray[np.int64]  # (num_tokens,)

_FINISHES: Final = {
    genai.GenerationFinishReason.STOP: FINISH_STOP,
    genai.GenerationFinishReason.LENGTH: FINISH_LENGTH,
}
_STOP_CRITERIA: Final = {
    "early": genai.StopCriteria.EARLY,
    "heuristic": genai.StopCriteria.HEURISTIC,
    "never": genai.StopCriteria.NEVER,
}
_GRAMMAR_FIELDS: Final = {
    GrammarKind.JSON_SCHEMA: "json_schema",
    GrammarKind.REGEX: "regex",
    GrammarKind.EBNF: "grammar",
    GrammarKind.STRUCTURAL_TAG: "structural_tags_config",
}
_NO_TWIN: Final = Twin(has_logits_hook=False, salt_modulus=0)

# New tokens of one generation, and the finish when they are its last. A plain tuple: one is
# made for every token.
Output = tuple[list[int], str | None]


class Handle:
    """One generation inside the pipeline."""

    def __init__(self, handle: Any, num_echoed: int = 0, *, makes_nothing: bool = False) -> None:
        """`num_echoed` tokens at the beginning of what it makes are those of its prompt. What
        follows them is not told if it `makes_nothing`."""
        self._handle = handle
        self._num_echoed = num_echoed
        self._makes_nothing = makes_nothing

    def read(self) -> Output | None:
        """What the last step made, or None when it made nothing for this one."""
        if not self._handle.can_read():
            return None
        outputs = self._handle.read()
        if not outputs:
            return None
        output = next(iter(outputs.values()))
        token_ids, finish = output.generated_ids, _FINISHES.get(output.finish_reason)
        if self._num_echoed:
            num_dropped = min(self._num_echoed, len(token_ids))
            self._num_echoed -= num_dropped
            token_ids = token_ids[num_dropped:]
            if not token_ids and finish is None:
                return None
        if self._makes_nothing:
            return [], FINISH_LENGTH
        return token_ids, finish

    def read_beams(self, num: int) -> list[Output]:
        """The best `num` answers of a search by beams, once all are complete."""
        if self._handle.get_status() == genai.GenerationStatus.RUNNING:
            return []
        if self.is_dropped:
            return []
        outputs = self._handle.read_all()[:num]
        return [
            (output.generated_ids, _FINISHES.get(output.finish_reason, FINISH_STOP))
            for output in outputs
        ]

    @property
    def is_dropped(self) -> bool:
        """Whether the pipeline gave this generation up: its cache was too small."""
        return bool(self._handle.get_status() == genai.GenerationStatus.IGNORED)

    def cancel(self) -> None:
        """Leave the pipeline at its next step."""
        self._handle.cancel()


class Pipeline:
    """A loaded model. Raises RuntimeError from the constructor when it cannot be loaded."""

    def __init__(self, config: EngineConfig, *, with_tap: bool = True) -> None:
        """Without the tap the model's own graph is loaded, to measure what the tap costs."""
        folder, self._twin = _twin(config) if with_tap else (config.folder, _NO_TWIN)
        self._next_id = 0
        self._next_salt = 1
        self._has_cache = config.options.enable_prefix_caching
        self._assist = _usual_assist(config.options)
        draft = _draft_folder(config, self._twin) if config.options.draft_model else None
        if draft == Path(config.options.draft_model):
            # It would not understand a salted prompt.
            self._twin = replace(self._twin, salt_modulus=0)
        if self._twin.has_logits_hook:
            LogitsHook.begin()
        self._pipeline = genai.ContinuousBatchingPipeline(
            str(folder), _scheduler(config), config.device, _properties(config, self._twin, draft)
        )
        # Whether the logits of a step can be seen and changed.
        self.has_logits_hook = self._twin.has_logits_hook
        if self.has_logits_hook:
            LogitsHook.settle()
        defaults = self._pipeline.get_config()
        self._stop_token_ids = frozenset(defaults.stop_token_ids)
        self.vocab_size = _vocab_size(folder)

    @property
    def speculates(self) -> bool:
        """Whether tokens are proposed ahead and checked together, and that can be seen."""
        return self._assist is not None and self.has_logits_hook

    def max_ahead(self, submit: Submit) -> int:
        """How many tokens are proposed for this at a time, at most."""
        if self._assist is None:
            return 0
        return (submit.assist or self._assist).num_tokens or _MAX_CONFIDENT_TOKENS

    @property
    def tokenizer(self) -> Any:
        """GenAI's tokenizer of this model, which holds its compiled grammars."""
        return self._pipeline.get_tokenizer()

    @property
    def has_cache(self) -> bool:
        """Whether prompts go on from what others have left in the cache."""
        return self._has_cache

    @property
    def can_score(self) -> bool:
        """Whether a prompt can be echoed: each of its tokens is computed then, and seen."""
        return self.has_logits_hook and (not self._has_cache or self._twin.num_salts > 0)

    @property
    def num_salts(self) -> int:
        """In how many ways a token can be new to the prefix cache; 0: there is no cache, or
        no way."""
        return self._twin.num_salts if self.has_logits_hook and self._has_cache else 0

    def forgo_salt(self) -> None:
        """Do without: it does not work here."""
        self._twin = replace(self._twin, salt_modulus=0)

    @property
    def supports_cache_salt(self) -> bool:
        """Whether prompts of different cache keys share nothing."""
        return not self._has_cache or can_tell_apart(self.num_salts)

    def leaves_penalty(self, submit: Submit, cache_key: bytes | None) -> bool:
        """Whether the repetition penalty of a request is left to the caller: the engine looks
        up the logits of all tokens of the prompt, and salted ids have none."""
        if submit.sampling.repetition_penalty == 1 or submit.beams is not None:
            return False
        is_scored = submit.logits is not None and submit.logits.prompt_logprobs is not None
        return is_scored or (cache_key is not None and self._has_cache)

    def add(
        self,
        prompt_ids: TokenArray,
        submit: Submit,
        max_new_tokens: int,
        *,
        cache_key: bytes | None = None,
        echo: bool = False,
    ) -> Handle:
        """Queue a generation that shares cached work only with those of the same key. Raises
        RuntimeError for a config that GenAI refuses. Its repetition penalty may be left to
        the caller: see `leaves_penalty`."""
        self._next_id += 1
        # One token at least: behind a prompt that makes none, GenAI draws the tokens of others
        # in the same step from the wrong rows of logits, those of this prompt.
        config = self._generation_config(submit, max(1, max_new_tokens))
        config.echo = echo
        if self.leaves_penalty(submit, cache_key):
            config.repetition_penalty = 1.0
        if echo and self._has_cache:
            # It is new to the cache under any key.
            prompt_ids = self._salted(prompt_ids)
        elif cache_key is not None and self._has_cache:
            twin = self._twin
            prompt_ids = salted(prompt_ids, cache_key, twin.salt_modulus, twin.num_salts)
        tensor = ov.Tensor(prompt_ids.reshape(1, -1))
        handle = self._pipeline.add_request(self._next_id, tensor, config)
        num_echoed = len(prompt_ids) if echo else 0
        return Handle(handle, num_echoed, makes_nothing=max_new_tokens == 0)

    def step(self, look: Callable[[View], None] | None = None) -> None:
        """Make one token for every running generation, or read prompts. `look` sees the
        logits before the sampler does. Raises RuntimeError, after which every generation
        must be cancelled and added again."""
        LogitsHook.look = look
        self._pipeline.step()

    def _salted(self, prompt_ids: TokenArray) -> TokenArray:
        """The same prompt to the model, but one that the prefix cache has never seen. Only
        the first id: the engine looks up the logits of all others, without checking."""
        salted = prompt_ids.copy()
        salted[0] += self._next_salt * self._twin.salt_modulus
        self._next_salt = self._next_salt % self._twin.num_salts + 1
        return salted

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything, be it only letting go of what was cancelled."""
        return bool(self._pipeline.has_non_finished_requests())

    @property
    def cache_usage(self) -> float:
        """The used part of the KV cache, 0..1."""
        return float(self._pipeline.get_metrics().cache_usage) / 100

    def _generation_config(self, submit: Submit, max_new_tokens: int) -> Any:
        config = genai.GenerationConfig()
        config.max_new_tokens = max_new_tokens
        # Of a generation that is added again, part has been made.
        num_made = max(0, submit.max_new_tokens - max_new_tokens)
        config.min_new_tokens = max(0, submit.min_new_tokens - num_made)
        if submit.ignore_eos:
            config.ignore_eos = True
        elif submit.stop_token_ids:
            config.stop_token_ids = set(submit.stop_token_ids) | self._stop_token_ids
        if submit.beams is None:
            _set_sampling(config, submit.sampling)
        else:
            _set_beams(config, submit.beams, len(submit.ids))
        if self._assist is not None:
            _set_assist(config, submit.assist or self._assist)
        if submit.grammar is not None:
            config.structured_output_config = structured_output(submit.grammar)
        return config


def _set_sampling(config: Any, sampling: SamplingParams) -> None:
    config.repetition_penalty = sampling.repetition_penalty
    config.frequency_penalty = sampling.frequency_penalty
    config.presence_penalty = sampling.presence_penalty
    if sampling.temperature <= 0:
        return
    config.do_sample = True
    config.temperature = sampling.temperature
    config.top_p = sampling.top_p
    config.min_p = sampling.min_p
    config.rng_seed = sampling.seed
    if sampling.top_k > 0:
        config.top_k = sampling.top_k


def _usual_assist(options: EngineOptions) -> SpeculationSpec | None:
    """GenAI has no defaults of its own here. These are those that OVMS documents."""
    if options.draft_model:
        return SpeculationSpec(num_tokens=DEFAULT_ASSISTANT_TOKENS)
    if options.prompt_lookup:
        return SpeculationSpec(DEFAULT_ASSISTANT_TOKENS, max_ngram_size=DEFAULT_NGRAM_SIZE)
    return None


def _set_assist(config: Any, assist: SpeculationSpec) -> None:
    if assist.num_tokens:
        config.num_assistant_tokens = assist.num_tokens
    if assist.confidence_threshold:
        config.assistant_confidence_threshold = assist.confidence_threshold
    if assist.max_ngram_size:
        config.max_ngram_size = assist.max_ngram_size


def _set_beams(config: Any, beams: BeamSpec, num_returned: int) -> None:
    config.num_beams = beams.width
    config.num_return_sequences = num_returned
    config.length_penalty = beams.length_penalty
    config.stop_criteria = _STOP_CRITERIA[beams.early_stopping]
    if beams.no_repeat_ngram_size:
        config.no_repeat_ngram_size = beams.no_repeat_ngram_size


def structured_output(grammar: GrammarSpec) -> Any:
    """GenAI's form of a constraint. It is compiled, and may fail, only in a step."""
    field = _GRAMMAR_FIELDS[GrammarKind(grammar.kind)]
    return genai.StructuredOutputConfig(**{field: grammar.source})


def _twin(config: EngineConfig) -> tuple[Path, Twin]:
    """The folder to load: the model's own, or its twin with the tap. Python operations run
    on the CPU alone."""
    twin_folder = config.cache_dir / "twin"
    if config.device == "CPU" and (config.folder / MODEL_FILE).exists():
        twin = write_twin(config.folder, twin_folder)
        if twin.has_logits_hook:
            return twin_folder, twin
    return config.folder, _NO_TWIN


def _scheduler(config: EngineConfig) -> Any:
    options = config.options
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = options.max_num_batched_tokens
    scheduler.max_num_seqs = options.max_running
    scheduler.enable_prefix_caching = options.enable_prefix_caching
    scheduler.cache_size = options.cache_size_gb
    return scheduler


def _properties(config: EngineConfig, twin: Twin, draft: Path | None) -> dict[str, Any]:
    """Pinning is off because pinned threads of two engines would share the same cores."""
    num_threads = config.options.num_threads or os.cpu_count() or 1
    properties: dict[str, Any] = {"CACHE_DIR": str(config.cache_dir / "compiled")}
    if config.device == "CPU":
        properties |= {"INFERENCE_NUM_THREADS": num_threads, "ENABLE_CPU_PINNING": False}
    if draft is not None:
        properties["draft_model"] = genai.draft_model(str(draft), config.device, **properties)
    if config.options.prompt_lookup:
        properties["prompt_lookup"] = True
    if twin.has_logits_hook:
        properties["extensions"] = [LogitsHook]
    return properties | {"sampler_num_threads": num_threads} | config.options.plugin


def _draft_folder(config: EngineConfig, twin: Twin) -> Path:
    """Where prompts are salted, the draft model must take salted ids too."""
    folder = Path(config.options.draft_model)
    if not (folder / MODEL_FILE).exists():
        raise RuntimeError(f"The draft model's folder {folder} has no {MODEL_FILE}.")
    if not twin.salt_modulus:
        return folder
    target = config.cache_dir / "draft-twin"
    return target if write_twin(folder, target, has_logits_hook=False).salt_modulus else folder


def _vocab_size(folder: Path) -> int:
    """The width of the model's logits; 0 when its graph does not say."""
    for name in (MODEL_FILE, "openvino_language_model.xml"):
        if (folder / name).exists():
            core = ov.Core()
            core.add_extension(LogitsHook)
            width = core.read_model(str(folder / name)).output("logits").get_partial_shape()[-1]
            return int(width.get_length()) if width.is_static else 0
    return 0
