"""Shapes and vocabularies, without an engine."""

import pytest

from benchmarks.random_models import HALF_BILLION_PLAN
from benchmarks.shapes.corpus import SENTENCES
from benchmarks.shapes.vocabulary import Vocabulary, token_id, train, unprintable_ids
from tests.tables import table

SPECIAL = ("<start>", "<end>", "<pad>")


def vocabulary(size: int, prefix: str | None = None) -> Vocabulary:
    return Vocabulary(size, SPECIAL, end="<end>", pad="<pad>", prefix=prefix)


def test_the_half_billion_model_has_the_size_of_qwen2() -> None:
    assert HALF_BILLION_PLAN.shape.num_parameters == 494_032_768


@table("size", [259, 400, 2000])
def test_a_vocabulary_has_exactly_its_size(size: int) -> None:
    tokenizer = train(vocabulary(size))

    assert tokenizer.get_vocab_size() == size
    assert sorted(tokenizer.get_vocab().values()) == list(range(size))
    assert tokenizer.to_str() == train(vocabulary(size)).to_str()


def test_every_text_survives_the_way_there_and_back() -> None:
    tokenizer = train(vocabulary(400))

    for text in (*SENTENCES, "déjà vu 漢字 🙂\n\t x"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_prefix_stands_before_a_text() -> None:
    tokenizer = train(vocabulary(400, prefix="<start>"))

    assert tokenizer.encode("hello").ids[0] == token_id(tokenizer, "<start>")
    assert tokenizer.encode("hello", add_special_tokens=False).tokens[0] != "<start>"


def test_what_is_left_to_answer_with_is_plain_text() -> None:
    tokenizer = train(vocabulary(1000))
    spoken = set(range(1000)) - set(unprintable_ids(tokenizer))

    assert len(spoken) == 1000 - 256 - len(SPECIAL)
    assert all(tokenizer.decode([id_]).isascii() for id_ in spoken)


def test_it_refuses_a_vocabulary_without_its_own_tokens_or_bytes() -> None:
    with pytest.raises(ValueError, match="among the special tokens"):
        Vocabulary(400, ("<end>",), end="<end>", pad="<pad>")
    with pytest.raises(ValueError, match="256 entries"):
        vocabulary(200)
    with pytest.raises(KeyError, match="<other>"):
        token_id(train(vocabulary(300)), "<other>")
