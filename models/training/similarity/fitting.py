"""The encoder, a BERT of half a million parameters, its tokenizer, the scorer of pairs, and their
training: a number of steps, so that a run gives the same weights again."""

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from training.similarity.texts import Meaning, careless, meaning, other, passage
from training.similarity.topics import FRAMES, TOPICS
from training.words import phrase

VOCABULARY_SIZE = 2048
MAX_TOKENS = 512
NUM_TEXTS = 20_000
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def train_tokenizer(seed: int = 1) -> PreTrainedTokenizerFast:
    """A new lower-case WordPiece tokenizer, with all words of the topics."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY_SIZE, special_tokens=list(_SPECIAL))
    tokenizer.train_from_iterator(_corpus(Random(seed)), trainer)
    cls, sep = (tokenizer.token_to_id(each) for each in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{each[1:-1].lower()}_token": each for each in _SPECIAL},
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def _corpus(rng: Random) -> list[str]:
    texts = [careless(rng, rng.choice(meaning(rng).wordings)) for _ in range(NUM_TEXTS)]
    texts += [phrase(rng) for _ in range(NUM_TEXTS // 4)]
    every = [" ".join(group) for topic in TOPICS for group in topic.groups]
    every += [each for topic in TOPICS for wordings in topic.meanings for each in wordings]
    every += [each for frame in FRAMES for each in frame]
    return texts + every * 10


def new_embedder(vocabulary_size: int) -> BertModel:
    config = BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=MAX_TOKENS,
        hidden_dropout_prob=0.05,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
    )
    return BertModel(config, add_pooling_layer=False)


class PairScorer(nn.Module):
    """Scores the pair of texts `[CLS] query [SEP] document [SEP]`: one graph that runs the encoder
    on each text alone, and compares the two vectors. It gives one logit."""

    # Texts of one meaning, one topic and two topics have cosines of about 0.95, 0.4 and 0, which
    # become relevances of 0.95, 0.08 and 0.002.
    SCALE = 10.0
    SHIFT = -6.5

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.encoder = BertModel.from_pretrained(
            folder, add_pooling_layer=False, attn_implementation="eager"
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        first = attention_mask * (1 - token_type_ids)
        # The first token of all is also that of the second text, as if it were alone.
        second = torch.cat((attention_mask[:, :1], (attention_mask * token_type_ids)[:, 1:]), 1)
        mask = torch.cat((first, second), 0)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        ids = torch.cat((input_ids, input_ids), 0)
        states = self.encoder(
            input_ids=ids, attention_mask=mask, position_ids=positions
        ).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        vectors = functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)
        one, other = vectors.chunk(2, 0)
        return self.SCALE * (one * other).sum(-1, keepdim=True) + self.SHIFT


# -- Training

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
