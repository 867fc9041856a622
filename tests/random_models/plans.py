"""What a random model is made of: its measures as in `config.json` of a Llama or a Qwen2 model, its
vocabulary and its chat template."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from tests.random_models.vocabulary import Vocabulary

# Cut down to what plain conversations need.
CHATML = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

LLAMA3 = """\
{{- bos_token -}}
{%- for message in messages -%}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}
    {{- message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
{%- endif -%}
"""


class Family(StrEnum):
    """The two architectures that can be written. They differ in the bias of Q, K and V."""

    LLAMA = "llama"
    QWEN2 = "qwen2"


@dataclass(frozen=True)
class DecoderShape:
    """A decoder-only transformer with grouped queries, RoPE, RMSNorm and a gated MLP.

    `initial_std` is the standard deviation of every random weight. It decides how much the
    layers weigh against the embedding of the last token: at 0.02, the usual choice before
    training, a tied model repeats its last token for ever.
    """

    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    has_tied_head: bool
    max_positions: int = 32_768
    rope_theta: float = 1_000_000.0
    rms_epsilon: float = 1e-6
    initial_std: float = 0.02

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_heads:
            raise ValueError("hidden_size must be a multiple of num_heads")
        if self.num_heads % self.num_kv_heads:
            raise ValueError("num_heads must be a multiple of num_kv_heads")

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def kv_size(self) -> int:
        """Width of the K and of the V projection."""
        return self.num_kv_heads * self.head_size

    @property
    def has_qkv_bias(self) -> bool:
        return self.family is Family.QWEN2

    @property
    def architecture(self) -> str:
        match self.family:
            case Family.LLAMA:
                return "LlamaForCausalLM"
            case Family.QWEN2:
                return "Qwen2ForCausalLM"
            case _:
                assert_never(self.family)

    @property
    def num_parameters(self) -> int:
        attention = 2 * self.hidden_size * (self.hidden_size + self.kv_size)
        biases = (self.hidden_size + 2 * self.kv_size) * self.has_qkv_bias
        mlp = 3 * self.hidden_size * self.intermediate_size
        norms = 2 * self.hidden_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.has_tied_head else 2)
        layers = self.num_layers * (attention + biases + mlp + norms)
        return layers + embeddings + self.hidden_size


@dataclass(frozen=True)
class ModelPlan:
    """All that a folder is made of. The same plan gives the same folder."""

    shape: DecoderShape
    vocabulary: Vocabulary
    chat_template: str
    seed: int = 1

    def __post_init__(self) -> None:
        if self.shape.vocab_size != self.vocabulary.size:
            raise ValueError("shape and vocabulary must have the same size")


def plan_of(shape: DecoderShape) -> ModelPlan:
    """A model of this shape that talks as Llama 3 or Qwen2 do."""
    match shape.family:
        case Family.LLAMA:
            return ModelPlan(shape, _llama3(shape.vocab_size), LLAMA3)
        case Family.QWEN2:
            return ModelPlan(shape, _qwen2(shape.vocab_size), CHATML)
        case _:
            assert_never(shape.family)


def _llama3(size: int) -> Vocabulary:
    return Vocabulary(
        size=size,
        special_tokens=(
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<|finetune_right_pad_id|>",
        ),
        prefix="<|begin_of_text|>",
        end="<|eot_id|>",
        pad="<|finetune_right_pad_id|>",
    )


def _qwen2(size: int) -> Vocabulary:
    return Vocabulary(
        size=size,
        special_tokens=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        end="<|im_end|>",
        pad="<|endoftext|>",
        has_single_digits=True,
    )
