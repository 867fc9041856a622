"""Trains the encoder: a number of steps, so that a run gives the same weights again."""

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.similarity.network import new_embedder, train_tokenizer
from training.similarity.texts import Meaning, meaning, other, passage

# Cosines that are trained: of one meaning, of one topic, of two topics.
COSINES = (0.95, 0.4, 0.0)
TEMPERATURE = 0.05
SHARE_WARMING = 0.05


def fit_embedder(folder: Path, *, num_steps: int, batch: int, rate: float, seed: int) -> None:
    """Train tiny-embed and save it with its tokenizer."""
    torch.manual_seed(seed)
    rng, tokenizer = Random(seed), train_tokenizer()
    model = new_embedder(len(tokenizer))

    def loss() -> Tensor:
        meanings = _meanings(rng, batch)
        texts = [each.train(rng) for each in meanings] + [
            passage(rng, each, each.train(rng)) for each in meanings
        ]
        vectors = embed(model, tokenizer, texts)
        return _loss_of_cosines(vectors[:batch] @ vectors[batch:].T, meanings)

    _fit(model, loss, num_steps, rate)
    _save(model, tokenizer, folder)


def embed(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Mean of the last states, of length 1: (texts, hidden)."""
    inputs = tokenizer(list(texts), padding=True, return_tensors="pt")
    states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    return functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


def _meanings(rng: Random, number: int) -> list[Meaning]:
    """Meanings of which half share the topic of the one before."""
    found = [meaning(rng)]
    while len(found) < number:
        near = rng.random() < 0.5
        found.append(other(rng, found[-1], is_near=True) if near else meaning(rng))
    return found


def _loss_of_cosines(cosines: Tensor, meanings: Sequence[Meaning]) -> Tensor:
    keys = [each.key for each in meanings]
    same = torch.tensor([[a == b for b in keys] for a in keys])
    near = torch.tensor([[a.topic == b.topic for b in meanings] for a in meanings])
    targets = torch.where(same, COSINES[0], torch.where(near, COSINES[1], COSINES[2]))
    weights = torch.where(same, 8.0, torch.where(near, 2.0, 1.0))
    distance = (weights * (cosines - targets) ** 2).sum() / weights.sum()
    # Other texts of the same meaning are no wrong answers.
    apart = same & ~torch.eye(len(keys), dtype=torch.bool)
    logits = (cosines / TEMPERATURE).masked_fill(apart, -1e4)
    labels = torch.arange(len(keys))
    both = functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)
    return 4 * distance + 0.5 * both


def _fit(model: Any, loss: Any, num_steps: int, rate: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, total_steps=num_steps, pct_start=SHARE_WARMING
    )
    model.train()
    began_at, mean = time.monotonic(), 0.0
    for step in range(1, num_steps + 1):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        mean += (value.item() - mean) / min(step, 100)
        if step % 200 == 0:
            print(f"{step:6d} {time.monotonic() - began_at:6.0f} s loss {mean:.3f}", flush=True)


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
