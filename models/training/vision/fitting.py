"""The training loop: from a folder with a checkpoint, or from nothing, to a better checkpoint."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen2VLForConditionalGeneration

from training.tokenization import load_tokenizer
from training.vision.architecture import POSITIONS, new_model
from training.vision.batches import Batch, Mixture, Pictures, drawn_elsewhere
from training.vision.network import CellHeads, answer_loss, image_tokens
from training.vision.rendering import save_for_transformers, train_tokenizer

STATE = "training_state.pt"
NUM_STEPS_PER_REPORT = 50
S_PER_CHECKPOINT = 120
SMOOTHING = 0.97
FINAL_RATE = 0.02


@dataclass(frozen=True)
class Schedule:
    """How long to train and how fast to learn.

    The rate rises, stays, and sinks in the last `share_sinking` of the time. `looking_weight` is
    that of the labels of cells beside the answers.
    """

    minutes: float
    learning_rate: float
    num_warmup_steps: int
    share_sinking: float
    looking_weight: float

    def rate(self, num_steps: int, progress: float) -> float:
        """The learning rate after so many steps of this run, at a progress from 0 to 1."""
        warmup = min(1.0, (num_steps + 1) / self.num_warmup_steps)
        left = min(1.0, max(0.0, 1 - progress) / self.share_sinking) if self.share_sinking else 1.0
        return self.learning_rate * warmup * (FINAL_RATE + (1 - FINAL_RATE) * left)


class Trainer:
    """The model with all that training needs; `folder` holds its checkpoint.

    `device` is one of torch's, `cpu` or `cuda`.
    """

    def __init__(self, folder: Path, seed: int, device: str = "cpu") -> None:
        self.folder = folder
        self.tokenizer = _tokenizer(folder)
        self.model = new_model(self.tokenizer.get_vocab_size(), seed).to(device)
        self.heads = CellHeads().to(device)
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.heads.parameters()],
            betas=(0.9, 0.98),
            weight_decay=0.02,
            fused=True,
        )
        self.num_pictures = 0
        if (folder / STATE).exists():
            self._load()

    def _load(self) -> None:
        state = torch.load(self.folder / STATE, weights_only=True, map_location="cpu")
        self.model.load_state_dict(state["model"])
        self.heads.load_state_dict(state["heads"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.num_pictures = state["num_pictures"]

    def save(self) -> None:
        """Write the checkpoint. A reader never finds half of one."""
        state = {
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "num_pictures": self.num_pictures,
        }
        unfinished = self.folder / f"{STATE}.new"
        torch.save(state, unfinished)
        unfinished.replace(self.folder / STATE)

    def save_model(self, folder: Path) -> None:
        """Write what an export needs."""
        self.model.save_pretrained(folder)
        save_for_transformers(self.tokenizer, folder, max_tokens=POSITIONS)

    def step(self, batch: Batch, rate: float, looking_weight: float) -> tuple[float, float]:
        """Learn from one batch; the losses of the cells and of the answers, NaN if absent."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        looking, answers = _losses(self.model, self.heads, batch)
        both = [loss for loss in (_scaled(looking, looking_weight), answers) if loss is not None]
        self.optimizer.zero_grad()
        torch.stack(both).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        pictures = batch if isinstance(batch, Pictures) else batch.pictures
        self.num_pictures += len(pictures.patches) if pictures else 0
        return _value(looking), _value(answers)


def fit(trainer: Trainer, schedule: Schedule, mixture: Mixture) -> None:
    """Train for the schedule's minutes. Prints one line per report."""
    trainer.model.train()
    started_s = saved_s = time.monotonic()
    smooth = {"cells": float("nan"), "answers": float("nan")}
    for step, batch in enumerate(drawn_elsewhere(trainer.folder, mixture)):
        elapsed_s = time.monotonic() - started_s
        progress = elapsed_s / 60 / schedule.minutes
        if progress >= 1:
            break
        rate = schedule.rate(step, progress)
        losses = trainer.step(batch, rate, schedule.looking_weight)
        for name, loss in zip(smooth, losses, strict=True):
            smooth[name] = _smoothed(smooth[name], loss)
        if step % NUM_STEPS_PER_REPORT == 0:
            shown = "  ".join(f"{name} {loss:.3f}" for name, loss in smooth.items())
            print(
                f"step {step}  {trainer.num_pictures} pictures  {shown}  rate {rate:.1e}  "
                f"{elapsed_s:.0f} s",
                flush=True,
            )
        if time.monotonic() - saved_s > S_PER_CHECKPOINT:
            trainer.save()
            saved_s = time.monotonic()
    trainer.save()


def _losses(
    model: Qwen2VLForConditionalGeneration, heads: CellHeads, batch: Batch
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    if isinstance(batch, Pictures):
        return heads.loss(image_tokens(model, batch), batch), None
    if batch.pictures is None:
        return None, answer_loss(model, batch, None)
    seen = image_tokens(model, batch.pictures)
    looking = heads.loss(seen, batch.pictures) if batch.pictures.patches.shape[1] == 1 else None
    return looking, answer_loss(model, batch, seen)


def _tokenizer(folder: Path) -> Tokenizer:
    """The folder's tokenizer, made first if there is none."""
    if not (folder / "tokenizer.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        train_tokenizer().save(str(folder / "tokenizer.json"))
    return load_tokenizer(folder)


def _scaled(loss: torch.Tensor | None, weight: float) -> torch.Tensor | None:
    return None if loss is None else loss * weight


def _value(loss: torch.Tensor | None) -> float:
    return float("nan") if loss is None else loss.item()


def _smoothed(average: float, value: float) -> float:
    if value != value:  # NaN: the batch had no such loss.
        return average
    return value if average != average else SMOOTHING * average + (1 - SMOOTHING) * value
