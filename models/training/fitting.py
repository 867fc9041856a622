"""The training loop, from a model and endless lessons to a checkpoint in a folder; and the average
of two checkpoints of one training."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from training.batches import MicroBatch, steps
from training.checkpoint import load
from training.tokenization import SPECIAL_TOKENS, load_tokenizer, save_for_transformers

POSITIONS = 2048
NUM_STEPS_PER_REPORT = 20
NUM_STEPS_PER_CHECKPOINT = 250


@dataclass(frozen=True)
class Shape:
    """The size of a model of the Qwen3 architecture."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_key_value_heads: int


SHAPES = {
    "tiny-chat": Shape(256, 768, num_layers=5, num_heads=4, num_key_value_heads=2),
    "tiny-draft": Shape(128, 384, num_layers=2, num_heads=4, num_key_value_heads=2),
}


@dataclass(frozen=True)
class Schedule:
    """How long to train and how fast to learn.

    Training ends after `num_tokens` tokens or, if given, after `max_minutes`, whichever is first.
    """

    num_tokens: int
    learning_rate: float
    lessons_per_step: int
    max_tokens_per_lesson: int
    tokens_per_batch: int
    num_warmup_steps: int
    seed: int
    max_minutes: float | None = None

    def progress(self, num_tokens: int, elapsed_s: float) -> float:
        """The part of training that is done, from 0 to 1 or a little more."""
        by_tokens = num_tokens / self.num_tokens
        by_time = elapsed_s / 60 / self.max_minutes if self.max_minutes else 0.0
        return max(by_tokens, by_time)

    def rate(self, step: int, progress: float) -> float:
        """The learning rate: a short warm-up, then half a cosine down to two per cent."""
        warmup = min(1.0, (step + 1) / self.num_warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        return self.learning_rate * warmup * (0.02 + 0.98 * cosine)


def new_model(shape: Shape, vocabulary_size: int, seed: int) -> Qwen3ForCausalLM:
    """A model with random weights. The vocabulary is rounded up to a multiple of 64."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {
        "vocab_size": (vocabulary_size + 63) // 64 * 64,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.hidden_size // shape.num_heads,
        "tie_word_embeddings": True,
        "max_position_embeddings": POSITIONS,
        "eos_token_id": SPECIAL_TOKENS.index("<|im_end|>"),
        "pad_token_id": 0,
        "bos_token_id": None,
    }
    return Qwen3ForCausalLM(Qwen3Config(**settings))


def fit(model: Qwen3ForCausalLM, tokenizer: Tokenizer, schedule: Schedule, folder: Path) -> None:
    """Train `model` in place and keep its checkpoints in `folder`. Prints one line per report."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=schedule.learning_rate, betas=(0.9, 0.95), weight_decay=0.02
    )
    model.train()
    started_s = time.monotonic()
    num_tokens = 0
    smooth_loss: float | None = None
    lessons = steps(
        tokenizer,
        Random(schedule.seed),
        lessons_per_step=schedule.lessons_per_step,
        tokens_per_batch=schedule.tokens_per_batch,
        max_tokens=schedule.max_tokens_per_lesson,
    )
    for step, batches in enumerate(lessons):
        elapsed_s = time.monotonic() - started_s
        progress = schedule.progress(num_tokens, elapsed_s)
        if progress >= 1:
            break
        rate = schedule.rate(step, progress)
        loss = _step(model, optimizer, batches, rate)
        num_tokens += sum(batch.ids.numel() for batch in batches)
        smooth_loss = loss if smooth_loss is None else 0.95 * smooth_loss + 0.05 * loss
        if step % NUM_STEPS_PER_REPORT == 0:
            speed = num_tokens / (time.monotonic() - started_s)
            print(
                f"step {step}  {num_tokens / 1e6:.2f}M tokens  {speed:.0f} tokens/s  "
                f"loss {smooth_loss:.4f}  rate {rate:.1e}  {progress:.1%}",
                flush=True,
            )
        if step % NUM_STEPS_PER_CHECKPOINT == NUM_STEPS_PER_CHECKPOINT - 1:
            save(model, tokenizer, folder)
    save(model, tokenizer, folder)


def _step(
    model: Qwen3ForCausalLM,
    optimizer: torch.optim.Optimizer,
    batches: list[MicroBatch],
    rate: float,
) -> float:
    """One optimiser step over all micro-batches; returns the mean loss per weighted token."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    total_weight = sum(float(batch.weights[:, 1:].sum()) for batch in batches)
    optimizer.zero_grad()
    total_loss = 0.0
    for batch in batches:
        loss = _weighted_loss(model, batch) / total_weight
        loss.backward()
        total_loss += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total_loss


def _weighted_loss(model: Qwen3ForCausalLM, batch: MicroBatch) -> torch.Tensor:
    """The sum of the weighted losses of a batch. Only tokens that count are projected.

    Padding is at the end, where causal attention keeps it out of sight, so no mask is needed.
    """
    targets, weights = batch.ids[:, 1:], batch.weights[:, 1:]
    counts = weights > 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(input_ids=batch.ids[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[counts])
    losses = torch.nn.functional.cross_entropy(logits.float(), targets[counts], reduction="none")
    return (losses * weights[counts]).sum()


def save(model: Qwen3ForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the checkpoint, complete with tokenizer and chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    save_for_transformers(tokenizer, folder, max_tokens=POSITIONS)


# -- Averages


def average(first: Path, second: Path, share: float, folder: Path) -> None:
    """Write the checkpoint `(1 - share) * first + share * second` to `folder`."""
    model = load(first)
    weights = load(second).state_dict()
    model.load_state_dict(
        {
            name: (1 - share) * value + share * weights[name]
            for name, value in model.state_dict().items()
        }
    )
    save(model, load_tokenizer(second), folder)
