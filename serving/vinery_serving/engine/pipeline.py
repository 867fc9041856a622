"""The only module that calls OpenVINO GenAI's pipeline. `step`, `add` and `read` hold the GIL, and
a blocking read would deadlock (GenAI 2026.4.1). So all calls come from the engine's only thread,
and outputs are read only when they are available."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import openvino as ov
import openvino_genai as genai
from msgspec import structs

from vinery_serving.core.request import (
    SAMPLERS,
    BeamSearch,
    GrammarKind,
    Sampling,
    SpeculativeDecoding,
)
from vinery_serving.engine import graph as graphs
from vinery_serving.engine.coded_tokenizer import write_tokenizer
from vinery_serving.engine.compiled_graph import KeptAttention, cache_callbacks
from vinery_serving.engine.config import EngineConfig, alone
from vinery_serving.engine.logits_handler import LogitsHook, StepView
from vinery_serving.engine.lora import read_adapters
from vinery_serving.engine.option_groups import CacheEviction, SparseAttention
from vinery_serving.engine.options import NGRAM_SIZE, NUM_ASSISTANT_TOKENS, EngineOptions
from vinery_serving.engine.prefix_cache import BLOCK, TokenArray, salt_prompt
from vinery_serving.engine.speculation import Speculation, limited
from vinery_serving.engine.vision import VisionModel, VisionPrompt
from vinery_serving.transport.messages import FINISH_LENGTH, FINISH_STOP, GrammarSpec, Submit

_ONLY_GREEDY: Final = (
    "This model proposes tokens with a draft model, and on its device it can then generate with a "
    "`temperature` of 0 only. Send 0, or ask the administrator to remove the option draft_model "
    "or eagle3_head."
)
_TOO_SHORT: Final = (
    "This model proposes tokens with an EAGLE-3 head, which needs a prompt of two tokens at least."
)
# GenAI compares prompts in its prefix cache by every so many numbers of each embedding.
_HASH_STRIDE: Final = 50
_EXACT: Final = {"INFERENCE_PRECISION_HINT": "f32"}  # salts are in the last bits of embeddings
# Of a draft that nothing bounds. GenAI was never seen to propose more.
_MAX_CONFIDENT_TOKENS: Final = 256
_LEAST_CONFIDENCE: Final = 0.001  # where a draft must end, a token of any vocabulary has less
_NO_LIMIT: Final = 1 << 31  # blocks of a cache whose size GenAI does not tell

_FINISHES: Final = {
    genai.GenerationFinishReason.STOP: FINISH_STOP,
    genai.GenerationFinishReason.LENGTH: FINISH_LENGTH,
}
_GRAMMAR_FIELDS: Final = {
    GrammarKind.JSON_SCHEMA: "json_schema",
    GrammarKind.REGEX: "regex",
    GrammarKind.EBNF: "grammar",
    GrammarKind.STRUCTURAL_TAG: "structural_tags_config",
}

_STOP_CRITERIA: Final = {
    True: genai.StopCriteria.EARLY,
    False: genai.StopCriteria.HEURISTIC,
    None: genai.StopCriteria.NEVER,
}
# GenAI's names of sampling parameters, where they differ.
_SAMPLER_NAMES: Final = {"seed": "rng_seed"}

# New token ids of a generation, and the finish behind the last ids. A plain tuple, because one is
# built for every token.
Output = tuple[list[int], str | None]


@dataclass(slots=True)
class Handle:
    """The first `_num_echoed` tokens are the prompt's. `is_prompt_only` drops the others.
    `is_scored` sets `logprob`."""

    _handle: Any
    _num_echoed: int = 0
    is_prompt_only: bool = False
    is_scored: bool = False
    logprob: float | None = None  # of the newest token, by GenAI

    def read(self) -> Output | None:
        """Return the tokens of the last step; None if it generated none here."""
        if not self._handle.can_read():
            return None
        outputs = self._handle.read()
        if not outputs:
            return None
        (output,) = outputs.values()  # of the only sequence
        token_ids, finish = output.generated_ids, _FINISHES.get(output.finish_reason)
        if self.is_scored:
            self.logprob = float(output.generated_log_probs[-1])
        if self._num_echoed:
            num_dropped = min(self._num_echoed, len(token_ids))
            self._num_echoed -= num_dropped
            token_ids = token_ids[num_dropped:]
            if not token_ids and finish is None:
                return None
        if self.is_prompt_only:
            return [], FINISH_LENGTH
        return token_ids, finish

    def read_beams(self, num: int) -> list[Output]:
        if self.is_dropped or self._handle.get_status() == genai.GenerationStatus.RUNNING:
            return []
        return [
            (output.generated_ids, _FINISHES.get(output.finish_reason, FINISH_STOP))
            for output in self._handle.read_all()[:num]
        ]

    @property
    def is_dropped(self) -> bool:
        return bool(self._handle.get_status() == genai.GenerationStatus.IGNORED)

    @property
    def num_prompt_tokens(self) -> int:
        return int(self._handle.get_perf_metrics().get_num_input_tokens())

    def cancel(self) -> None:
        self._handle.cancel()


class Pipeline:
    def __init__(self, config: EngineConfig) -> None:
        """Raises RuntimeError if the model cannot be loaded."""
        # Of a vision model; None: the model takes text only.
        has_vision = graphs.is_vision_folder(config.folder)
        self.vision = VisionModel.read(config.folder) if has_vision else None
        copy = _hooked(config) if self.vision is None else _vision_copy(config, self.vision)
        self._folder, self._graph = copy
        self._config = config
        self._next_id = 0
        self._next_salt = 1
        self._block_bytes = 0  # of the KV cache; 0: unknown
        self.has_cache = config.options.enable_prefix_caching  # whether prefix caching is on
        least = 0 if self.vision is None else self.vision.least_step_tokens
        self.max_step_tokens = max(config.options.max_num_batched_tokens, least)
        self.speculation = Speculation()
        self._has_draft_model = bool(config.options.draft_folder)
        draft, drafts = _draft_folder(config) if self._has_draft_model else (None, None)
        self._draft: Path | None = draft
        if drafts is not None and not drafts.salt_modulus:
            self.disable_salts()  # the draft model would not understand salted ids
        bounded = drafts is not None and drafts.bounds_drafts
        self._max_confident_tokens = graphs.MAX_DRAFT if bounded else _MAX_CONFIDENT_TOKENS
        self._open(config.options)
        # Whether the logits of a step can be read and changed.
        self.has_logits_hook = self._graph.has_logits_hook
        self._stop_token_ids = frozenset(self._pipeline.get_config().stop_token_ids)
        self.vocab_size = self._graph.vocab_size or _vocab_size(self._folder)
        if self._has_head:
            self._try_head(config.options.eagle3_head)

    def _open(self, options: EngineOptions) -> None:
        self._default_assist = _default_assist(options)
        self._has_head = bool(options.eagle3_head)
        draft = self._draft if options.draft_folder else None
        KeptAttention.heads = None  # until a kept graph is read
        if self._graph.has_logits_hook:
            LogitsHook.before_compile()
        self._pipeline = genai.ContinuousBatchingPipeline(
            str(self._folder),
            _scheduler(self._config, self.max_step_tokens),
            self._config.device,
            _properties(self._config, self._graph, draft, has_lookup=options.prompt_lookup),
        )
        if self._graph.has_logits_hook:
            LogitsHook.after_compile()

    def switch(self) -> None:
        """Load the model again, with or without what proposes tokens. There must be no generation.
        Raises RuntimeError or OSError."""
        options = self._config.options
        if self.speculation.is_on:
            options = structs.replace(options, draft_model="", eagle3_head="", prompt_lookup=False)
        LogitsHook.callback = self._pipeline = None  # two models would need twice the memory
        with alone(self._config.cache_dir):
            self._open(options)
        self.speculation.is_on = not self.speculation.is_on

    def _try_head(self, folder: str) -> None:
        """Raises RuntimeError if the head cannot read the model's states: GenAI finds that out only
        in a step."""
        config = genai.GenerationConfig()
        config.max_new_tokens, config.num_assistant_tokens = 2, 1
        config.ignore_eos = True
        LogitsHook.callback = None
        try:
            handle = self._pipeline.add_request(0, ov.Tensor(np.zeros((1, 2), np.int64)), config)
            while self.has_work:
                self._pipeline.step()
            handle.read_all()
        except RuntimeError as error:
            raise RuntimeError(
                f"The EAGLE-3 head {folder} does not fit this model. Choose one that was trained "
                "for it, or leave out the option eagle3_head."
            ) from error

    @property
    def speculates(self) -> bool:
        return self._default_assist is not None and self.has_logits_hook

    @property
    def asks_draft(self) -> bool:
        """Whether a draft model or head is asked for tokens."""
        return self._has_draft_model and self._default_assist is not None

    def max_draft_tokens(self, submit: Submit) -> int:
        if self._default_assist is None:
            return 0
        return self._assist(submit).num_tokens or self._max_confident_tokens

    def draft_width(self, submit: Submit) -> int | None:
        """Return the width of a request, see `Speculation`; None: its own, or there is none."""
        is_plain = self._default_assist is None and self.speculation.is_on
        return None if is_plain else self.speculation.width_for(submit.assist)

    def _assist(self, submit: Submit) -> SpeculativeDecoding:
        assert self._default_assist is not None
        return limited(submit.assist or self._default_assist, self.draft_width(submit))

    @property
    def tokenizer(self) -> Any:
        return self._pipeline.get_tokenizer()

    @property
    def can_score_prompts(self) -> bool:
        """Whether the hook can see every token of a prompt, none of them cached."""
        if self.vision is not None:
            return False  # GenAI crashes when it echoes a prompt of a vision model
        return self.has_logits_hook and (not self.has_cache or self._graph.num_salts > 0)

    @property
    def num_salts(self) -> int:
        """How many salts a token id may have; 0: no prefix cache, or no support in the graph."""
        is_usable = self.has_logits_hook or self.vision is not None
        return self._graph.num_salts if is_usable and self.has_cache else 0

    def disable_salts(self) -> None:
        self._graph = replace(self._graph, salt_modulus=0)

    @property
    def supports_cache_salt(self) -> bool:
        """Whether prompts of different cache keys share no cached block."""
        return not self.has_cache or self.num_salts > 1

    def leaves_penalty(self, submit: Submit, cache_key: bytes | None) -> bool:
        """Whether the caller must apply the request's repetition penalty. GenAI looks up the logits
        of all tokens of the prompt, and salted ids have none."""
        if submit.sampling.repetition_penalty in (None, 1) or submit.beams is not None:
            return False
        if self.leaves_sampling(submit) or self.vision is not None:
            return True  # GenAI has no ids of a prompt with pictures
        is_scored = submit.logits is not None and submit.logits.prompt_logprobs is not None
        return is_scored or (cache_key is not None and self.has_cache)

    def leaves_sampling(self, submit: Submit) -> bool:
        """Whether the caller must sample the request's tokens, see `TokenSampler`."""
        is_sampled = submit.beams is None and bool(submit.sampling.temperature)
        return is_sampled and self._has_draft_model

    def add(
        self,
        prompt_ids: TokenArray,
        submit: Submit,
        max_new_tokens: int,
        *,
        cache_key: bytes | None = None,
        echo: bool = False,
        vision: VisionPrompt | None = None,
        is_scored: bool = False,
    ) -> Handle:
        """Queue a generation that shares the prefix cache with prompts of the same key only. With
        `echo`, every token of the prompt is computed and has a row of logits. `vision` is set for a
        vision model: pictures are encoded before the return, and with `is_scored` the handle has
        log-probabilities. Raises RuntimeError if GenAI or this pipeline refuses the request."""
        if self.leaves_sampling(submit) and not self.has_logits_hook:
            raise RuntimeError(_ONLY_GREEDY)
        if self._has_head and len(prompt_ids) < 2:
            raise RuntimeError(_TOO_SHORT)
        self._next_id += 1
        # At least one token: if a prompt generates none, GenAI 2026.4.1 samples other generations
        # of the step from this prompt's rows.
        config = self._generation_config(submit, max(1, max_new_tokens))
        config.echo = echo
        if self.leaves_penalty(submit, cache_key):
            config.repetition_penalty = 1.0
        if vision is not None:
            config.logprobs = int(is_scored)
            handle = self._add_vision(prompt_ids, vision, cache_key, config)
            return Handle(handle, is_prompt_only=max_new_tokens == 0, is_scored=is_scored)
        if echo and self.has_cache:
            prompt_ids = self._with_new_salt(prompt_ids)
        elif cache_key is not None and self.has_cache:
            graph = self._graph
            prompt_ids = salt_prompt(prompt_ids, cache_key, graph.salt_modulus, graph.num_salts)
        tensor = ov.Tensor(prompt_ids.reshape(1, -1))
        handle = self._pipeline.add_request(self._next_id, tensor, config)
        num_echoed = len(prompt_ids) if echo else 0
        return Handle(handle, num_echoed, is_prompt_only=max_new_tokens == 0)

    def _add_vision(
        self, prompt_ids: TokenArray, vision: VisionPrompt, cache_key: bytes | None, config: Any
    ) -> Any:
        """Returns GenAI's handle. Raises RuntimeError."""
        model, graph = self.vision, self._graph
        assert model is not None
        try:
            model.check(prompt_ids, vision.media)
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        if self.num_salts:
            prompt_ids = vision.with_grids(prompt_ids, graph.salt_modulus, graph.num_salts)
        if self.num_salts and cache_key is not None:
            head, rest = np.split(prompt_ids, [vision.num_saltable])
            head = salt_prompt(head, cache_key, graph.salt_modulus, graph.num_salts // 2)
            prompt_ids = np.concatenate((head, rest))
        config.apply_chat_template = False
        text = model.text(prompt_ids, vision.media)
        images, videos = (vision.tensors(are_videos=each) for each in (False, True))
        return self._pipeline.add_request(self._next_id, text, images, videos, config)

    def step(self, callback: Callable[[StepView], None] | None = None) -> None:
        """Compute a token for every decoding generation, or chunks of prompts. `callback` gets the
        logits before the sampler does. Raises RuntimeError; every generation must then be cancelled
        and added again."""
        LogitsHook.callback = callback
        self._pipeline.step()

    def _with_new_salt(self, prompt_ids: TokenArray) -> TokenArray:
        """Return the prompt with a salt that the prefix cache has never seen. Only the first id is
        salted: GenAI looks up the logits of the others without a check."""
        salted = prompt_ids.copy()
        salted[0] += self._next_salt * self._graph.salt_modulus
        self._next_salt = self._next_salt % self._graph.num_salts + 1
        return salted

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything, even if it only frees cancelled generations."""
        return bool(self._pipeline.has_non_finished_requests())

    @property
    def cache(self) -> tuple[float, int]:
        """The used part of the KV cache, 0..1, and the bytes that are allocated for it."""
        metrics = self._pipeline.get_metrics()
        return float(metrics.cache_usage) / 100, int(metrics.cache_size_in_bytes)

    def note_block(self) -> None:
        """Note the size of a block of the cache, of which the last step has used one."""
        usage, num_bytes = self.cache
        self._block_bytes = round(usage * num_bytes)

    @property
    def num_cache_tokens(self) -> int:
        """How many tokens the KV cache has room for, at present."""
        if not self.has_cache:
            return 0
        block = BLOCK if self._config.device == "CPU" else BLOCK // 2
        return block * (self.cache[1] // self._block_bytes if self._block_bytes else _NO_LIMIT)

    def _generation_config(self, submit: Submit, max_new_tokens: int) -> Any:
        config = genai.GenerationConfig()
        config.max_new_tokens = max_new_tokens
        # A generation that is added again already has some of its tokens.
        num_generated = max(0, submit.max_new_tokens - max_new_tokens)
        config.min_new_tokens = max(0, submit.min_new_tokens - num_generated)
        if submit.ignore_eos:
            config.ignore_eos = True
        elif submit.stop_token_ids:
            config.stop_token_ids = set(submit.stop_token_ids) | self._stop_token_ids
        if self.leaves_sampling(submit):
            _set_sampling(config, Sampling())
        elif submit.beams is None:
            _set_sampling(config, submit.sampling)
        else:
            _set_beams(config, submit.beams, len(submit.ids))
        if self._default_assist is not None:
            _set_assist(config, self._assist(submit))
        if submit.grammar is not None:
            config.structured_output_config = structured_output(submit.grammar)
        return config


def _set_sampling(config: Any, sampling: Sampling) -> None:
    config.do_sample = bool(sampling.temperature)
    for name in SAMPLERS:
        value = getattr(sampling, name)
        # Penalties act in greedy decoding, too. A value of 0 has no effect.
        if value and (config.do_sample or name.endswith("_penalty")):
            setattr(config, _SAMPLER_NAMES.get(name, name), value)


def _default_assist(options: EngineOptions) -> SpeculativeDecoding | None:
    """Return the defaults of a request without options: GenAI has none."""
    if options.draft_folder:
        return SpeculativeDecoding(num_tokens=NUM_ASSISTANT_TOKENS)
    if options.prompt_lookup:
        return SpeculativeDecoding(NUM_ASSISTANT_TOKENS, max_ngram_size=NGRAM_SIZE)
    return None


def _set_assist(config: Any, assist: SpeculativeDecoding) -> None:
    if assist.num_tokens:
        config.num_assistant_tokens = assist.num_tokens
    if assist.confidence_threshold:
        config.assistant_confidence_threshold = max(assist.confidence_threshold, _LEAST_CONFIDENCE)
        config.logprobs = 1  # a greedy token has no confidence without
    config.max_ngram_size = assist.max_ngram_size or 0


def _set_beams(config: Any, beams: BeamSearch, num_returned: int) -> None:
    config.num_beams = beams.width
    config.num_return_sequences = num_returned
    config.length_penalty = beams.length_penalty
    config.stop_criteria = _STOP_CRITERIA[beams.stops_early]
    if beams.no_repeat_ngram_size:
        config.no_repeat_ngram_size = beams.no_repeat_ngram_size


def structured_output(grammar: GrammarSpec) -> Any:
    field = _GRAMMAR_FIELDS[GrammarKind(grammar.kind)]
    return genai.StructuredOutputConfig(**{field: grammar.source})


def _hooked(config: EngineConfig) -> tuple[Path, graphs.GraphFeatures]:
    """Return a copy with the logits hook where possible: only the CPU plugin runs Python."""
    target = config.cache_dir / "hooked"
    if config.device == "CPU" and (config.folder / graphs.MODEL_FILE).exists():
        folder = config.folder
        features = graphs.kept(folder, target, lambda: graphs.write_hooked_folder(folder, target))
        if features.has_logits_hook:
            return target, features
    return config.folder, graphs.GraphFeatures()


def _vision_copy(config: EngineConfig, model: VisionModel) -> tuple[Path, graphs.GraphFeatures]:
    """Return a copy that takes token ids, with the logits hook where that is possible."""
    _check_vision(config.options)
    # The features of a copy depend on the device.
    target = config.cache_dir / f"hooked-{config.device}"

    def write() -> graphs.GraphFeatures:
        has_hook = config.device == "CPU"
        features = graphs.write_vision_folder(config.folder, target, has_logits_hook=has_hook)
        write_tokenizer(config.folder, target, model.literals)
        if not _embeds_salts(target / graphs.EMBEDDINGS_FILE, config.device, features):
            features = replace(features, salt_modulus=0)
        return features

    return target, graphs.kept(config.folder, target, write)


def _check_vision(options: EngineOptions) -> None:
    """Raises RuntimeError for options that GenAI has for text models only."""
    if options.draft_folder or options.prompt_lookup:
        raise RuntimeError(
            "A vision model cannot have the options draft_model, eagle3_head and prompt_lookup: "
            "no tokens are proposed for one."
        )
    if options.adapters:
        raise RuntimeError("A vision model cannot have the option adapters.")


def _embeds_salts(path: Path, device: str, features: graphs.GraphFeatures) -> bool:
    """Whether the device computes the embeddings of salted ids exactly: all differ in the values
    that GenAI compares, and a plain id keeps its embedding."""
    modulus = features.salt_modulus
    if not modulus:
        return False
    compiled = ov.Core().compile_model(str(path), device, _EXACT)
    numbers = np.arange(features.num_salts + 1, dtype=np.int64)
    for id_ in (0, 1, modulus // 2, modulus - 1):
        values = compiled([(id_ + numbers * modulus)[None]])[0][0][:, ::_HASH_STRIDE]
        is_used = (values[0] != 0).any()
        if is_used and len(np.unique(values.astype(np.float32), axis=0)) != len(numbers):
            return False
    return True


def _scheduler(config: EngineConfig, max_step_tokens: int) -> Any:
    options = config.options
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = max_step_tokens
    scheduler.max_num_seqs = options.max_running
    scheduler.dynamic_split_fuse = options.dynamic_split_fuse
    scheduler.enable_prefix_caching = options.enable_prefix_caching
    scheduler.cache_size = options.cache_size_gb
    if options.cache_interval_multiplier:
        scheduler.cache_interval_multiplier = options.cache_interval_multiplier
    if options.cache_eviction is not None:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = _eviction(options.cache_eviction)
    if options.sparse_attention is not None:
        scheduler.use_sparse_attention = True
        scheduler.sparse_attention_config = _sparse(options.sparse_attention)
    return scheduler


def _eviction(eviction: CacheEviction) -> Any:
    # GenAI has the same order.
    *sizes, aggregation, rotates, window, budget, anchor, seed = structs.astuple(eviction)
    mode = getattr(genai.AggregationMode, aggregation.upper())
    crush = genai.KVCrushConfig(budget, getattr(genai.KVCrushAnchorPointMode, anchor.upper()), seed)
    return genai.CacheEvictionConfig(*sizes, mode, rotates, window, crush)


def _sparse(sparse: SparseAttention) -> Any:
    mode, *others = structs.astuple(sparse)  # GenAI has the same order
    return genai.SparseAttentionConfig(getattr(genai.SparseAttentionMode, mode.upper()), *others)


def _properties(
    config: EngineConfig, graph: graphs.GraphFeatures, draft: Path | None, *, has_lookup: bool
) -> dict[str, Any]:
    options = config.options
    num_threads = options.num_threads or os.cpu_count() or 1
    properties = _device_properties(config, config.device)
    if draft is not None:
        properties["draft_model"] = _draft_model(config, draft)
    if adapters := read_adapters(options.adapters, config.folder / graphs.MODEL_FILE):
        pairs = [(genai.Adapter(str(path)), scale) for path, scale in adapters]
        mode = genai.AdapterConfig.Mode.MODE_STATIC
        properties["adapters"] = genai.AdapterConfig(pairs, mode)
    if has_lookup:
        properties["prompt_lookup"] = True
    properties["extensions"] = [KeptAttention]
    if graph.has_logits_hook:
        properties["extensions"].append(LogitsHook)
    if graph.is_vision:
        # GenAI would pass the sampler's threads on to the plugin.
        properties["MODEL_PROPERTIES"] = {"text_embeddings": _EXACT}
    else:
        properties["sampler_num_threads"] = num_threads
    return properties | options.plugin


def _device_properties(config: EngineConfig, device: str) -> dict[str, Any]:
    """Return what a device gets for any model. Pinned threads of two engines share cores
    (openvino#32444)."""
    options = config.options
    properties: dict[str, Any] = {"CACHE_DIR": str(config.compiled_dir)}
    if device == "CPU":
        num_threads = options.num_threads or os.cpu_count() or 1
        properties |= {"INFERENCE_NUM_THREADS": num_threads, "ENABLE_CPU_PINNING": False}
        properties["CACHE_ENCRYPTION_CALLBACKS"] = cache_callbacks()
    if options.kv_cache_precision:
        properties["KV_CACHE_PRECISION"] = options.kv_cache_precision
    for name in ("max_prompt_len", "min_response_len"):
        if value := getattr(options, name):
            properties[name.upper()] = value
    if options.model_distribution_policy:
        properties["MODEL_DISTRIBUTION_POLICY"] = options.model_distribution_policy.upper()
    return properties


def _draft_model(config: EngineConfig, folder: Path) -> Any:
    """Return GenAI's description of the draft model. A draft model with its own scheduler shares no
    cache with the model."""
    options, own = config.options, config.options.draft_scheduler
    device = options.draft_device or config.device
    properties = _device_properties(config, device)
    if device != config.device:
        for name in ("MODEL_DISTRIBUTION_POLICY", "MAX_PROMPT_LEN", "MIN_RESPONSE_LEN"):
            properties.pop(name, None)
    if own is not None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = own.cache_size_gb
        scheduler.max_num_batched_tokens = own.max_num_batched_tokens
        scheduler.enable_prefix_caching = options.enable_prefix_caching
        properties["scheduler_config"] = scheduler
    return genai.draft_model(str(folder), device, **properties)


def _draft_folder(config: EngineConfig) -> tuple[Path, graphs.GraphFeatures]:
    folder = Path(config.options.draft_folder)
    if not (folder / graphs.MODEL_FILE).exists():
        raise RuntimeError(f"The draft model's folder {folder} has no {graphs.MODEL_FILE}.")
    target = config.cache_dir / "salted-draft"
    features = graphs.write_draft_folder(folder, target)
    return (target if features.salt_modulus else folder), features


def _vocab_size(folder: Path) -> int:
    for name in (graphs.MODEL_FILE, graphs.LANGUAGE_FILE):
        if (folder / name).exists():
            core = ov.Core()
            core.add_extension(LogitsHook)
            width = core.read_model(str(folder / name)).output("logits").get_partial_shape()[-1]
            return int(width.get_length()) if width.is_static else 0
    return 0
