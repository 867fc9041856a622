"""The models of the benchmark that are not shipped: the measures of real ones, random weights.

Speed does not depend on the values of the weights, so nothing is downloaded. The answers are words
without sense, and they never end by themselves.
"""

from __future__ import annotations

from pathlib import Path

from tests.random_models.folder import write_folder
from tests.random_models.plans import DecoderShape, Family, ModelPlan, plan_of

# Qwen2-0.5B.
HALF_BILLION_PLAN = plan_of(
    DecoderShape(
        family=Family.QWEN2,
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4_864,
        num_layers=24,
        num_heads=14,
        num_kv_heads=2,
        has_tied_head=True,
        initial_std=0.06,
    )
)
# The vocabulary of Llama 2 on a small body: what a step pays for its logits shows best in
# short steps.
SMALL_PLAN = plan_of(
    DecoderShape(
        family=Family.LLAMA,
        vocab_size=32_000,
        hidden_size=768,
        intermediate_size=2_048,
        num_layers=12,
        num_heads=12,
        num_kv_heads=4,
        has_tied_head=False,
        initial_std=0.06,
    )
)


def half_billion(cache: Path) -> Path:
    """The folder of the 0.5b model inside `cache`, written (500 MB) when it is not there."""
    return _written(HALF_BILLION_PLAN, cache / f"random-qwen2-0.5b-v{HALF_BILLION_PLAN.seed}")


def small(cache: Path) -> Path:
    """The folder of the small model inside `cache`, written (130 MB) when it is not there."""
    return _written(SMALL_PLAN, cache / f"random-llama-0.1b-v{SMALL_PLAN.seed}")


def _written(plan: ModelPlan, folder: Path) -> Path:
    if not folder.exists():
        write_folder(plan, folder)
    return folder
