"""The encoder, a BERT of half a million parameters, its tokenizer, and the scorer of pairs."""

from pathlib import Path
from random import Random

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

from training.similarity.texts import careless, meaning
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
