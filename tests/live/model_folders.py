"""Builders of small model folders for live tests: random weights, no torch, no hub.

Each folder looks as an export by optimum-intel does and loads in a fraction of a second. The
models answer with words without sense, the same ones each time, and never end by themselves:
an answer always has exactly `max_tokens` tokens.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.shapes.folder import ModelPlan, write_folder
from benchmarks.shapes.shape import DecoderShape, Family
from benchmarks.shapes.templates import CHATML, LLAMA3
from benchmarks.shapes.vocabulary import Vocabulary

LLAMA = ModelPlan(
    shape=DecoderShape(
        family=Family.LLAMA,
        vocab_size=768,
        hidden_size=64,
        intermediate_size=160,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        has_tied_head=False,
        max_positions=2_048,
        rope_theta=500_000.0,
        rms_epsilon=1e-5,
        initial_std=0.3,
    ),
    vocabulary=Vocabulary(
        size=768,
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
    ),
    chat_template=LLAMA3,
)

QWEN2 = ModelPlan(
    shape=DecoderShape(
        family=Family.QWEN2,
        vocab_size=640,
        hidden_size=64,
        intermediate_size=192,
        num_layers=3,
        num_heads=8,
        num_kv_heads=2,
        has_tied_head=True,
        max_positions=4_096,
        initial_std=0.3,
    ),
    vocabulary=Vocabulary(
        size=640,
        special_tokens=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        end="<|im_end|>",
        pad="<|endoftext|>",
        has_single_digits=True,
    ),
    chat_template=CHATML,
)


def write_llama_folder(path: Path) -> Path:
    """Llama 3 in small: untied head, a begin-of-text token, header tokens around the roles."""
    write_folder(LLAMA, path)
    return path


def write_qwen2_folder(path: Path) -> Path:
    """Qwen2 in small: tied head, biased Q, K and V, ChatML."""
    write_folder(QWEN2, path)
    return path


def without_tokenizer_json(folder: Path) -> Path:
    """Leave only the OpenVINO tokenizer, as folders of models with a slow tokenizer have it."""
    (folder / "tokenizer.json").unlink()
    return folder
