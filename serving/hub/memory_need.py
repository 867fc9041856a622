"""How much memory a model needs, estimated from its files and its configuration.

Weights as they are in the file; the KV cache by its formula in 16 bits, which is the most that
OpenVINO takes; and the engine process. What a loaded model really takes is measured by the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vinery_serving.core.kv_cache import context_of, kv_numbers_of_token

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
    return kv_numbers_of_token(config) * _KV_BYTES
