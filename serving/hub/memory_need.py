"""How much memory a model needs, estimated from its files and its configuration.

Weights as they are in the file; the KV cache by its formula in 16 bits, which is the most that
OpenVINO takes; and the engine process. What a loaded model really takes is measured by the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# One conversation of this length is what a model should have room for.
CONTEXT_TOKENS: Final = 8192
_KV_BYTES: Final = 2  # of a value
# An engine process without a model (measured: 154-159 MB), and a tenth of the weights for the
# compiled graph.
_PROCESS_BYTES: Final = 160 << 20
_GRAPH_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The parts of a model's memory, in bytes."""

    weights_bytes: int
    kv_cache_bytes: int
    overhead_bytes: int
    context_tokens: int  # for which the KV cache is

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_cache_bytes + self.overhead_bytes

    @property
    def least_bytes(self) -> int:
        """Without a KV cache: with less the model cannot be loaded at all."""
        return self.weights_bytes + self.overhead_bytes


def memory_need(weights_bytes: int, config: Mapping[str, Any], context: int) -> MemoryNeed:
    """Return the need for a conversation of `context` tokens, or of as many as the model takes."""
    tokens = min(context, context_of(config) or context)
    return need_of(weights_bytes, kv_bytes_of_token(config), tokens)


def need_of(weights_bytes: int, kv_bytes: int, tokens: int) -> MemoryNeed:
    """Return the need for `tokens` that take `kv_bytes` each in the KV cache."""
    return MemoryNeed(
        weights_bytes=weights_bytes,
        kv_cache_bytes=tokens * kv_bytes,
        overhead_bytes=_PROCESS_BYTES + int(weights_bytes * _GRAPH_SHARE),
        context_tokens=tokens,
    )


def kv_bytes_of_token(config: Mapping[str, Any]) -> int:
    """Return what a token takes in the KV cache; 0 if config.json does not have the numbers."""
    text = _text_config(config)
    layers = _first(text, "num_hidden_layers", "n_layer", "num_layers")
    heads = _first(text, "num_attention_heads", "n_head")
    hidden = _first(text, "hidden_size", "n_embd", "d_model")
    kv_heads = _first(text, "num_key_value_heads", "multi_query_group_num") or heads
    head_size = _first(text, "head_dim", "kv_channels") or (hidden // heads if heads else 0)
    return 2 * layers * kv_heads * head_size * _KV_BYTES


def context_of(config: Mapping[str, Any]) -> int:
    """Return the most tokens of a conversation; 0 if config.json does not name it."""
    text = _text_config(config)
    return _first(text, "max_position_embeddings", "n_positions", "seq_length", "n_ctx")


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a vision model's configuration that is about its language model."""
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), dict):
            return {**config, **config[key]}
    return config


def _first(config: Mapping[str, Any], *keys: str) -> int:
    """The first of these that is a sane number; 0: none is."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 28:
            return value
    return 0
