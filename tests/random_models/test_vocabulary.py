"""A vocabulary has the size that is asked for, and its texts come back as they were."""

from tests.random_models.vocabulary import SENTENCES, Vocabulary, token_id, train, unprintable_ids
from tests.tables import table

SPECIAL = ("<start>", "<end>", "<pad>")


def vocabulary(size: int, prefix: str | None = None) -> Vocabulary:
    return Vocabulary(size, SPECIAL, end="<end>", pad="<pad>", prefix=prefix)


@table("size", [259, 400, 2000])
def test_a_vocabulary_has_exactly_its_size(size: int) -> None:
    tokenizer = train(vocabulary(size))

    assert sorted(tokenizer.get_vocab().values()) == list(range(size))
    assert tokenizer.to_str() == train(vocabulary(size)).to_str()


def test_texts_come_back_as_they_were_after_a_prefix_and_answers_are_plain() -> None:
    tokenizer = train(vocabulary(400))

    for text in (*SENTENCES, "déjà vu 漢字 🙂\n\t x"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text

    tokenizer = train(vocabulary(400, prefix="<start>"))
    assert tokenizer.encode("hello").ids[0] == token_id(tokenizer, "<start>")
    assert tokenizer.encode("hello", add_special_tokens=False).tokens[0] != "<start>"

    tokenizer = train(vocabulary(1000))
    spoken = set(range(1000)) - set(unprintable_ids(tokenizer))
    assert len(spoken) == 1000 - 256 - len(SPECIAL)
    assert all(tokenizer.decode([id_]).isascii() for id_ in spoken)
