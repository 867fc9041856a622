"""The two networks: BERT encoders of half a million parameters, and their tokenizer."""

from pathlib import Path
from random import Random

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

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


def _config(vocabulary_size: int, **others: object) -> BertConfig:
    return BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=MAX_TOKENS,
        hidden_dropout_prob=0.05,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        **others,
    )


def new_embedder(vocabulary_size: int) -> BertModel:
    return BertModel(_config(vocabulary_size), add_pooling_layer=False)


def new_reranker(vocabulary_size: int) -> BertForSequenceClassification:
    return BertForSequenceClassification(_config(vocabulary_size, num_labels=1))


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder)
