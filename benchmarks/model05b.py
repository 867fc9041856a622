"""The half-billion-parameter model of the benchmark: the measures of Qwen2-0.5B, random weights.

Speed does not depend on what the weights say, so nothing is downloaded. The answers are words
without sense, and they never end by themselves.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.shapes.folder import ModelPlan, write_folder
from benchmarks.shapes.shape import DecoderShape, Family
from benchmarks.shapes.templates import CHATML
from benchmarks.shapes.vocabulary import Vocabulary

PLAN = ModelPlan(
    shape=DecoderShape(
        family=Family.QWEN2,
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4_864,
        num_layers=24,
        num_heads=14,
        num_kv_heads=2,
        has_tied_head=True,
        initial_std=0.06,
    ),
    vocabulary=Vocabulary(
        size=151_936,
        special_tokens=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        end="<|im_end|>",
        pad="<|endoftext|>",
        has_single_digits=True,
    ),
    chat_template=CHATML,
)


def model_05b(cache: Path) -> Path:
    """The folder of the model inside `cache`, written (500 MB) when it is not there yet."""
    folder = cache / f"random-qwen2-0.5b-v{PLAN.seed}"
    if not folder.exists():
        write_folder(PLAN, folder)
    return folder
